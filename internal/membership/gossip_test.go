// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

const (
	joining, weakly, up, leaving = identity.Joining, identity.WeaklyUp, identity.Up, identity.Leaving
	exiting, down, removed       = identity.Exiting, identity.Down, identity.Removed
	preparing, prepared          = identity.PreparingForShutdown, identity.ReadyForShutdown
)

func member(name string, s identity.Status) *identity.Member {
	return &identity.Member{Node: node(name), Status: s, UpNumber: identity.NeverUp}
}

// cluster returns the gossip of the first node after it has added the members.
func cluster(tb testing.TB, members ...*identity.Member) membership.Gossip {
	tb.Helper()
	return apply(tb, membership.Gossip{}, members[0].Node, membership.Change{Put: members})
}

func apply(tb testing.TB, g membership.Gossip, self identity.Node, c membership.Change) membership.Gossip {
	tb.Helper()
	changed, err := g.Apply(self, c)
	if err != nil {
		tb.Fatal(err)
	}
	check(tb, changed)
	return changed
}

// check asserts the invariants of every gossip.
func check(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, g membership.Gossip,
) {
	t.Helper()
	if !slices.IsSortedFunc(g.Members(), func(a, b *identity.Member) int { return a.Node.Compare(b.Node) }) {
		t.Fatalf("the members are not sorted")
	}
	for i, m := range g.Members() {
		if m.Status == removed || i > 0 && g.Members()[i-1].Node == m.Node || g.Removed(m.Node) {
			t.Fatalf("member %v has the status %v, removed: %t", m.Node, m.Status, g.Removed(m.Node))
		}
	}
	isMember := func(subject string, n identity.Node) {
		if g.Member(n) == nil {
			t.Fatalf("%v is %s and not a member", n, subject)
		}
	}
	for _, tick := range g.Clock() {
		isMember("in the clock", tick.Node)
	}
	for _, n := range g.SeenBy() {
		isMember("has seen", n)
	}
	for _, o := range g.Reachability().Observers {
		isMember("observes", o.Node)
		for _, rec := range o.Records {
			isMember("is observed", rec.Subject)
		}
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	a, b := node("a"), node("b")
	g := cluster(t, member("a", up), member("b", up)).Saw(b)
	if !g.HasSeen(a) || !g.HasSeen(b) || g.Clock().Of(a) != 1 {
		t.Fatalf("the first gossip has the seen set %v and the clock %v, want a and b, and one tick of a", g.SeenBy(), g.Clock())
	}
	for name, change := range map[string]membership.Change{
		"status":      {Put: []*identity.Member{member("b", leaving)}},
		"new member":  {Put: []*identity.Member{member("c", joining)}},
		"removed":     {Remove: []identity.Node{a}, At: 1},
		"unreachable": {Observed: []membership.Observation{{Subject: a, Reach: unreachable}}},
	} {
		changed := apply(t, g, b, change)
		if got := changed.SeenBy(); !slices.Equal(got, []identity.Node{b}) || changed.Clock().Of(b) != 1 || g.Clock().Of(b) != 0 {
			t.Errorf("%s: seen by %v, clock %v, want only b and one tick of b", name, got, changed.Clock())
		}
	}
	for name, nothing := range map[string]membership.Change{
		"same status":   {Put: []*identity.Member{member("b", up)}},
		"reachable":     {Observed: []membership.Observation{{Subject: a, Reach: reachable}}},
		"unknown nodes": {Remove: []identity.Node{node("x")}, Observed: []membership.Observation{{Subject: node("y"), Reach: unreachable}}},
		"forget":        {Forget: 1 << 40},
	} {
		if got := apply(t, g, b, nothing); !reflect.DeepEqual(got, g) {
			t.Errorf("%s changed the gossip: %v", name, got.Clock())
		}
	}
}

func TestInvalidChanges(t *testing.T) {
	t.Parallel()
	g := cluster(t, member("a", up), member("b", down))
	gone := apply(t, g, node("a"), membership.Change{Remove: []identity.Node{node("b")}, At: 1})
	for name, err := range map[string]error{
		"down to up":               second(g.Apply(node("a"), membership.Change{Put: []*identity.Member{member("b", up)}})),
		"removed":                  second(g.Apply(node("a"), membership.Change{Put: []*identity.Member{member("b", removed)}})),
		"no status":                second(g.Apply(node("a"), membership.Change{Put: []*identity.Member{member("c", 0)}})),
		"removed node":             second(gone.Apply(node("a"), membership.Change{Put: []*identity.Member{member("b", joining)}})),
		"up to ready-for-shutdown": second(g.Apply(node("a"), membership.Change{Put: []*identity.Member{member("a", prepared)}})),
	} {
		if err == nil {
			t.Errorf("Apply accepted the change %q", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestRemove(t *testing.T) {
	t.Parallel()
	a, b, c := node("a"), node("b"), node("c")
	g := cluster(t, member("a", up), member("b", up), member("c", up))
	g = apply(t, g, b, membership.Change{Observed: []membership.Observation{{c, unreachable}}})
	g = apply(t, g, a, membership.Change{Observed: []membership.Observation{{b, unreachable}}})
	g = apply(t, g, a, membership.Change{Put: []*identity.Member{member("b", down)}})
	if g.HasSeen(b) {
		t.Error("a member that is Down is in the seen set")
	}
	g = apply(t, g, a, membership.Change{Remove: []identity.Node{b}, At: 77})
	if g.Member(b) != nil || !g.Removed(b) || g.Clock().Of(b) != 0 || !g.Reachability().AllReachable() {
		t.Errorf("the state still contains b: %v %v", g.Clock(), g.Reachability())
	}
	if got := g.Tombstones(); !slices.Equal(got, []membership.Tombstone{{Node: b, At: 77, Count: 1}}) {
		t.Errorf("the tombstones are %v, want one of b", got)
	}
	if g = apply(t, g, a, membership.Change{Forget: 77}); !g.Removed(b) {
		t.Error("the tombstone was forgotten too early")
	}
	if g = apply(t, g, a, membership.Change{Forget: 78}); g.Removed(b) {
		t.Error("Forget did not remove the older tombstone")
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	a, b, c := node("a"), node("b"), node("c")
	base := cluster(t, member("a", up), member("b", up), member("c", up)).Saw(b).Saw(c)
	merge := func(x, y membership.Gossip) (membership.Gossip, bool) {
		t.Helper()
		m, tick := x.Merge(y)
		n, also := y.Merge(x)
		if !reflect.DeepEqual(m, n) || tick != also {
			t.Errorf("the merges in both orders differ: clocks %v and %v, ticks %t and %t", m.Clock(), n.Clock(), tick, also)
		}
		check(t, m)
		if len(m.SeenBy()) > 0 {
			t.Errorf("a merged gossip has the seen set %v, want none", m.SeenBy())
		}
		return m, tick
	}

	x := apply(t, base, a, membership.Change{Put: []*identity.Member{member("c", down)}})
	y := apply(t, base, b, membership.Change{Put: []*identity.Member{member("c", leaving), member("d", joining)}})
	m, tick := merge(x, y)
	if m.Member(c).Status != down || m.Member(node("d")) == nil || tick || m.Clock().Of(a) != 2 || m.Clock().Of(b) != 1 {
		t.Errorf("in the merged gossip c is %v, d is %v, and the clock is %v; want c down, d a member, 2 ticks of a and 1 of b", m.Member(c).Status, m.Member(node("d")), m.Clock())
	}

	gone := apply(t, x, a, membership.Change{Remove: []identity.Node{c}, At: 5})
	if m, tick = merge(gone, y); m.Member(c) != nil || !m.Removed(c) || tick {
		t.Errorf("the merge restored the removed member: %v", m.Member(c))
	}

	// The clock has no entry for changes that c made before its removal.
	late := apply(t, base, c, membership.Change{Put: []*identity.Member{member("b", leaving)}})
	if m, tick = merge(gone, late); !tick || m.Member(b).Status != leaving || m.Clock().Compare(gone.Clock()) != membership.Same {
		t.Errorf("merge with a change that is not in the clock: tick %t, b is %v, clock %v; want a tick, b leaving and an unchanged clock", tick, m.Member(b).Status, m.Clock())
	}
	if _, tick = merge(m, late); tick {
		t.Error("a repeated merge requires another tick")
	}
}

func TestMergeStatus(t *testing.T) {
	t.Parallel()
	order := []identity.Status{joining, weakly, up, preparing, prepared, leaving, exiting, down}
	for i, lower := range order {
		for _, higher := range order[i:] {
			m, _ := cluster(t, member("a", up), member("b", lower)).Merge(cluster(t, member("a", up), member("b", higher)))
			if got := m.Member(node("b")).Status; got != higher {
				t.Errorf("the merge of the statuses %v and %v is %v", lower, higher, got)
			}
		}
	}
	young, old := member("a", up), member("a", up)
	young.UpNumber, old.UpNumber = 7, 3
	if m, _ := cluster(t, young).Merge(cluster(t, old)); m.Member(node("a")).UpNumber != 3 {
		t.Errorf("the merged member has the up number %d, want 3", m.Member(node("a")).UpNumber)
	}
}

// history is a set of gossips that are changed and merged in random order.
type history struct {
	states []membership.Gossip
	all    []membership.Gossip
}

var letters = []string{"a", "b", "c", "d", "e"}

// newHistory draws a history in which nodes act, crash and are removed.
func newHistory(t *rapid.T) *history {
	base := membership.Gossip{}
	for _, name := range letters[:3] {
		base, _ = base.Apply(node("a"), membership.Change{Put: []*identity.Member{member(name, up)}})
	}
	h := &history{}
	for range letters {
		h.states = append(h.states, base)
	}
	for range rapid.IntRange(0, 25).Draw(t, "steps") {
		i := rapid.IntRange(0, len(letters)-1).Draw(t, "who")
		self, g := node(letters[i]), h.states[i]
		other := rapid.SampledFrom(letters).Draw(t, "whom")
		m := g.Member(node(other))
		var c membership.Change
		switch subject := rapid.SampledFrom([]string{"meet", "meet", "put", "remove", "observe"}).Draw(t, "what"); {
		case subject == "meet":
			h.meet(self, i, slices.Index(letters, other))
			g = h.states[i]
		case g.Member(self) == nil:
		case subject == "put" && m == nil && !g.Removed(node(other)):
			c.Put = []*identity.Member{member(other, joining)}
		case subject == "put" && m != nil:
			if next := rapid.SampledFrom([]identity.Status{weakly, up, leaving, exiting, down, preparing, prepared}).Draw(t, "status"); m.Status.CanBecome(next) {
				c.Put = []*identity.Member{member(other, next)}
			}
		case subject == "remove" && m != nil && other != letters[i]:
			c.Remove, c.At = []identity.Node{node(other)}, int64(rapid.IntRange(0, 9).Draw(t, "at"))
		case subject == "observe":
			c.Observed = []membership.Observation{{node(other), rapid.SampledFrom([]membership.Reach{reachable, unreachable, terminated}).Draw(t, "reach")}}
		}
		changed, err := g.Apply(self, c)
		if err != nil {
			t.Fatal(err)
		}
		check(t, changed)
		h.states[i] = changed
		if len(changed.Clock()) > 0 {
			h.all = append(h.all, changed)
		}
	}
	return h
}

// meet merges a received state as a node does.
func (h *history) meet(self identity.Node, at, from int) {
	mine, theirs := h.states[at], h.states[from]
	if theirs.Member(self) == nil {
		return // the node was removed, or is not a member yet
	}
	switch mine.Clock().Compare(theirs.Clock()) {
	case membership.Before:
		h.states[at] = theirs
	case membership.Concurrent:
		merged, tick := mine.Merge(theirs)
		if tick {
			merged = merged.Ticked(self)
		}
		h.states[at] = merged
	case membership.Same, membership.After:
	}
}

func TestMergeProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		if len(h.all) == 0 {
			return
		}
		contents := map[string]membership.Gossip{}
		for _, g := range h.all {
			clock := fmt.Sprint(g.Clock())
			if other, met := contents[clock]; met && !equal(g, other) {
				t.Fatalf("two contents with equal clocks:\n%s\n%s", describe(g), describe(other))
			}
			contents[clock] = g
		}
		x, y, z := rapid.SampledFrom(h.all).Draw(t, "x"), rapid.SampledFrom(h.all).Draw(t, "y"), rapid.SampledFrom(h.all).Draw(t, "z")
		merge := func(a, b membership.Gossip) membership.Gossip {
			m, _ := a.Merge(b)
			check(t, m)
			return m
		}
		if a, b := merge(x, y), merge(y, x); !equal(a, b) {
			t.Fatalf("Merge is not commutative:\n%s\n%s", describe(a), describe(b))
		}
		if a, b := merge(merge(x, y), z), merge(x, merge(y, z)); !equal(a, b) {
			t.Fatalf("Merge is not associative:\n%s\n%s", describe(a), describe(b))
		}
		if a := merge(x, x); !equal(a, x.Unseen()) {
			t.Fatalf("Merge is not idempotent:\n%s\n%s", describe(a), describe(x))
		}
		if a := merge(x, y); !equal(merge(a, y), a) {
			t.Fatalf("Merge is not idempotent:\n%s\n%s", describe(merge(a, y)), describe(a))
		}
	})
}

// equal compares contents.
func equal(a, b membership.Gossip) bool {
	return string(a.AppendContent(nil)) == string(b.AppendContent(nil))
}

func describe(g membership.Gossip) string {
	s := ""
	for _, m := range g.Members() {
		s += fmt.Sprintf("%v:%v:%d ", m.Node, m.Status, m.UpNumber)
	}
	return fmt.Sprintf("%s clock %v reach %v tombstones %v", s, g.Clock(), g.Reachability().Observers, g.Tombstones())
}

func TestConvergence(t *testing.T) {
	t.Parallel()
	a := node("a")
	allNodes := func(identity.Node) bool { return true }
	for _, tt := range []struct {
		name      string
		members   []*identity.Member
		seen      string
		bad       string // found unreachable by a
		confirmed func(identity.Node) bool
		want      bool
	}{
		{name: "all have seen", members: []*identity.Member{member("a", up), member("b", up)}, seen: "b", want: true},
		{name: "one has not seen", members: []*identity.Member{member("a", up), member("b", up)}},
		{name: "leaving has not seen", members: []*identity.Member{member("a", up), member("b", leaving)}},
		{name: "preparing has not seen", members: []*identity.Member{member("a", up), member("b", preparing)}},
		{name: "ready has not seen", members: []*identity.Member{member("a", up), member("b", prepared)}},
		{name: "joining does not count", members: []*identity.Member{member("a", up), member("b", joining)}, want: true},
		{name: "weakly up does not count", members: []*identity.Member{member("a", up), member("b", weakly)}, want: true},
		{name: "exiting does not count", members: []*identity.Member{member("a", up), member("b", exiting)}, want: true},
		{name: "down does not count", members: []*identity.Member{member("a", up), member("b", down)}, want: true},
		{name: "no member is up, joining has not seen", members: []*identity.Member{member("a", joining), member("b", joining)}},
		{name: "no member is up, weakly up has not seen", members: []*identity.Member{member("a", joining), member("b", weakly)}},
		{name: "no member is up, joining has seen", members: []*identity.Member{member("a", joining), member("b", joining)}, seen: "b", want: true},
		{name: "no member is up, down does not count", members: []*identity.Member{member("a", joining), member("b", down)}, want: true},
		{name: "unreachable", members: []*identity.Member{member("a", up), member("b", up)}, seen: "b", bad: "b"},
		{name: "joining and unreachable", members: []*identity.Member{member("a", up), member("b", joining)}, bad: "b"},
		{name: "down and unreachable", members: []*identity.Member{member("a", up), member("b", down)}, bad: "b", want: true},
		{name: "exiting and unreachable", members: []*identity.Member{member("a", up), member("b", exiting)}, bad: "b", want: true},
		{name: "confirmed", members: []*identity.Member{member("a", up), member("b", leaving)}, bad: "b", confirmed: allNodes, want: true},
	} {
		g := cluster(t, tt.members...)
		if tt.bad != "" {
			g = apply(t, g, a, membership.Change{Observed: []membership.Observation{{node(tt.bad), unreachable}}})
		}
		if tt.seen != "" {
			g = g.Saw(node(tt.seen))
		}
		if got := g.Converged(a, tt.confirmed); got != tt.want {
			t.Errorf("%s: Converged = %t, want %t", tt.name, got, tt.want)
		}
	}
	if !(membership.Gossip{}).Converged(a, nil) {
		t.Error("an empty gossip converged")
	}
}

func TestConvergenceIgnoresObservations(t *testing.T) {
	t.Parallel()
	a, b, c := node("a"), node("b"), node("c")
	g := cluster(t, member("a", up), member("b", down), member("c", up))
	g = apply(t, g, b, membership.Change{Observed: []membership.Observation{{a, unreachable}, {c, unreachable}}})
	g = g.Saw(a).Saw(c)
	if !g.Converged(a, nil) {
		t.Error("an observation by a Down member was counted")
	}
	g = apply(t, g, c, membership.Change{Observed: []membership.Observation{{a, unreachable}}}).Saw(a)
	if !g.Converged(a, nil) || g.Converged(c, nil) {
		t.Errorf("Converged for a is %t and for c is %t, want true and false", g.Converged(a, nil), g.Converged(c, nil))
	}
}

func TestLeader(t *testing.T) {
	t.Parallel()
	x := node("x")
	withRole := func(m *identity.Member, role string) *identity.Member {
		m.Roles = []string{role}
		return m
	}
	for _, tt := range []struct {
		name    string
		members []*identity.Member
		bad     []string
		self    string
		role    string
		want    string
	}{
		{name: "the first Up member", members: []*identity.Member{member("a", joining), member("b", up), member("c", up)}, want: "b"},
		{name: "leaving", members: []*identity.Member{member("a", exiting), member("b", leaving), member("c", up)}, want: "b"},
		{name: "preparing", members: []*identity.Member{member("a", preparing), member("c", up)}, want: "a"},
		{name: "ready", members: []*identity.Member{member("a", prepared), member("c", up)}, want: "a"},
		{name: "not an unreachable member", members: []*identity.Member{member("a", up), member("b", up)}, bad: []string{"a"}, want: "b"},
		{name: "self although it is unreachable", members: []*identity.Member{member("a", up), member("b", up)}, bad: []string{"a"}, self: "a", want: "a"},
		{name: "never a down member", members: []*identity.Member{member("a", down), member("b", exiting)}, self: "a", want: "b"},
		{name: "weakly up before joining", members: []*identity.Member{member("a", joining), member("b", weakly), member("c", weakly)}, want: "b"},
		{name: "joining before exiting", members: []*identity.Member{member("a", exiting), member("b", joining)}, want: "b"},
		{name: "of a role", members: []*identity.Member{member("a", up), withRole(member("b", up), "r")}, role: "r", want: "b"},
		{name: "of a role without members", members: []*identity.Member{member("a", up)}, role: "r"},
		{name: "no leader", members: []*identity.Member{member("a", down)}},
	} {
		g := cluster(t, append(tt.members, member("x", exiting))...)
		for _, bad := range tt.bad {
			g = apply(t, g, x, membership.Change{Observed: []membership.Observation{{node(bad), unreachable}}})
		}
		g = apply(t, g, x, membership.Change{Remove: []identity.Node{x}})
		for _, bad := range tt.bad { // the observer x was removed
			by := g.Members()[len(g.Members())-1].Node
			g = apply(t, g, by, membership.Change{Observed: []membership.Observation{{node(bad), unreachable}}})
		}
		want := identity.Node{}
		if tt.want != "" {
			want = node(tt.want)
		}
		if got := g.Leader(node(tt.self), tt.role); got != want {
			t.Errorf("%s: Leader = %v, want %v", tt.name, got, want)
		}
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	got, err := membership.CheckRoles([]string{"b", "a", "b"})
	if err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("CheckRoles = %v, %v, want [a b]", got, err)
	}
	for _, bad := range [][]string{{""}, {"dc-x"}, {fmt.Sprintf("%200d", 1)}, manyRoles(65)} {
		if _, err := membership.CheckRoles(bad); err == nil {
			t.Errorf("CheckRoles accepted %.40q", bad)
		}
	}
	m := &identity.Member{Roles: got}
	if !m.HasRole("a") || m.HasRole("c") || !m.HasRole("") || !m.HasRole("dc-default") {
		t.Errorf("HasRole of a, c, \"\" and dc-default: %t, %t, %t, %t, want all except c", m.HasRole("a"), m.HasRole("c"), m.HasRole(""), m.HasRole("dc-default"))
	}
}

func manyRoles(n int) (roles []string) {
	for i := range n {
		roles = append(roles, fmt.Sprintf("r%02d", i))
	}
	return roles
}

// receivers computes the monitored nodes as the specification does, by walking the ring.
func receivers(g membership.Gossip, self identity.Node, count int) []identity.Node {
	position := func(n identity.Node) int32 { return int32(uint32(n.UID ^ n.UID>>32)) }
	var ring []identity.Node
	for _, m := range g.Members() {
		ring = append(ring, m.Node)
	}
	slices.SortFunc(ring, func(a, b identity.Node) int {
		if position(a) != position(b) {
			if position(a) < position(b) {
				return -1
			}
			return 1
		}
		return a.Compare(b)
	})
	at := slices.Index(ring, self)
	if count >= len(ring)-1 {
		return sorted(slices.Delete(ring, at, at+1))
	}
	var chosen []identity.Node
	good := 0
	for _, n := range append(ring[at+1:], ring[:at]...) {
		bad := slices.ContainsFunc(g.Unreachable(identity.Node{}), func(m *identity.Member) bool { return m.Node == n })
		switch {
		case good == count:
		case !bad:
			chosen = append(chosen, n)
			good++
		case len(chosen) < count:
			chosen = append(chosen, n)
		}
	}
	return sorted(chosen)
}

func sorted(nodes []identity.Node) []identity.Node {
	slices.SortFunc(nodes, identity.Node.Compare)
	return nodes
}

func TestRing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		g, self := many(r, rapid.IntRange(1, 40).Draw(t, "members"))
		for range rapid.IntRange(0, 20).Draw(t, "unreachable") {
			bad := g.Members()[r.IntN(len(g.Members()))].Node
			g, _ = g.Apply(self, membership.Change{Observed: []membership.Observation{{bad, unreachable}}})
		}
		count := rapid.IntRange(1, 12).Draw(t, "count")
		monitors := map[identity.Node]int{}
		for _, m := range g.Members() {
			got, want := g.Monitored(m.Node, count), receivers(g, m.Node, count)
			if !slices.Equal(got, want) {
				t.Fatalf("%v monitors %v, want %v", m.Node, got, want)
			}
			for _, n := range got {
				monitors[n]++
			}
		}
		for _, m := range g.Members() {
			if len(g.Unreachable(identity.Node{})) == 0 && monitors[m.Node] != min(count, len(g.Members())-1) {
				t.Errorf("%v is monitored by %d of %d members, want %d", m.Node, monitors[m.Node], len(g.Members()), min(count, len(g.Members())-1))
			}
		}
	})
}

// many returns the gossip of a cluster with n members, and its first member.
func many(r *rand.Rand, n int) (membership.Gossip, identity.Node) {
	var members []*identity.Member
	for i := range n {
		m := &identity.Member{
			Node:   identity.Node{Name: fmt.Sprintf("refold-node-%04d.refold.default.svc:7400", i), UID: r.Uint64() | 1},
			Status: up, UpNumber: int32(i) + 1, Roles: []string{"backend"},
		}
		if i%3 == 0 {
			m.Roles = []string{"backend", "frontend"}
		}
		members = append(members, m)
	}
	self := members[0].Node
	g, err := (membership.Gossip{}).Apply(self, membership.Change{Put: members})
	if err != nil {
		panic(err)
	}
	return g, self
}
