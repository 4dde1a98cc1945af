// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// The effects of received gossip depend on its order relative to the local gossip.
func TestReceivedGossip(t *testing.T) {
	t.Parallel()
	t.Run("same, seen by this node in the sender's view", func(t *testing.T) {
		t.Parallel()
		s := with(t, "a", "b")
		s.recv("a", membership.StateOf(s.m.Gossip()))
		if len(s.out.Send) > 0 {
			t.Errorf("the same state caused the messages %v, want none", s.out.Send)
		}
	})
	t.Run("same, not seen by this node in the sender's view", func(t *testing.T) {
		t.Parallel()
		s := with(t, "a", "b")
		s.do(membership.Leave{Node: node("b")})
		s.recv("a", membership.StateOf(s.m.Gossip().Unseen().Saw(node("a"))))
		s.wants("the sender receives the seen set", membership.KindSeen, "a")
		if g := s.m.Gossip(); !g.HasSeen(node("a")) || !g.HasSeen(thisNode) || g.HasSeen(node("b")) {
			t.Errorf("the seen set is %v, want the union of both", g.SeenBy())
		}
	})
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		s := with(t, "a")
		old := s.m.Gossip()
		s.do(membership.Leave{Node: node("a")})
		s.recv("a", membership.StateOf(old))
		s.wants("a sender with an older state receives the whole state", membership.KindState, "a")
		if s.status(node("a")) != leaving || s.m.Gossip().HasSeen(node("a")) {
			t.Error("the local state changed or counts as seen by the sender")
		}
	})
	t.Run("after", func(t *testing.T) {
		t.Parallel()
		s := with(t, "a")
		next := apply(t, s.m.Gossip(), node("a"), membership.Change{Put: []*identity.Member{member("x", joining)}})
		s.recv("a", membership.StateOf(next))
		s.wants("the sender receives the seen set", membership.KindSeen, "a")
		if g := s.m.Gossip(); s.status(node("x")) != joining || !g.HasSeen(thisNode) || !g.HasSeen(node("a")) {
			t.Errorf("the received state was not adopted, or is not seen by both: %v", g.SeenBy())
		}
		if s.recv("a", membership.StateOf(s.m.Gossip())); len(s.out.Send) > 0 {
			t.Errorf("a newer state caused the messages %v, want none", s.out.Send)
		}
	})
	t.Run("concurrent", func(t *testing.T) {
		t.Parallel()
		s := with(t, "a", "b")
		other := apply(t, s.m.Gossip(), node("a"), membership.Change{Put: []*identity.Member{member("x", joining)}}).Saw(node("b"))
		s.do(membership.Leave{Node: node("b")})
		s.recv("a", membership.StateOf(other))
		s.wants("the sender receives the merged state", membership.KindState, "a")
		if g := s.m.Gossip(); s.status(node("x")) != joining || s.status(node("b")) != leaving || !slices.Equal(g.SeenBy(), []identity.Node{thisNode}) {
			t.Errorf("the state is not merged, or is seen by others: %v %s", g.SeenBy(), describe(g))
		}
	})
	t.Run("concurrent, with changes of a removed node", func(t *testing.T) {
		t.Parallel()
		s := with(t, "n", "o")
		fromO := apply(t, s.m.Gossip(), node("o"), membership.Change{Put: []*identity.Member{member("x", joining)}})
		s.do(membership.Quarantine{Node: node("o")})
		s.do(membership.DownNode{Node: node("o")})
		s.seen("n")
		s.pass(time.Second, "n")
		if !s.m.Gossip().Removed(node("o")) {
			t.Fatalf("o was not removed: %s", describe(s.m.Gossip()))
		}
		before := s.m.Gossip().Clock()
		late, _ := fromO.Merge(apply(t, fromO, node("n"), membership.Change{Put: []*identity.Member{member("y", joining)}}))
		s.recv("n", membership.StateOf(late.Saw(node("n"))))
		if g := s.m.Gossip(); g.Clock().Compare(before) != membership.After || s.status(node("x")) != joining || g.Clock().Of(thisNode) != before.Of(thisNode)+1 {
			t.Errorf("the merge added no tick: clock %v, then %v", before, g.Clock())
		}
	})
}

func TestDroppedGossip(t *testing.T) {
	t.Parallel()
	s := with(t, "a", "b")
	newer := apply(t, s.m.Gossip(), node("a"), membership.Change{Put: []*identity.Member{member("x", joining)}})
	data := membership.AppendMessage(nil, membership.StateOf(newer))
	drops := func(subject string, why membership.Drop, in membership.Received) {
		t.Helper()
		before := s.dropped(why)
		s.do(in)
		if s.dropped(why) != before+1 || len(s.out.Send)+len(s.out.Events) > 0 {
			t.Errorf("%s: dropped as %v %d times and sent %v, want one drop and no effect", subject, why, s.dropped(why)-before, s.out.Send)
		}
	}
	s.now += 5 * time.Second
	s.pass(0)
	drops("too old", membership.DropExpired, membership.Received{From: node("a"), To: thisNode, Arrived: s.now - 2001*time.Millisecond, Data: data})
	drops("for another incarnation", membership.DropOther, membership.Received{From: node("a"), To: identity.Node{Name: "m", UID: 7}, Data: data})
	drops("for another node", membership.DropOther, membership.Received{From: node("a"), To: node("z"), Data: data})
	drops("to the name", membership.DropOther, membership.Received{From: node("a"), To: identity.Node{Name: "m"}, Data: data})
	drops("from a name", membership.DropOther, membership.Received{From: identity.Node{Name: "a"}, To: thisNode, Data: data})
	drops("from itself", membership.DropUnexpected, membership.Received{From: thisNode, To: thisNode, Data: data})
	drops("garbage", membership.DropMalformed, membership.Received{From: node("a"), To: thisNode, Data: []byte("garbage")})
	drops("empty", membership.DropMalformed, membership.Received{From: node("a"), To: thisNode})
	without := cluster(t, member("a", up), member("b", up))
	drops("from a node for which this node is not a member", membership.DropUnknown, membership.Received{From: node("a"), To: thisNode, Data: membership.AppendMessage(nil, membership.StateOf(without))})
	forged := membership.StateOf(s.m.Gossip())
	forged.Version[0]++
	drops("a digest that does not match the clock", membership.DropMalformed, membership.Received{From: node("a"), To: thisNode, Data: membership.AppendMessage(nil, forged)})
	broken := membership.StateOf(newer)
	broken.Content = broken.Content[:len(broken.Content)-3]
	before := s.dropped(membership.DropMalformed)
	if s.recv("a", broken); s.dropped(membership.DropMalformed) != before+1 || s.logged("cannot decode gossip") != 1 {
		t.Error("malformed gossip was not counted or not logged")
	}
	for range 100 {
		s.recv("a", broken)
	}
	if n := s.logged("cannot decode gossip"); n != 1 {
		t.Errorf("101 malformed messages were logged %d times at once, want 1", n)
	}
	for i, k := range []membership.Message{membership.StateOf(newer), membership.Digests{}, membership.Versions{}, membership.SeenOf(newer)} {
		s.recv("x", k)
		s.wants("a node that is not a member is informed", membership.KindStranger, "x")
		if s.dropped(membership.DropStranger) != uint64(i+1) || len(s.out.Send) != 1 || s.status(node("x")) != 0 {
			t.Errorf("%v from a node that is not a member was accepted", membership.KindOf(k))
		}
	}
	fresh := membership.Received{From: node("a"), To: thisNode, Arrived: s.now - 1999*time.Millisecond, Data: data}
	if s.do(fresh); s.status(node("x")) != joining {
		t.Error("gossip that has not expired was dropped")
	}
}

// Gossip of a member is accepted unless this node itself finds the member unreachable. Observations
// of other members do not count.
func TestGossipOfUnreachableMembers(t *testing.T) {
	t.Parallel()
	s := with(t, "a", "b")
	g := apply(t, s.m.Gossip(), node("b"), membership.Change{Observed: []membership.Observation{{node("a"), unreachable}}})
	s.recv("b", membership.StateOf(g))
	next := apply(t, s.m.Gossip(), node("a"), membership.Change{Put: []*identity.Member{member("x", joining)}})
	if s.recv("a", membership.StateOf(next)); s.status(node("x")) != joining {
		t.Error("gossip of a was dropped although only b finds a unreachable")
	}
	s.pass(10*time.Second, "b")
	if s.m.Gossip().Reachability().By(thisNode, node("a")) != unreachable {
		t.Fatal("a is still reachable")
	}
	next = apply(t, s.m.Gossip(), node("a"), membership.Change{Put: []*identity.Member{member("y", joining)}})
	before := s.dropped(membership.DropUnreachable)
	if s.recv("a", membership.StateOf(next)); s.status(node("y")) != 0 || s.dropped(membership.DropUnreachable) != before+1 {
		t.Error("gossip of a was accepted although this node finds a unreachable")
	}
	s.forget()
	s.pass(20*time.Second, "b")
	for _, k := range []membership.Kind{membership.KindState, membership.KindDigests} {
		if slices.Contains(sentIn(s.all, k), "a") {
			t.Errorf("%v was sent to an unreachable member", k)
		}
	}
	if !slices.Contains(sentIn(s.all, membership.KindHeartbeat), "a") {
		t.Error("no heartbeat was sent to an unreachable member")
	}
}

func TestDigests(t *testing.T) {
	t.Parallel()
	s := with(t, "a", "b")
	g := s.m.Gossip()
	version, seen := g.Clock().Digest(), g.SeenDigest()
	if s.recv("a", membership.Digests{Version: version, Seen: seen}); len(s.out.Send) > 0 {
		t.Errorf("equal digests caused the messages %v", s.out.Send)
	}
	if s.recv("a", membership.Digests{Version: version}); len(s.out.Send) > 0 {
		t.Errorf("an empty seen digest caused the messages %v", s.out.Send)
	}
	s.recv("a", membership.Digests{Version: version, Seen: membership.Digest{1}})
	s.wants("other seen set", membership.KindSeen, "a")
	s.recv("a", membership.Digests{Version: membership.Digest{1}, Seen: seen})
	s.wants("another version", membership.KindVersions, "a")
	s.recv("a", membership.Digests{})
	s.wants("no version", membership.KindVersions, "a")

	if s.recv("a", membership.Versions{Clock: g.Clock(), Seen: seen}); len(s.out.Send) > 0 {
		t.Errorf("equal versions and seen sets caused the messages %v", s.out.Send)
	}
	s.recv("a", membership.Versions{Clock: g.Clock(), Seen: membership.Digest{1}})
	s.wants("equal clocks", membership.KindSeen, "a")
	s.recv("a", membership.Versions{Clock: g.Clock().Add(node("a"))})
	s.wants("a node with a newer state receives the versions", membership.KindVersions, "a")
	s.recv("a", membership.Versions{Clock: g.Clock()[:0]})
	s.wants("a node with an older state receives the state", membership.KindState, "a")
	s.recv("a", membership.Versions{Clock: membership.Clock{}.Add(node("a"))})
	s.wants("a node with a concurrent state receives the state", membership.KindState, "a")

	other := membership.SeenOf(g)
	other.Version = membership.Digest{9}
	s.recv("a", other)
	s.wants("seen set of another version", membership.KindVersions, "a")
}

// A round of gossip goes to one member. If that member has seen the state, the round contains only
// the version. If not, it contains the whole state.
func TestRounds(t *testing.T) {
	t.Parallel()
	s := with(t, "a", "b", "c")
	all := []string{"a", "b", "c"}
	s.pass(20*time.Second, all...)
	if n := len(sentIn(s.all, membership.KindDigests)); n != 20 {
		t.Errorf("%d rounds in 20 s of an idle cluster, want 20", n)
	}
	if n := len(sentIn(s.all, membership.KindState)); n > 0 {
		t.Errorf("the whole state was sent %d times to a member that has seen it", n)
	}
	s.forget()
	s.named("x", membership.Join{})
	s.pass(10*time.Second, all...)
	state, digests := len(sentIn(s.all, membership.KindState)), len(sentIn(s.all, membership.KindDigests))
	if state < 20 || digests > 0 {
		t.Errorf("few members have seen the state: the state was sent %d times and the version %d times, want at least 20 and 0", state, digests)
	}
	s.seen("a")
	s.forget()
	s.pass(10*time.Second, all...)
	if state, digests = len(sentIn(s.all, membership.KindState)), len(sentIn(s.all, membership.KindDigests)); state+digests != 10 {
		t.Errorf("half of the members have seen the state: %d rounds, want one a second", state+digests)
	}
	if n := len(sentIn(founded(t).all, membership.KindState)); n > 0 {
		t.Error("a single member sent gossip")
	}
}

func TestGossipAfterDown(t *testing.T) {
	t.Parallel()
	s := with(t, "a", "b", "c")
	s.do(membership.DownNode{Node: node("c")})
	s.wants("a downed member receives the state at once", membership.KindState, "c")
	s.seen("a", "b", "c")
	s.forget()
	s.pass(4*time.Second, "a", "b", "c")
	if n := len(sentIn(s.all, membership.KindState)) + len(sentIn(s.all, membership.KindDigests)); n < 10 || n > 12 {
		t.Errorf("%d rounds in 4 s, want 10 to 12", n)
	}
}

// Gossip prefers members that have not seen the last change, with a lower probability in large
// clusters.
func TestGossipTargets(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	s := with(t, names...)
	s.do(membership.PrepareForShutdown{})
	s.seen(names[1:]...) // n0 has not seen the last change
	s.forget()
	s.pass(1000*time.Second, names...)
	to := map[string]int{}
	for _, name := range append(sentIn(s.all, membership.KindState), sentIn(s.all, membership.KindDigests)...) {
		to[name]++
	}
	// n0 gets 80 % and a tenth of the rest. Each other member gets a tenth of the rest.
	if n := to["n0"]; n < 780 || n > 860 {
		t.Errorf("n0 was chosen %d of 1000 times, want about 820", n)
	}
	for _, name := range names[1:] {
		if n := to[name]; n < 5 || n > 40 {
			t.Errorf("%s was chosen %d of 1000 times, want about 20", name, n)
		}
	}
	for n, want := range map[int]float64{1: 0.8, 400: 0.8, 800: 0.44, 1200: 0.08, 5000: 0.08} {
		if got := (membership.Settings{}).DifferentViewOf(n); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("DifferentViewOf(%d) = %v, want %v", n, got, want)
		}
	}
}

// In a large cluster a node sends its version before it sends the whole state.
func TestGossipInLargeCluster(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	s := with(t, names...)
	s.do(membership.Leave{Node: node("n00")})
	s.forget()
	s.pass(3*time.Second, names...)
	if state, digests := len(sentIn(s.all, membership.KindState)), len(sentIn(s.all, membership.KindDigests)); state > 0 || digests < 5 {
		t.Errorf("sent the state %d times and the version %d times, want 0 and at least 5", state, digests)
	}
}

func TestLeaderInformsOldestMembers(t *testing.T) {
	t.Parallel()
	s := founded(t)
	for _, name := range []string{"n", "o", "p", "q"} {
		roles := []string{"x"}
		if name == "n" || name == "o" {
			roles = nil
		}
		s.named(name, membership.Join{Roles: roles})
		s.seen("n", "o", "p", "q")
		s.pass(time.Second, "n", "o", "p", "q")
		s.seen("n", "o", "p", "q")
		s.pass(time.Second, "n", "o", "p", "q")
	}
	s.seen("n", "o", "p", "q")
	s.do(membership.Leave{Node: node("q")})
	s.seen("n", "o", "p", "q")
	var exits membership.Effects
	for range 3 {
		s.pass(time.Second/2, "n", "o", "p", "q")
		if s.status(node("q")) == exiting {
			exits = s.all
			break
		}
	}
	to := sentIn(exits, membership.KindState)
	for _, name := range []string{"n", "o", "p", "q"} { // the oldest except self, and the oldest with role x
		if !slices.Contains(to, name) {
			t.Errorf("%s was not informed: %v", name, to)
		}
	}
}

// TestMergeNeverRevertsStatus checks that a merge with an earlier state never reverts the status of
// a member, including ReadyForShutdown. If merges reverted it, a member that leaves or is downed
// after ReadyForShutdown would stay forever.
func TestMergeNeverRevertsStatus(t *testing.T) {
	t.Parallel()
	for before := joining; before <= identity.ReadyForShutdown; before++ {
		for after := joining; after <= identity.ReadyForShutdown; after++ {
			if !before.CanBecome(after) || after == removed {
				continue
			}
			base := first(membership.Gossip{}.Apply(node("a"), membership.Change{Put: []*identity.Member{member("a", up), member("b", before), member("c", up)}}))
			here := first(base.Apply(node("a"), membership.Change{Put: []*identity.Member{member("b", after)}}))
			there := first(base.Apply(node("c"), membership.Change{Observed: []membership.Observation{{Subject: node("a"), Reach: membership.Unreachable}}}))
			for _, merge := range [][2]membership.Gossip{{here, there}, {there, here}} {
				merged, _ := merge[0].Merge(merge[1])
				if got := merged.Member(node("b")).Status; got != after {
					t.Errorf("%v became %v, but the merge reverted it to %v", before, after, got)
				}
			}
		}
	}
}

func first(g membership.Gossip, _ error) membership.Gossip { return g }
