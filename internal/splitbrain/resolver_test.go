// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/internal/splitbrain"
)

// TestScripts runs the scripts in testdata. Run go test -rewrite to update the expected output, and
// review the difference.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Helper()
		t.Parallel()
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			return s.do(t, d)
		})
	})
}

// script is one resolver and its clock.
type script struct {
	r   *splitbrain.Resolver
	now time.Duration
}

// do carries out one command:
//
//	resolver STRATEGY [stable=10s] [unstable=off|5s] [quorum=3] [release=40s] makes a resolver of the node a; the clock is at 0
//	view [follower]                a new view, in the line below: see parse
//	tick DURATION                  ticks each second for this time, and prints each tick that has an effect
//	lease held|refused|lost [b]    an answer of the store, with the owner if another node holds the lease; or the loss of the lease
//	released done|failed
//	link up|down
func (s *script) do(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	first := ""
	if len(d.CmdArgs) > 0 {
		first = d.CmdArgs[0].Key
	}
	switch d.Cmd {
	case "resolver":
		settings := splitbrain.Settings{Strategy: downing.Strategy(first), StableAfter: 10 * time.Second}
		for _, a := range d.CmdArgs[1:] {
			switch a.Key {
			case "stable":
				settings.StableAfter = duration(t, a.Vals[0])
			case "unstable":
				settings.DownAllWhenUnstable = -1
				if a.Vals[0] != "off" {
					settings.DownAllWhenUnstable = duration(t, a.Vals[0])
				}
			case "release":
				settings.ReleaseAfter = duration(t, a.Vals[0])
			case "quorum":
				a.Scan(t, 0, &settings.QuorumSize)
			default:
				t.Fatalf("%s: unknown argument %s", d.Pos, a.Key)
			}
		}
		if first == "auto" {
			settings = splitbrain.Settings(downing.Auto(settings.StableAfter))
		}
		*s = script{r: resolver(t, "a", settings)}
		return "ok"
	case "view":
		v := parse(t, d.Input)
		v.Leader = first != "follower"
		return s.print(s.r.Step(s.now, v))
	case "tick":
		var b strings.Builder
		for end := s.now + duration(t, first); s.now < end; {
			s.now += time.Second
			if printed := s.print(s.r.Tick(s.now)); printed != "ok" {
				fmt.Fprintf(&b, "%v: %s", s.now, printed)
			}
		}
		if b.Len() == 0 {
			return fmt.Sprintf("nothing until %v", s.now)
		}
		return b.String()
	case "lease":
		if first == "lost" {
			return s.print(s.r.Step(s.now, splitbrain.LeaseLost{}))
		}
		in := splitbrain.LeaseAnswer{Held: first == "held"}
		if len(d.CmdArgs) > 1 {
			in.Owner = node(d.CmdArgs[1].Key)
		}
		return s.print(s.r.Step(s.now, in))
	case "released":
		return s.print(s.r.Step(s.now, splitbrain.LeaseReleased{Done: first == "done"}))
	case "link":
		return s.print(s.r.Step(s.now, splitbrain.Link{Up: first == "up"}))
	}
	t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	return ""
}

func (s *script) print(e splitbrain.Effects) string {
	var lines []string
	for _, n := range e.Notes {
		line := n.Kind.String()
		if n.Decision != 0 {
			line += fmt.Sprintf(": %v, %d here and %d there", n.Decision, n.Here, n.There)
		}
		if n.Kind == splitbrain.Outgrown {
			line += fmt.Sprintf(": %d members", n.Here+n.There)
		}
		lines = append(lines, line)
	}
	if e.ReleaseLease {
		lines = append(lines, "release the lease")
	}
	if e.AskLease {
		lines = append(lines, "ask for the lease")
	}
	if len(e.Down) > 0 {
		lines = append(lines, "down "+names(e.Down))
	}
	if len(lines) == 0 {
		return "ok"
	}
	return strings.Join(lines, "; ") + "\n"
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
