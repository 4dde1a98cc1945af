// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// exits returns an exiting machine in a cluster whose leader is the node named a.
func exits(t *testing.T) *solo {
	t.Helper()
	s := with(t, "a", "b", "c")
	me := *s.m.Gossip().Member(thisNode)
	for _, status := range []identity.Status{leaving, exiting} {
		me.Status = status
		next := me
		s.recv("a", membership.StateOf(apply(t, s.m.Gossip(), node("a"), membership.Change{Put: []*identity.Member{&next}})))
	}
	return s
}

// An exiting node does not mark the state as seen before its hand-over is done. Then it informs the
// leader, the next leader and other remaining members, so that no member waits for the exiting
// node.
func TestExiting(t *testing.T) {
	t.Parallel()
	s := exits(t)
	if !slices.Contains(s.all.Life, membership.Life{Kind: membership.Exits}) {
		t.Fatalf("life events: %v, want Exits", s.all.Life)
	}
	if s.m.Gossip().HasSeen(thisNode) || !s.m.Gossip().HasSeen(node("a")) || len(s.sent(membership.KindSeen)) > 0 {
		t.Error("the node marked the state as seen before its hand-over was done")
	}
	s.named("x", membership.Ping{Node: thisNode})
	s.wants("an exiting node replies to a ping", membership.KindPong, "x")
	s.do(membership.Leave{Node: node("b")})
	if s.m.Gossip().HasSeen(thisNode) {
		t.Error("the node marked the next state as seen before its hand-over was done")
	}
	e := s.do(membership.ExitingDone{})
	if got := sentIn(e, membership.KindExitingConfirmed); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("the confirmation was sent to %v, want [a b c]", got)
	}
	if got := sentIn(e, membership.KindState); len(got) != 3 {
		t.Errorf("the last gossip was sent to %v, want 3 members", got)
	}
	if got := e.Life; !slices.Equal(got, []membership.Life{{Kind: membership.Stopped, Reason: membership.Left}}) {
		t.Errorf("life events: %v, want Stopped with Left", got)
	}
	if e.Events[1].Kind != membership.ShuttingDown || len(e.Events) != 2+4 {
		t.Errorf("events: %v, want 6 with ShuttingDown as the second", e.Events)
	}
	if s.m.Next() != membership.Never || len(s.do(membership.JoinNode{Name: "m"}).Log) > 0 {
		t.Error("the stopped machine has a pending timer or accepted an input")
	}
}

func TestLeaderRemovesConfirmedMembers(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.recv("x", membership.ExitingConfirmed{})
	if s.dropped(membership.DropStranger) != 1 {
		t.Error("the confirmation of x, which is not a member, had an effect")
	}
	s.do(membership.Leave{Node: node("n")})
	s.seen("n", "o")
	s.pass(time.Second, "n", "o")
	if s.status(node("n")) != exiting {
		t.Fatalf("n is %v, want exiting", s.status(node("n")))
	}
	s.seen("o")
	s.pass(2*time.Second, "n", "o")
	if s.status(node("n")) != exiting {
		t.Error("n was removed without its confirmation")
	}
	s.recv("n", membership.ExitingConfirmed{})
	s.pass(time.Second, "n", "o")
	if s.status(node("n")) != 0 {
		t.Error("n was not removed after its confirmation")
	}
	// After the removal of n, its messages are accepted for a while.
	s.forget()
	s.seen("o")
	s.pass(4*time.Second, "o")
	if len(s.all.Quarantine) > 0 {
		t.Error("n was quarantined at once")
	}
	s.pass(2*time.Second, "o")
	if !slices.Equal(s.all.Quarantine, []identity.Node{node("n")}) {
		t.Errorf("the quarantined nodes are %v, want n", s.all.Quarantine)
	}
	s.recv("n", membership.Digests{})
	s.wants("message of n after its quarantine", membership.KindQuarantined, "n")
	if s.dropped(membership.DropQuarantined) != 1 {
		t.Errorf("the dropped messages are %v, want one from a quarantined node", s.m.Counters().Dropped)
	}
}

// The leader also counts a confirmation of n that arrives before the leader sets n to Exiting.
func TestEarlyConfirmation(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.recv("n", membership.ExitingConfirmed{})
	s.pass(3*time.Second, "n", "o")
	s.do(membership.Leave{Node: node("n")})
	s.seen("o") // n has not seen the state
	s.pass(time.Second, "n", "o")
	s.seen("o")
	s.pass(time.Second, "n", "o")
	if s.status(node("n")) != 0 {
		t.Errorf("n is %v, want removed", s.status(node("n")))
	}
}

// A new incarnation ends the time in which messages of the previous incarnation are accepted.
func TestNewIncarnationQuarantinesOld(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.recv("n", membership.ExitingConfirmed{})
	s.do(membership.Leave{Node: node("n")})
	for range 3 {
		s.seen("o")
		s.pass(time.Second, "n", "o")
	}
	s.forget()
	s.do(membership.Received{From: identity.Node{Name: "n", UID: 2}, To: identity.Node{Name: "m"}, Data: membership.AppendMessage(nil, membership.Join{})})
	s.pass(time.Millisecond)
	if !slices.Equal(s.all.Quarantine, []identity.Node{node("n")}) {
		t.Errorf("the quarantined nodes are %v, want n", s.all.Quarantine)
	}
}

// A Down node stops when all Down members have seen the state with their new status, or after four
// ticks.
func TestDownedNodeStops(t *testing.T) {
	t.Parallel()
	downed := func(t *testing.T) *solo {
		t.Helper()
		s := with(t, "a", "b", "c", "d", "e", "f", "g")
		g := s.m.Gossip()
		both := []*identity.Member{{Node: thisNode, Status: down, UpNumber: g.Member(thisNode).UpNumber}, {Node: node("b"), Status: down, UpNumber: g.Member(node("b")).UpNumber}}
		s.recv("a", membership.StateOf(apply(t, g, node("a"), membership.Change{Put: both})))
		if !slices.Contains(s.all.Life, membership.Life{Kind: membership.Downed}) {
			t.Fatalf("life events: %v, want Downed", s.all.Life)
		}
		s.forget()
		return s
	}
	all := []string{"a", "b", "c", "d", "e", "f", "g"}
	stop := membership.Life{Kind: membership.Stopped, Reason: membership.WasDowned}

	s := downed(t)
	s.named("x", membership.Ping{Node: thisNode})
	s.wants("a node that is about to stop does not reply", membership.KindPong)
	s.pass(3*time.Second, all...)
	if slices.Contains(s.all.Life, stop) {
		t.Error("the node stopped before b has seen that it is Down")
	}
	s.pass(2*time.Second, all...)
	if !slices.Contains(s.all.Life, stop) {
		t.Error("the node did not stop after four ticks")
	}
	if n := len(sentIn(s.out, membership.KindState)); n != 0 {
		t.Errorf("the node sent %d states after it stopped, want 0", n)
	}

	s = downed(t)
	s.seen("b")
	s.forget()
	s.pass(1100*time.Millisecond, all...)
	if !slices.Contains(s.all.Life, stop) {
		t.Error("the node did not stop after b has seen that it is Down")
	}
	if n := len(sentIn(s.all, membership.KindState)); n < 5 {
		t.Errorf("the last gossip was sent to %d nodes, want at least 5", n)
	}
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.do(membership.Quarantine{Node: node("n")})
	if got := s.m.Gossip().Reachability().By(thisNode, node("n")); got != terminated || s.status(node("n")) != up || !slices.Equal(s.out.Quarantine, []identity.Node{node("n")}) {
		t.Errorf("n is %v with the status %v and the quarantined nodes are %v, want terminated, up and n", got, s.status(node("n")), s.out.Quarantine)
	}
	s.recv("n", membership.Digests{})
	s.wants("a quarantined node is informed", membership.KindQuarantined, "n")
	s.recv("n", membership.Digests{})
	s.wants("a quarantined node is not informed each time", membership.KindQuarantined)
	s.pass(1100 * time.Millisecond)
	for _, m := range []membership.Message{membership.Heartbeat{}, membership.HeartbeatReply{}, membership.Quarantined{}} {
		s.recv("n", m)
		s.wants("a heartbeat or notice of a quarantined node causes no notice", membership.KindQuarantined)
	}
	if s.status(thisNode) != up {
		t.Error("a notice of a quarantined node had an effect")
	}
	s.recv("n", membership.Digests{})
	s.wants("a quarantined node is informed again after a while", membership.KindQuarantined, "n")
	if s.dropped(membership.DropQuarantined) != 6 {
		t.Errorf("the dropped messages are %v, want 6 from a quarantined node", s.m.Counters().Dropped)
	}
	s.forget()
	s.pass(10*time.Second, "o")
	for _, sent := range s.all.Send {
		if sent.To == node("n") {
			t.Fatalf("%v was sent to n", sent.Kind)
		}
	}
	if s.do(membership.Quarantine{Node: thisNode}); s.status(thisNode) != up {
		t.Error("the node quarantined itself")
	}
}

// A node downs itself when two members inform it that they have quarantined it.
func TestBeingQuarantined(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	if s.recv("x", membership.Quarantined{}); s.status(thisNode) != up {
		t.Error("the notice of x, which is not a member, had an effect")
	}
	again := membership.Received{From: identity.Node{Name: "n", UID: 2}, To: thisNode, Data: membership.AppendMessage(nil, membership.Quarantined{})}
	s.recv("n", membership.Quarantined{})
	s.recv("n", membership.Quarantined{})
	if s.do(again); s.status(thisNode) != up {
		t.Error("the node did not continue after the notices of n alone")
	}
	if n := s.dropped(membership.DropUnconfirmed); n != 3 {
		t.Errorf("%d unconfirmed notices were counted, want 3", n)
	}
	if s.recv("o", membership.Quarantined{}); s.status(thisNode) != down || s.status(node("n")) != up || s.status(node("o")) != up {
		t.Errorf("this node is %v, n is %v, o is %v; want down, up and up", s.status(thisNode), s.status(node("n")), s.status(node("o")))
	}
}

// The notice of one member is sufficient if nobody can contradict it.
func TestBeingQuarantinedByTheOnlyMember(t *testing.T) {
	t.Parallel()
	s := with(t, "n")
	if s.recv("n", membership.Quarantined{}); s.status(thisNode) != down {
		t.Errorf("this node is %v after the notice of the only other member, want down", s.status(thisNode))
	}
	s = with(t, "n", "o")
	s.pass(20*time.Second, "n")
	if s.recv("n", membership.Quarantined{}); s.status(thisNode) != down {
		t.Errorf("this node is %v after the notice of the only reachable member, want down", s.status(thisNode))
	}
	s = with(t, "n", "o")
	s.do(membership.LinkLost{})
	if s.recv("n", membership.Quarantined{}); s.status(thisNode) != down {
		t.Errorf("this node is %v after a notice while it is disconnected, want down", s.status(thisNode))
	}
}

// All members that removed a node may have been replaced. Therefore new members also inform the
// removed node. The removed node accepts a notice from any node that has the name of a member.
func TestNoticeOfALaterIncarnation(t *testing.T) {
	t.Parallel()
	s := newSolo(t)
	s.do(membership.JoinNode{Name: "a"})
	s.recv("a", membership.Echo{Nr: 1})
	g := cluster(t, member("a", up), member("m", joining), member("x", up))
	g = apply(t, g, node("a"), membership.Change{Put: []*identity.Member{member("x", down)}})
	s.recv("a", membership.Welcome{State: membership.StateOf(apply(t, g, node("a"), membership.Change{Remove: []identity.Node{node("x")}}))})
	s.recv("x", membership.Digests{})
	s.wants("gossip of a removed node", membership.KindQuarantined, "x")
	s.named("x", membership.Ping{Node: identity.Node{Name: "m", UID: 77}})
	s.wants("a removed node sends a ping to the previous incarnation", membership.KindQuarantined, "x")
	if s.dropped(membership.DropRemoved) != 2 {
		t.Errorf("the dropped messages are %v, want 2 from a removed node", s.m.Counters().Dropped)
	}

	s = with(t, "n")
	again := membership.Received{From: identity.Node{Name: "n", UID: 2}, To: thisNode, Data: membership.AppendMessage(nil, membership.Quarantined{})}
	if s.do(again); s.status(thisNode) != down {
		t.Error("the node did not stop after the notice of a later incarnation of n")
	}
	s = with(t, "n", "o")
	s.do(membership.DownNode{Node: node("n")})
	s.pass(10*time.Second, "o")
	s.seen("o")
	s.pass(2*time.Second, "o")
	if !s.m.Gossip().Removed(node("n")) {
		t.Fatal("n is still a member")
	}
	if s.do(again); s.status(thisNode) != up {
		t.Error("the notice of n, which is no longer a member, had an effect")
	}
}

// Events have a fixed order: removed members, changed members, reachability, leaders.
func TestOrderOfEvents(t *testing.T) {
	t.Parallel()
	s := with(t, "a", "b", "c", "d")
	g := apply(t, s.m.Gossip(), node("b"), membership.Change{Observed: []membership.Observation{{node("d"), unreachable}}})
	s.recv("b", membership.StateOf(g))
	g = apply(t, s.m.Gossip(), node("b"), membership.Change{
		Put:      []*identity.Member{member("a", leaving), {Node: node("A"), Status: joining, UpNumber: identity.NeverUp, Roles: []string{"r"}}},
		Remove:   []identity.Node{node("c")},
		Observed: []membership.Observation{{node("d"), reachable}, {node("a"), unreachable}},
	})
	s.recv("b", membership.StateOf(g))
	var got []string
	for _, e := range s.out.Events {
		text := e.Kind.String()
		if e.Member != nil {
			text += " " + e.Member.Node.Name
		}
		if e.Kind == membership.LeaderChanged || e.Kind == membership.RoleLeaderChanged {
			text += " " + e.Node.Name
		}
		got = append(got, text)
	}
	want := []string{
		"tombstones-changed", "removed c", "joined A", "left a", "unreachable a", "reachable d", "leader b", "role-leader A", "seen-changed", "reachability-changed",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events: %q, want %q", got, want)
	}
}

// The first view and the later events together give the current state, without gaps and duplicates.
func TestViewAndEvents(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		w := newWorld(t, seed)
		hosts := w.join(names(5)...)
		w.run(time.Duration(6000+seed*500) * time.Millisecond)
		h := hosts[1]
		replayed := replay{}
		replayed.apply(h.m.View().Events())
		h.events = nil
		hosts[4].kill()
		hosts[2].do(membership.Leave{Node: hosts[2].node})
		w.run(20 * time.Second)
		replayed.apply(h.events)
		now := replay{}
		now.apply(h.m.View().Events())
		if !reflect.DeepEqual(replayed, now) {
			t.Errorf("seed %d: the state derived from the events is %v, want %v", seed, replayed, now)
		}
	}
}

// replay is the state that a subscriber derives from events.
type replay map[string]string

func (r replay) apply(events []membership.Event) {
	for _, e := range events {
		switch {
		case e.Kind == membership.MemberRemoved:
			delete(r, "status "+e.Member.Node.String())
			delete(r, "unreachable "+e.Member.Node.String())
		case e.Kind == membership.MemberUnreachable:
			r["unreachable "+e.Member.Node.String()] = "yes"
		case e.Kind == membership.MemberReachable:
			delete(r, "unreachable "+e.Member.Node.String())
		case e.Kind == membership.LeaderChanged:
			r["leader"] = e.Node.String()
		case e.Member != nil:
			r["status "+e.Member.Node.String()] = fmt.Sprint(e.Member.Status, e.Member.UpNumber)
		}
	}
}

func TestUpNumberEvent(t *testing.T) {
	t.Parallel()
	s := with(t, "a")
	older := *s.m.Gossip().Member(node("a"))
	older.UpNumber = 1
	s.recv("a", membership.StateOf(apply(t, s.m.Gossip(), node("a"), membership.Change{Put: []*identity.Member{&older}})))
	if len(s.out.Events) == 0 || s.out.Events[0].Kind != membership.MemberUp || s.out.Events[0].Member.UpNumber != 1 {
		t.Errorf("events: %v, want MemberUp with the up number 1 first", s.out.Events)
	}
}

func TestView(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.pass(10*time.Second, "n")
	v := s.m.View()
	if v.Self != thisNode || !v.Connected || !v.Leader || len(v.Members) != 3 || !slices.Equal(v.Unreachable, []identity.Node{node("o")}) ||
		v.Reachability.By(thisNode, node("o")) != unreachable || !slices.Contains(v.Seen, thisNode) {
		t.Errorf("View = %+v, want this node as the connected leader of 3 members, which finds o unreachable", v)
	}
	if again := s.m.View(); &again.Members[0] != &v.Members[0] || &again.Unreachable[0] != &v.Unreachable[0] {
		t.Error("View returned another slice for unchanged members")
	}
	s.named("x", membership.Join{})
	if next := s.m.View(); len(next.Members) != 4 || len(v.Members) != 3 || &next.Unreachable[0] != &v.Unreachable[0] {
		t.Errorf("the later view has %d members and the earlier one %d, want 4 and 3 with the same unreachable members", len(next.Members), len(v.Members))
	}
}

// solo is one machine. The test creates the messages of its peers. Its node has the name m.
type solo struct {
	t   *testing.T
	m   *membership.Machine
	now time.Duration
	// out has the effects of the last step. all has the effects since the last call of forget.
	out, all membership.Effects
	mute     bool // the machine does not receive its own heartbeats
}

var thisNode = node("m")

func newSolo(t *testing.T, change ...func(*membership.Config)) *solo {
	t.Helper()
	cfg := membership.Config{Self: thisNode, Rand: rand.New(rand.NewPCG(1, 1)), Started: time.Unix(1000, 0)}
	for _, c := range change {
		c(&cfg)
	}
	m, err := membership.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &solo{t: t, m: m}
}

// founded returns a machine that is the only member.
func founded(t *testing.T, change ...func(*membership.Config)) *solo {
	t.Helper()
	s := newSolo(t, change...)
	s.do(membership.JoinNode{Name: "m"})
	s.pass(500 * time.Millisecond)
	if got := s.status(s.m.Self()); got != up {
		t.Fatalf("the founder is %v, want up", got)
	}
	return s
}

// with returns a machine that is Up together with other nodes, which have seen its state.
func with(t *testing.T, names ...string) *solo {
	t.Helper()
	s := founded(t)
	s.add(names...)
	return s
}

// add lets nodes join and waits until they are Up.
func (s *solo) add(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.named(name, membership.Join{})
	}
	s.seen(names...)
	for range 2 {
		s.pass(time.Second, names...)
		s.seen(names...)
	}
	for _, name := range names {
		if got := s.status(node(name)); got != up {
			s.t.Fatalf("%s is %v, want up:\n%s", name, got, describe(s.m.Gossip()))
		}
	}
	s.forget()
}

// seen informs the machine that other nodes have seen its state.
func (s *solo) seen(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.recv(name, membership.SeenOf(s.m.Gossip().Saw(node(name))))
	}
}

func (s *solo) took(e membership.Effects) membership.Effects {
	s.out = e
	s.all.Send = append(s.all.Send, e.Send...)
	s.all.Events = append(s.all.Events, e.Events...)
	s.all.Life = append(s.all.Life, e.Life...)
	s.all.Log = append(s.all.Log, e.Log...)
	s.all.Quarantine = append(s.all.Quarantine, e.Quarantine...)
	for _, sent := range e.Send {
		if sent.Kind == membership.KindEcho && !s.mute {
			s.took(s.m.Step(s.now, membership.Received{From: s.m.Self(), To: s.m.Self(), Data: sent.Data}))
		}
	}
	s.out = e
	return e
}

func (s *solo) forget() { s.all = membership.Effects{} }

func (s *solo) do(in membership.Input) membership.Effects { return s.took(s.m.Step(s.now, in)) }

// recv handles a message that is addressed to this incarnation. named handles a message that is
// addressed only to the name of the node.
func (s *solo) recv(from string, msg membership.Message) membership.Effects {
	return s.do(membership.Received{From: node(from), To: s.m.Self(), Data: membership.AppendMessage(nil, msg)})
}

func (s *solo) named(from string, msg membership.Message) {
	s.do(membership.Received{From: node(from), To: identity.Node{Name: "m"}, Data: membership.AppendMessage(nil, msg)})
}

// pass advances the time. The given nodes reply to heartbeats.
func (s *solo) pass(d time.Duration, answering ...string) {
	end := s.now + d
	for s.m.Next() <= end {
		s.now = s.m.Next()
		e := s.took(s.m.Tick(s.now))
		for _, sent := range e.Send {
			if sent.Kind == membership.KindHeartbeat && slices.Contains(answering, sent.To.Name) {
				m, _ := membership.DecodeMessage(sent.Data)
				if beat, ok := m.(membership.Heartbeat); ok {
					s.recv(sent.To.Name, membership.HeartbeatReply(beat))
				}
			}
		}
	}
	s.now = end
}

func (s *solo) status(n identity.Node) identity.Status {
	if m := s.m.Gossip().Member(n); m != nil {
		return m.Status
	}
	return 0
}

// sent returns the receivers of the messages of a kind in the last step.
func (s *solo) sent(k membership.Kind) []string { return sentIn(s.out, k) }

func sentIn(e membership.Effects, k membership.Kind) (to []string) {
	for _, sent := range e.Send {
		if sent.Kind == k {
			to = append(to, sent.To.Name)
		}
	}
	return to
}

// last returns the last message of a kind in the last step.
func (s *solo) last(k membership.Kind) membership.Message {
	s.t.Helper()
	for _, sent := range slices.Backward(s.out.Send) {
		if sent.Kind == k {
			m, err := membership.DecodeMessage(sent.Data)
			if err != nil {
				s.t.Fatal(err)
			}
			return m
		}
	}
	s.t.Fatalf("no %v was sent: %v", k, s.out.Send)
	return nil
}

func (s *solo) dropped(d membership.Drop) uint64 { return s.m.Counters().Dropped[d] }

func (s *solo) logged(message string) int {
	n := 0
	for _, l := range s.all.Log {
		if l.Message == message {
			n++
		}
	}
	return n
}

// wants asserts the receivers of the messages of a kind in the last step.
func (s *solo) wants(subject string, k membership.Kind, to ...string) {
	s.t.Helper()
	if got := s.sent(k); !slices.Equal(got, to) {
		s.t.Errorf("%s: %v was sent to %v, want %v", subject, k, got, to)
	}
}
