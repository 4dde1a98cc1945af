// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	want := membership.Settings{
		SeedNodeTimeout: 5 * time.Second, RetryJoinAfter: 10 * time.Second, MinMembers: 1, WeaklyUpAfter: 7 * time.Second,
		InitialDelay: time.Second, GossipInterval: time.Second, GossipTimeToLive: 2 * time.Second, DifferentView: 0.8, ReduceDifferentView: 400,
		LeaderInterval: time.Second, PruneTombstonesAfter: 24 * time.Hour, QuarantineRemovedAfter: 5 * time.Second,
		HeartbeatInterval: time.Second, AcceptablePause: 3 * time.Second, Threshold: 8, MaxSamples: 1000, MinStdDeviation: 100 * time.Millisecond,
		MonitoredBy: 9, ExpectedResponseAfter: time.Second, ReaperInterval: time.Second, SuspendAfter: 20 * time.Second,
	}
	if got := (membership.Settings{}).WithDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("defaults: %+v, want %+v", got, want)
	}
	if got := (membership.Settings{QuarantineRemovedAfter: -time.Second}).WithDefaults().QuarantineRemovedAfter; got != 0 {
		t.Errorf("messages of a node that left are accepted for %v, want not at all", got)
	}
}

func TestInvalidConfigs(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*membership.Config){
		"Config.Rand":                  func(c *membership.Config) { c.Rand = nil },
		"without a UID":                func(c *membership.Config) { c.Self.UID = 0 },
		"Config.Self":                  func(c *membership.Config) { c.Self.Name = "a b" },
		"Config.Roles":                 func(c *membership.Config) { c.Roles = []string{"dc-x"} },
		"Config.Check":                 func(c *membership.Config) { c.Check = []membership.Setting{{Key: "a"}, {Key: "a"}} },
		"Settings.GossipInterval":      func(c *membership.Config) { c.Settings.GossipInterval = -1 },
		"Settings.MonitoredBy":         func(c *membership.Config) { c.Settings.MonitoredBy = -1 },
		"Settings.Threshold":           func(c *membership.Config) { c.Settings.Threshold = -1 },
		"Settings.DifferentView":       func(c *membership.Config) { c.Settings.DifferentView = 1.1 },
		"Settings.SuspendAfter":        func(c *membership.Config) { c.Settings.SuspendAfter = time.Second },
		`Settings.MinMembersOfRole of`: func(c *membership.Config) { c.Settings.MinMembersOfRole = map[string]int{"x": 0} },
	} {
		cfg := membership.Config{Self: thisNode, Rand: rand.New(rand.NewPCG(1, 1))}
		change(&cfg)
		if _, err := membership.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want an error about %s", err, want)
		}
	}
}

func TestWelcomeAgain(t *testing.T) {
	t.Parallel()
	s := founded(t)
	s.named("n", membership.Join{Roles: []string{"api"}, Version: version(t, "1.2")})
	s.wants("n is accepted", membership.KindWelcome, "n")
	got := s.m.Gossip().Member(node("n"))
	if got.Status != joining || !got.HasRole("api") || got.Version.String() != "1.2" || got.UpNumber != identity.NeverUp {
		t.Errorf("n is %+v, want a joining member with its role and version", got)
	}
	s.pass(2 * time.Second)
	before := s.m.Gossip().Clock()
	s.named("n", membership.Join{})
	s.wants("no second welcome while the first may be in flight", membership.KindWelcome)
	s.now += time.Second
	s.named("n", membership.Join{})
	s.wants("a second welcome after a while", membership.KindWelcome, "n")
	if s.m.Gossip().Clock().Compare(before) != membership.Same {
		t.Error("a repeated join changed the gossip")
	}
	// A removed node never becomes a member again.
	s.seen("n")
	s.do(membership.Quarantine{Node: node("n")})
	s.do(membership.DownNode{Node: node("n")})
	s.pass(2 * time.Second)
	if !s.m.Gossip().Removed(node("n")) || !s.m.Gone(node("n")) {
		t.Fatal("n is still a member")
	}
	if s.named("n", membership.Join{}); s.status(node("n")) != 0 || len(s.sent(membership.KindWelcome)) > 0 {
		t.Error("the removed n was accepted again")
	}
	if s.do(membership.Received{From: identity.Node{Name: "n", UID: 2}, To: identity.Node{Name: "m"}, Data: membership.AppendMessage(nil, membership.Join{})}); len(s.sent(membership.KindWelcome)) != 1 {
		t.Error("another incarnation was not accepted")
	}
}

func TestDeclinedJoins(t *testing.T) {
	t.Parallel()
	idle := newSolo(t)
	idle.named("n", membership.InitJoin{})
	idle.wants("a node that is not a member yet", membership.KindInitJoinNack, "n")
	if idle.named("n", membership.Join{}); len(idle.out.Send) > 0 {
		t.Error("a node that is not a member accepted a node")
	}
	joining := newSolo(t)
	joining.do(membership.JoinNode{Name: "x"})
	joining.named("n", membership.InitJoin{})
	joining.wants("a node that is joining", membership.KindInitJoinNack, "n")

	s := founded(t)
	s.named("n", membership.InitJoin{})
	s.wants("a member", membership.KindInitJoinAck, "n")
	s.do(membership.DownNode{Node: thisNode})
	s.named("n", membership.InitJoin{})
	s.wants("a member that is down", membership.KindInitJoinNack, "n")
	if s.named("n", membership.Join{}); s.status(node("n")) != 0 {
		t.Error("a member that is Down accepted a node")
	}

	s = with(t, "a") // leads
	g := apply(t, s.m.Gossip(), node("a"), membership.Change{Put: []*identity.Member{s.m.Gossip().Member(thisNode), {Node: thisNode, Status: leaving, UpNumber: 1}}})
	g = apply(t, g, node("a"), membership.Change{Put: []*identity.Member{{Node: thisNode, Status: exiting, UpNumber: 1}}})
	s.recv("a", membership.StateOf(g))
	s.named("n", membership.InitJoin{})
	s.wants("a member that exits", membership.KindInitJoinNack, "n")
	if s.named("n", membership.Join{}); s.status(node("n")) != 0 {
		t.Error("an Exiting member accepted a node")
	}
}

func TestWelcomes(t *testing.T) {
	t.Parallel()
	s := newSolo(t)
	g := cluster(t, member("a", up), member("m", joining))
	welcome := membership.Welcome{State: membership.StateOf(g)}
	if s.recv("a", welcome); s.m.Member() {
		t.Error("a welcome was accepted before any request was sent")
	}
	s.do(membership.JoinNode{Name: "a"})
	s.recv("a", membership.Echo{Nr: 1})
	if s.recv("b", welcome); s.m.Member() {
		t.Error("a welcome of a node that was not asked was accepted")
	}
	if s.recv("a", membership.Welcome{State: membership.StateOf(cluster(t, member("a", up)))}); s.m.Member() {
		t.Error("a welcome for another node was accepted")
	}
	if s.recv("a", membership.StateOf(g)); s.m.Member() {
		t.Error("gossip was accepted as a welcome")
	}
	s.recv("a", welcome)
	if !s.m.Member() || !s.m.Gossip().HasSeen(thisNode) || !s.m.Gossip().HasSeen(node("a")) {
		t.Errorf("the state after the welcome is %s, want it seen by m and a", describe(s.m.Gossip()))
	}
	s.wants("the node sends its state to the accepting member", membership.KindState, "a")
	var kinds []membership.EventKind
	for _, e := range s.out.Events {
		kinds = append(kinds, e.Kind)
	}
	if !slices.Equal(kinds[:3], []membership.EventKind{membership.MemberUp, membership.MemberJoined, membership.LeaderChanged}) {
		t.Errorf("the first events are %v, want MemberUp, MemberJoined, LeaderChanged", kinds)
	}
	clock := s.m.Gossip().Clock()
	if s.recv("a", welcome); s.m.Gossip().Clock().Compare(clock) != membership.Same || s.dropped(membership.DropUnexpected) < 2 {
		t.Error("a second welcome was accepted")
	}
}

// The asked node may first have to check whether the previous owner of the name is dead. Therefore
// the request is repeated every second. After a while joining restarts.
func TestRepeatedJoin(t *testing.T) {
	t.Parallel()
	for after, warnings := range map[time.Duration]int{0: 2, 1500 * time.Millisecond: 13, -1: 0} {
		s := newSolo(t, func(c *membership.Config) { c.Settings.RetryJoinAfter = after })
		s.do(membership.JoinNode{Name: "a"})
		s.forget()
		s.pass(20500 * time.Millisecond)
		// A restart every 1.5 s means that two requests are sent each time.
		want := map[int]int{2: 20, 13: 27, 0: 20}[warnings]
		if got := sentIn(s.all, membership.KindJoin); len(got) != want || slices.ContainsFunc(got, func(to string) bool { return to != "a" }) {
			t.Errorf("after %v: %d requests were sent, want %d to a", after, len(got), want)
		}
		if got := s.logged("join: no reply to the join request"); got != warnings {
			t.Errorf("after %v: %d warnings, want %d", after, got, warnings)
		}
	}
}

// Rejected nodes repeat their requests every second; the log has a limited rate.
func TestRejectionLogRate(t *testing.T) {
	t.Parallel()
	s := founded(t)
	s.do(membership.DownNode{Node: thisNode})
	for range 100 {
		s.named("n", membership.Join{})
	}
	if got := s.logged("join: request declined for now"); got != 1 {
		t.Errorf("logged %d lines, want 1", got)
	}
}

// A node that was accepted and removed before the welcome arrived can no longer join.
func TestRemovedBeforeJoining(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]membership.Input{"a seed": membership.JoinSeeds{Seeds: []string{"a", "m"}}, "a member": membership.JoinNode{Name: "a"}} {
		s := newSolo(t)
		s.do(ask)
		if s.recv("x", membership.Quarantined{}); len(s.out.Life) > 0 {
			t.Errorf("%s: x was not asked", name)
		}
		s.recv("a", membership.Quarantined{})
		if !slices.Equal(s.out.Life, []membership.Life{{Kind: membership.Stopped, Reason: membership.WasDowned}}) {
			t.Errorf("%s: life events %v, want Stopped with WasDowned", name, s.out.Life)
		}
	}
	// A member that has joined later has only the tombstone of the removed node.
	s := newSolo(t)
	s.do(membership.JoinNode{Name: "a"})
	g := cluster(t, member("a", up), member("m", joining), member("x", down))
	s.recv("a", membership.Welcome{State: membership.StateOf(apply(t, g, node("a"), membership.Change{Remove: []identity.Node{node("x")}}))})
	s.named("x", membership.InitJoin{})
	s.wants("InitJoin of a removed node", membership.KindQuarantined, "x")
	s.named("x", membership.Join{})
	s.wants("a Join of a removed node", membership.KindQuarantined, "x")
}

// The node that accepted this node crashed before it informed the other members, so the other
// members do not have this node in their state. This node repeats its join request until it is Up.
func TestStranger(t *testing.T) {
	t.Parallel()
	s := newSolo(t)
	s.do(membership.JoinNode{Name: "a"})
	s.recv("a", membership.Welcome{State: membership.StateOf(cluster(t, member("a", up), member("b", up), member("c", down), member("m", joining)))})
	s.recv("x", membership.Stranger{})
	s.wants("x is not a member", membership.KindJoin)
	s.recv("c", membership.Stranger{})
	s.wants("c is down", membership.KindJoin)
	s.recv("b", membership.Stranger{})
	s.wants("this node is not a member for b", membership.KindJoin, "b")
	// In this time b has accepted another incarnation.
	other := membership.NameInUse{Holder: identity.Node{Name: "m", UID: 2}}
	if s.recv("x", other); len(s.out.Life) > 0 {
		t.Error("the report of x, which is not a member, had an effect")
	}
	if s.recv("b", other); !slices.Equal(s.out.Life, []membership.Life{{Kind: membership.Stopped, Reason: membership.NameTaken, Detail: other.Holder.String()}}) {
		t.Errorf("the report of b that the name is in use: life events %v, want Stopped with NameTaken", s.out.Life)
	}
	s = with(t, "n")
	s.recv("n", membership.Stranger{})
	s.wants("an Up member sends no join request", membership.KindJoin)
	if s.recv("n", other); len(s.out.Life) > 0 {
		t.Error("the Up member lost its name")
	}
}

// The node accepts the first offer of a seed and ignores later ones.
func TestFirstOffer(t *testing.T) {
	t.Parallel()
	s := newSolo(t)
	s.do(membership.JoinSeeds{Seeds: []string{"a", "b", "m"}})
	if got := sentIn(s.all, membership.KindInitJoin); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("requests were sent to %v, want [a b]", got)
	}
	if s.recv("x", membership.InitJoinAck{Compatible: true}); len(s.sent(membership.KindJoin)) > 0 {
		t.Error("an offer of x, which is not a seed, was accepted")
	}
	s.recv("a", membership.InitJoinNack{})
	s.recv("b", membership.InitJoinAck{Compatible: true})
	s.wants("b has replied first", membership.KindJoin, "b")
	if s.recv("a", membership.InitJoinAck{Compatible: true}); len(s.out.Send) > 0 {
		t.Errorf("the later offer of a caused the messages %v", s.out.Send)
	}
	// No node sends a welcome: joining restarts after 10 s.
	s.forget()
	s.pass(9900 * time.Millisecond)
	if got := sentIn(s.all, membership.KindInitJoin); len(got) > 0 {
		t.Errorf("joining restarted too early: %v", got)
	}
	s.pass(200 * time.Millisecond)
	if got := sentIn(s.all, membership.KindInitJoin); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the repeated requests were sent to %v, want [a b]", got)
	}
}

// Seeds are asked every second, whether they decline or are silent, because a seed may not run yet.
func TestRepeatedInitJoin(t *testing.T) {
	t.Parallel()
	for _, declines := range []bool{false, true} {
		s := newSolo(t)
		s.do(membership.JoinSeeds{Seeds: []string{"a", "b", "m"}})
		for range 10 {
			if declines {
				s.recv("a", membership.InitJoinNack{})
			}
			s.forget()
			s.pass(999 * time.Millisecond)
			if got := sentIn(s.all, membership.KindInitJoin); len(got) > 0 {
				t.Errorf("seeds were asked too early: %v", got)
			}
			s.pass(time.Millisecond)
			if got := sentIn(s.all, membership.KindInitJoin); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("the repeated requests were sent to %v, want [a b]", got)
			}
		}
	}
}

func TestFirstSeedFoundsCluster(t *testing.T) {
	t.Parallel()
	s := newSolo(t)
	s.do(membership.JoinSeeds{Seeds: []string{"m", "a", "b"}})
	s.recv("a", membership.InitJoinNack{})
	s.recv("a", membership.InitJoinNack{})
	s.forget()
	s.pass(1500 * time.Millisecond)
	if got := sentIn(s.all, membership.KindInitJoin); !slices.Equal(got, []string{"b", "m"}) { // and its own name
		t.Errorf("the repeated requests were sent to %v, want [b m]", got)
	}
	if s.m.Member() {
		t.Error("the node founded a cluster before b has replied")
	}
	s.recv("b", membership.InitJoinNack{})
	if s.pass(0); !s.m.Member() || s.status(thisNode) != up {
		t.Error("the node founded no cluster although all seeds have declined")
	}
	// Another process with its name has half a second to reply.
	s = newSolo(t)
	s.do(membership.JoinSeeds{Seeds: []string{"m", "a"}})
	s.recv("a", membership.InitJoinNack{})
	if s.pass(400 * time.Millisecond); s.m.Member() {
		t.Error("the node founded a cluster too early")
	}
	s.twin(9, membership.NameInUse{Holder: twin(9)})
	if !s.nameTaken(9) {
		t.Error("the node founded a cluster although another process with its name is alive")
	}
	// Without replies the node waits for 5 s.
	s = newSolo(t)
	s.do(membership.JoinSeeds{Seeds: []string{"m", "a", "b"}})
	if s.pass(4900 * time.Millisecond); s.m.Member() {
		t.Error("the node founded a cluster too early")
	}
	if s.pass(200 * time.Millisecond); !s.m.Member() {
		t.Error("the node founded no cluster after 5 s without replies")
	}
}

func TestInvalidNames(t *testing.T) {
	t.Parallel()
	if err := membership.CheckSeeds([]string{"a", "b*"}); err == nil {
		t.Error("the machine accepted b* as a name")
	}
	s := newSolo(t)
	s.do(membership.JoinSeeds{Seeds: []string{"a", "b*"}})
	s.do(membership.JoinSeeds{})
	s.do(membership.JoinNode{Name: ""})
	if len(s.all.Send) > 0 || len(s.all.Log) != 3 {
		t.Errorf("invalid seeds caused the messages %v and the log %v", s.all.Send, s.all.Log)
	}
}

func TestUpNumbers(t *testing.T) {
	t.Parallel()
	s := founded(t)
	for _, name := range []string{"q", "o", "p"} {
		s.named(name, membership.Join{})
	}
	s.seen("o", "p", "q")
	s.pass(1100*time.Millisecond, "o", "p", "q")
	for name, want := range map[string]int32{"m": 1, "o": 2, "p": 3, "q": 4} {
		if got := s.m.Gossip().Member(node(name)).UpNumber; got != want {
			t.Errorf("%s has number %d, want %d", name, got, want)
		}
	}
	old, young := s.m.Gossip().Member(node("m")), s.m.Gossip().Member(node("o"))
	if !old.OlderThan(young) || young.OlderThan(old) {
		t.Errorf("m has the up number %d and o %d, want m to be older than o", old.UpNumber, young.UpNumber)
	}
}

// A leader acts only when all members that count have seen the last change.
func TestLeaderWaitsForConvergence(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.named("p", membership.Join{})
	s.seen("n")
	if s.pass(3*time.Second, "n", "o", "p"); s.status(node("p")) != joining {
		t.Errorf("p is %v before o has seen it, want joining", s.status(node("p")))
	}
	s.seen("n", "o")
	if s.pass(time.Second, "n", "o", "p"); s.status(node("p")) != up {
		t.Errorf("p is %v after all members have seen it, want up", s.status(node("p")))
	}
	// Only the leader acts.
	s = with(t, "a", "n")
	s.named("p", membership.Join{})
	s.seen("a", "n")
	if s.pass(20*time.Second, "a", "n", "p"); s.status(node("p")) != joining {
		t.Errorf("p is %v although this node is not the leader, want joining", s.status(node("p")))
	}
}

func TestWeaklyUp(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		after time.Duration
		want  identity.Status
		at    time.Duration
	}{"default, before": {0, joining, 6 * time.Second}, "default, after": {0, weakly, 8 * time.Second}, "off": {-1, joining, 30 * time.Second}, "3 s": {3 * time.Second, weakly, 4 * time.Second}} {
		s := founded(t, func(c *membership.Config) { c.Settings.WeaklyUpAfter = tt.after })
		s.add("n")
		s.named("p", membership.Join{})
		s.pass(tt.at, "n", "p")
		if got := s.status(node("p")); got != tt.want {
			t.Errorf("%s: p is %v, want %v", name, got, tt.want)
		}
		s.pass(80*time.Second-tt.at, "n", "p")
		if n := s.logged("leader: waiting for convergence of the members"); n != 2 {
			t.Errorf("%s: logged %d warnings in 80 attempts, want 2", name, n)
		}
	}
}

// A member that is Down is removed once it is unreachable, not before.
func TestRemoval(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.do(membership.DownNode{Node: node("o")})
	s.wants("a downed member receives the state", membership.KindState, "o")
	before := s.m.Gossip().Clock()
	if s.do(membership.DownNode{Node: node("o")}); s.m.Gossip().Clock().Compare(before) != membership.Same {
		t.Error("a second Down had an effect")
	}
	s.seen("n", "o")
	if s.pass(3*time.Second, "n", "o"); s.status(node("o")) != down {
		t.Errorf("a downed member that replies is %v, want down", s.status(node("o")))
	}
	s.forget()
	s.pass(7*time.Second, "n")
	s.seen("n")
	s.pass(time.Second, "n")
	if s.status(node("o")) != 0 || !s.m.Gossip().Removed(node("o")) {
		t.Errorf("a downed member that does not reply is %v, want removed", s.status(node("o")))
	}
	if !slices.Equal(s.all.Quarantine, []identity.Node{node("o")}) {
		t.Errorf("the quarantined nodes are %v, want o", s.all.Quarantine)
	}
}

func TestTombstonePruning(t *testing.T) {
	t.Parallel()
	s := founded(t, func(c *membership.Config) { c.Settings.PruneTombstonesAfter = 10 * time.Second })
	s.add("n")
	s.do(membership.Quarantine{Node: node("n")})
	s.do(membership.DownNode{Node: node("n")})
	s.pass(8 * time.Second)
	if len(s.m.Gossip().Tombstones()) != 1 || !s.m.Gone(node("n")) {
		t.Error("the tombstone was removed too early")
	}
	s.pass(8 * time.Second)
	if len(s.m.Gossip().Tombstones()) != 0 || s.m.Gone(node("n")) {
		t.Error("the tombstone was not removed")
	}
}

// TestTombstonesAreLimited checks that the leader forgets the oldest tombstones when all of them would make
// the state too large for a message.
func TestTombstonesAreLimited(t *testing.T) {
	t.Parallel()
	s := with(t, "n")
	const removed = 20_000
	all := make([]membership.Tombstone, removed)
	for i := range all {
		all[i] = membership.Tombstone{Node: identity.Node{Name: fmt.Sprintf("x%05d", i), UID: 1}, At: int64(i) / 100, Count: 1}
	}
	g := s.m.Gossip()
	s.recv("n", membership.StateOf(membership.Forge(g, g.Clock().Add(node("n")), g.Reachability(), all)))
	if n := len(s.m.Gossip().Tombstones()); n != removed {
		t.Fatalf("the machine has %d tombstones, want %d", n, removed)
	}
	s.seen("n")
	s.pass(time.Second, "n")
	left := s.m.Gossip().Tombstones()
	if len(left) == 0 || len(left) == removed || !s.m.Gone(all[removed-1].Node) || s.m.Gone(all[0].Node) {
		t.Errorf("%d of %d tombstones are left, want the newest ones only", len(left), removed)
	}
	if size := len(membership.StateOf(s.m.Gossip()).Content); size > membership.MaxMessage/2 {
		t.Errorf("the state takes %d bytes, want at most half of a message", size)
	}
}

// Two nodes have accepted two incarnations of a name independently. One incarnation is removed, and
// neither becomes Up before the removal.
func TestTwoIncarnationsAsMembers(t *testing.T) {
	t.Parallel()
	s := with(t, "n")
	one, two := &identity.Member{Node: identity.Node{Name: "x", UID: 5}, Status: joining, UpNumber: identity.NeverUp}, &identity.Member{Node: identity.Node{Name: "x", UID: 6}, Status: joining, UpNumber: identity.NeverUp}
	s.recv("n", membership.StateOf(apply(t, s.m.Gossip(), node("n"), membership.Change{Put: []*identity.Member{one, two}})))
	s.pass(time.Second, "n", "x")
	s.seen("n")
	s.pass(time.Second, "n", "x")
	if s.status(one.Node) == up || s.status(two.Node) != down {
		t.Errorf("the incarnations are %v and %v, want the first not up and the second down", s.status(one.Node), s.status(two.Node))
	}
	at := func(uid uint64, s identity.Status, up int32) *identity.Member {
		return &identity.Member{Node: identity.Node{Name: "x", UID: uid}, Status: s, UpNumber: up}
	}
	for name, tt := range map[string]struct{ members, want []*identity.Member }{
		"the older stays":              {[]*identity.Member{at(1, up, 9), at(2, up, 3)}, []*identity.Member{at(1, up, 9)}},
		"a Down member does not count": {[]*identity.Member{at(1, down, 1), at(2, up, 3)}, nil},
		"three":                        {[]*identity.Member{at(1, up, 3), at(2, joining, identity.NeverUp), at(3, up, 2)}, []*identity.Member{at(2, joining, identity.NeverUp), at(1, up, 3)}},
		"different names":              {[]*identity.Member{member("a", up), at(1, up, 1), member("y", up)}, nil},
		"pairs one after another":      {[]*identity.Member{member("a", up), at(1, up, 1), at(2, up, 2), {Node: identity.Node{Name: "y", UID: 1}, UpNumber: 1}, {Node: identity.Node{Name: "y", UID: 2}, UpNumber: 2}}, []*identity.Member{at(2, up, 2), {Node: identity.Node{Name: "y", UID: 2}, UpNumber: 2}}},
	} {
		got := membership.Duplicates(tt.members)
		less := func(a, b *identity.Member) int { return a.Node.Compare(b.Node) }
		slices.SortFunc(got, less)
		slices.SortFunc(tt.want, less)
		if !reflect.DeepEqual(got, tt.want) && len(got)+len(tt.want) > 0 {
			t.Errorf("%s: duplicates %v, want %v", name, got, tt.want)
		}
	}
}
