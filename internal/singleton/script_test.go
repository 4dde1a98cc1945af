// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/singleton"
)

func node(name string) identity.Node { return identity.Node{Name: name, UID: 1} }

// parse reads members: "name:status@age+role". All parts except the name are optional. The defaults
// are the status Up and the position in the line as the age.
func parse(t *testing.T, line string) singleton.Members {
	t.Helper()
	var members singleton.Members
	for i, word := range strings.Fields(line) {
		rest, role, _ := strings.Cut(word, "+")
		rest, age, _ := strings.Cut(rest, "@")
		name, status, _ := strings.Cut(rest, ":")
		m := identity.Member{Node: node(name), Status: identity.Up, UpNumber: int32(i + 1)}
		if status != "" {
			for m.Status = identity.Joining; m.Status.String() != status; m.Status++ {
				if m.Status > identity.ReadyForShutdown {
					t.Fatalf("unknown status %q", status)
				}
			}
		}
		if m.Status == identity.Joining || m.Status == identity.WeaklyUp {
			m.UpNumber = math.MaxInt32
		}
		if age != "" {
			n, err := strconv.ParseInt(age, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			m.UpNumber = int32(n)
		}
		if role != "" {
			m.Roles = []string{role}
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b identity.Member) int { return a.Node.Compare(b.Node) })
	return members
}

// TestScripts runs the scripts in testdata. Run go test -rewrite to update the expected output, and
// review the difference.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Helper()
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		t.Parallel()
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			return s.do(t, d)
		})
	})
}

// script is one manager and its clock.
type script struct {
	m   *singleton.Manager
	now time.Duration
}

// do carries out one command:
// manager [margin=5s [per-member]] [lease] [role=r] [retries=3]   creates a manager on the node a
//
//	members                                   the members in the line below: see parse
//	from NODE hand-over-to-me|in-progress|done|done-none|take-over-from-me|identify [round=1] [of=singleton]
//	tick DURATION                             ticks each half second and prints each tick that has an effect
//	ended N, lease held|refused|lost|released, exiting, suspend, resume, link up|down
func (s *script) do(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	first := ""
	if len(d.CmdArgs) > 0 {
		first = d.CmdArgs[0].Key
	}
	step := func(in singleton.Input) string { return s.print(s.m.Step(s.now, in)) }
	switch d.Cmd {
	case "manager":
		cfg := singleton.Config{Self: node("a"), UseLease: d.HasArg("lease")}
		if d.HasArg("margin") {
			var margin string
			d.ScanArgs(t, "margin", &margin)
			fixed, perMember := duration(t, margin), d.HasArg("per-member")
			cfg.RemovalMargin = func(members int) time.Duration {
				if perMember {
					return fixed * time.Duration(min(members, 100))
				}
				return fixed
			}
		}
		d.MaybeScanArgs(t, "role", &cfg.Role)
		d.MaybeScanArgs(t, "retries", &cfg.MinRetries)
		m, err := singleton.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		*s = script{m: m}
		return "ok"
	case "members":
		return step(parse(t, d.Input))
	case "from":
		kinds := map[string]singleton.Message{
			"hand-over-to-me": {Kind: singleton.HandOverToMe}, "in-progress": {Kind: singleton.HandOverInProgress},
			"done": {Kind: singleton.HandOverDone, Hosted: true}, "done-none": {Kind: singleton.HandOverDone},
			"take-over-from-me": {Kind: singleton.TakeOverFromMe}, "identify": {Kind: singleton.Identify}, "identified": {Kind: singleton.Identified},
		}
		msg, found := kinds[d.CmdArgs[1].Key]
		if !found {
			t.Fatalf("%s: unknown message", d.Pos)
		}
		msg.Singleton, msg.Round = "singleton", 1
		d.MaybeScanArgs(t, "round", &msg.Round)
		d.MaybeScanArgs(t, "of", &msg.Singleton)
		return step(singleton.Received{From: node(first), Message: msg})
	case "tick":
		var b strings.Builder
		for until := s.now + duration(t, first); s.now < until; {
			s.now += 500 * time.Millisecond
			if printed := s.print(s.m.Tick(s.now)); printed != "ok" {
				fmt.Fprintf(&b, "%v: %s", s.now, printed)
			}
		}
		if b.Len() == 0 {
			return fmt.Sprintf("nothing until %v", s.now)
		}
		return b.String()
	case "ended":
		n, err := strconv.ParseUint(first, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return step(singleton.InstanceEnded{Instance: n})
	case "lease":
		switch first {
		case "lost":
			return step(singleton.LeaseLost{})
		case "released":
			return step(singleton.LeaseReleased{})
		}
		return step(singleton.LeaseAnswer{Held: first == "held"})
	case "exiting":
		return step(singleton.SelfExiting{})
	case "suspend":
		return step(singleton.Suspend{})
	case "resume":
		return step(singleton.Resume{})
	case "link":
		return step(singleton.Link{Up: first == "up"})
	}
	t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	return ""
}

func (s *script) print(e singleton.Effects) string {
	var parts []string
	for _, n := range e.Notes {
		switch n.Kind {
		case singleton.Became:
			parts = append(parts, n.State.String())
		case singleton.Ignored:
			parts = append(parts, fmt.Sprintf("ignored %q of %s", n.Message, n.Peer.Name))
		case singleton.Stuck:
			parts = append(parts, fmt.Sprintf("stuck with %s", n.Peer.Name))
		}
	}
	if e.Stop != 0 {
		parts = append(parts, fmt.Sprintf("STOP %d", e.Stop))
	}
	if e.ReleaseLease {
		parts = append(parts, "release the lease")
	}
	if e.AskLease {
		parts = append(parts, "ask for the lease")
	}
	if e.Start != 0 {
		parts = append(parts, fmt.Sprintf("START %d", e.Start))
	}
	for _, o := range e.Send {
		text := fmt.Sprintf("to %s: %v", o.To.Name, o.Message.Kind)
		if o.Message.Round != 0 {
			text += fmt.Sprintf(" (%d)", o.Message.Round)
		}
		if o.Message.Kind == singleton.HandOverDone && !o.Message.Hosted {
			text += " by one without"
		}
		parts = append(parts, text)
	}
	if e.ExitDone {
		parts = append(parts, "may exit")
	}
	if e.Ended {
		parts = append(parts, "ended")
	}
	if len(parts) == 0 {
		return "ok"
	}
	return strings.Join(parts, "; ") + "\n"
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
