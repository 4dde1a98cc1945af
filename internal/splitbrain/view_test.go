// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain_test

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
)

func node(name string) identity.Node { return identity.Node{Name: name, UID: 1} }

func nodes(names string) []identity.Node {
	var ns []identity.Node
	for name := range strings.FieldsSeq(names) {
		ns = append(ns, node(name))
	}
	return ns
}

func names(ns []identity.Node) string {
	var s []string
	for _, n := range ns {
		s = append(s, n.Name)
	}
	return strings.Join(s, " ")
}

// parse reads a view that the leader has. Members are "name:status@age+role!", where all but
// the name may be missing: who is up, aged as it stands in the line, reachable. Records are
// "a>b"; where none are given, the first reachable member observes all that are not. Those
// who have seen the view are "seen=a,b", by default all that are reachable.
func parse(t *testing.T, line string) splitbrain.View {
	t.Helper()
	v := splitbrain.View{Leader: true}
	var seen []identity.Node
	for i, word := range strings.Fields(line) {
		if list, found := strings.CutPrefix(word, "seen="); found {
			seen = nodes(strings.ReplaceAll(list, ",", " "))
			continue
		}
		if observer, subject, found := strings.Cut(word, ">"); found {
			v.Reachability = v.Reachability.Change(node(observer), node(subject), membership.Unreachable)
			continue
		}
		rest, unreachable := strings.CutSuffix(word, "!")
		rest, role, _ := strings.Cut(rest, "+")
		rest, age, _ := strings.Cut(rest, "@")
		name, status, _ := strings.Cut(rest, ":")
		m := identity.Member{Node: node(name), Status: statusOf(t, status), UpNumber: int32(i + 1)}
		if role != "" {
			m.Roles = []string{role}
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
		v.Members = append(v.Members, m)
		if unreachable {
			v.Unreachable = append(v.Unreachable, m.Node)
		}
	}
	slices.SortFunc(v.Members, func(a, b identity.Member) int { return a.Node.Compare(b.Node) })
	slices.SortFunc(v.Unreachable, identity.Node.Compare)
	v.Seen = seen
	if seen == nil {
		for i := range v.Members {
			if !slices.Contains(v.Unreachable, v.Members[i].Node) {
				v.Seen = append(v.Seen, v.Members[i].Node)
			}
		}
	}
	if v.Reachability.AllReachable() {
		v.Reachability = observed(v)
	}
	return v
}

// observed is the table in which the first reachable member finds the others
// unreachable.
func observed(v splitbrain.View) membership.Reachability {
	var r membership.Reachability
	for i := range v.Members {
		if slices.Contains(v.Unreachable, v.Members[i].Node) {
			continue
		}
		for _, n := range v.Unreachable {
			r = r.Change(v.Members[i].Node, n, membership.Unreachable)
		}
		break
	}
	return r
}

func statusOf(t *testing.T, s string) identity.Status {
	t.Helper()
	if s == "" {
		return identity.Up
	}
	for status := identity.Joining; status <= identity.ReadyForShutdown; status++ {
		if status.String() == s {
			return status
		}
	}
	t.Fatalf("there is no status %q", s)
	return 0
}

func resolver(t *testing.T, self string, s splitbrain.Settings) *splitbrain.Resolver {
	t.Helper()
	r, err := splitbrain.New(node(self), s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// outcome lets a node decide about a view, and returns the decision and whom it
// downs.
func outcome(t *testing.T, self string, s splitbrain.Settings, v splitbrain.View) (splitbrain.Decision, []identity.Node) {
	t.Helper()
	if s.Strategy != splitbrain.Off {
		s.StableAfter = 10 * time.Second
	}
	r := resolver(t, self, s)
	r.Step(0, v)
	out := r.Tick(10 * time.Second)
	for _, note := range out.Notes {
		if note.Kind == splitbrain.Decided {
			return note.Decision, out.Down
		}
	}
	return 0, out.Down
}
