// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
)

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.pass(10*time.Second, "n", "o")
	if got := len(sentIn(s.all, membership.KindHeartbeat)); got != 20 {
		t.Errorf("sent %d heartbeats in 10 s to two members, want 20", got)
	}
	s.recv("n", membership.Heartbeat{Nr: 7, At: 9 * time.Second})
	if got := s.last(membership.KindHeartbeatReply); got != (membership.HeartbeatReply{Nr: 7, At: 9 * time.Second}) {
		t.Errorf("the reply is %v, want the number and time of the heartbeat", got)
	}
	before := s.dropped(membership.DropUnexpected)
	s.recv("x", membership.HeartbeatReply{Nr: 1})
	s.recv("n", membership.HeartbeatReply{Nr: 1 << 40})
	if s.dropped(membership.DropUnexpected) != before+2 {
		t.Error("a reply of an unknown node or to an unknown heartbeat was accepted")
	}
}

// A member that stops replying is unreachable after 4.5 s and a tick. It is reachable when it
// replies again.
func TestSilentMember(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.pass(20*time.Second, "n", "o")
	s.forget()
	if s.pass(4*time.Second, "n"); len(s.m.Gossip().Unreachable(thisNode)) > 0 {
		t.Error("the member was suspected too early")
	}
	if s.pass(2*time.Second, "n"); len(s.m.Gossip().Unreachable(thisNode)) != 1 || s.m.Counters().TimedOut[membership.TimeoutHeartbeat] != 1 {
		t.Error("the member was not suspected")
	}
	if phi := s.m.Phi()[node("o")]; phi < 8 {
		t.Errorf("phi of the silent member is %v, want at least 8", phi)
	}
	s.pass(3*time.Second, "n", "o")
	if len(s.m.Gossip().Unreachable(thisNode)) > 0 {
		t.Error("the member is still unreachable although it replies again")
	}
	var kinds []membership.EventKind
	for _, e := range s.all.Events {
		if e.Member != nil {
			kinds = append(kinds, e.Kind)
		}
	}
	if !slices.Equal(kinds, []membership.EventKind{membership.MemberUnreachable, membership.MemberReachable}) {
		t.Errorf("events about the member: %v, want MemberUnreachable, MemberReachable", kinds)
	}
}

// A member that never replies is suspected too.
func TestMemberNeverReplies(t *testing.T) {
	t.Parallel()
	s := with(t, "n")
	s.named("x", membership.Join{})
	s.pass(5*time.Second, "n")
	if len(s.m.Gossip().Unreachable(thisNode)) > 0 {
		t.Error("the member was suspected too early")
	}
	s.pass(3*time.Second, "n")
	if got := s.m.Gossip().Unreachable(thisNode); len(got) != 1 || got[0].Node != node("x") || s.m.Counters().TimedOut[membership.TimeoutFirstResponse] != 1 {
		t.Errorf("the unreachable members are %v, want x after one TimeoutFirstResponse", got)
	}
}

func TestSlowHeartbeats(t *testing.T) {
	t.Parallel()
	s := with(t, "n")
	s.pass(10*time.Second, "n")
	s.pass(1200 * time.Millisecond)
	s.pass(2*time.Second, "n")
	if s.logged("failure detector: long interval between heartbeats") == 0 {
		t.Error("no warning about a gap of two thirds of the acceptable pause")
	}
	s.now += 2 * time.Second // the node was busy
	s.took(s.m.Tick(s.now))
	if s.logged("failure detector: heartbeats are sent late, the process was paused or lacks CPU time") != 1 {
		t.Errorf("no warning about a late tick: %v", s.all.Log)
	}
}

// In a larger cluster each member is monitored by some other members. A member that drops out of
// the monitored set while it does not reply stays monitored until it replies.
func TestRingChanges(t *testing.T) {
	t.Parallel()
	s := founded(t, func(c *membership.Config) { c.Settings.MonitoredBy = 2 })
	var all []string
	for i := range 6 {
		all = append(all, fmt.Sprintf("n%d", i))
	}
	s.add(all...)
	s.pass(10*time.Second, all...)
	monitored := func() []string {
		s.forget()
		s.pass(time.Second, all...)
		to := sentIn(s.all, membership.KindHeartbeat)
		slices.Sort(to)
		return slices.Compact(to)
	}
	first := monitored()
	if len(first) != 2 {
		t.Fatalf("the monitored members are %v, want 2", first)
	}
	silent := first[1]
	all = slices.DeleteFunc(all, func(name string) bool { return name == silent })
	s.pass(8*time.Second, all...)
	third := monitored()
	if len(third) != 3 || !slices.Contains(third, silent) {
		t.Fatalf("the monitored members are %v, want an additional one for the unreachable member", third)
	}
	// The new members are between m and the silent member on the ring. The silent member therefore
	// no longer belongs to the monitored set.
	s.named("m2", membership.Join{}) // all UIDs of the test are 1, so the order of the ring is that of names
	s.named("m3", membership.Join{})
	all = append(all, "m2", "m3")
	now := monitored()
	if !slices.Equal(now, []string{"m2", "m3", silent}) {
		t.Errorf("the monitored members are %v, want m2, m3 and the silent member", now)
	}
	all = append(all, silent)
	s.pass(2*time.Second, all...)
	if now = monitored(); !slices.Equal(now, []string{"m2", "m3"}) || len(s.m.Gossip().Unreachable(thisNode)) > 0 {
		t.Errorf("after the reply the monitored members are %v and the unreachable members %v, want [m2 m3] and none", now, s.m.Gossip().Unreachable(thisNode))
	}
}

// A node that does not receive its own heartbeats suspects no other node, and its detectors start
// without history when it is connected again.
func TestDisconnected(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.pass(20*time.Second, "n", "o")
	s.forget()
	s.mute = true
	s.pass(3100 * time.Millisecond)
	if !slices.Contains(s.all.Life, membership.Life{Kind: membership.Disconnected}) || s.m.View().Connected {
		t.Fatalf("life events: %v, want Disconnected", s.all.Life)
	}
	s.named("p", membership.Join{})
	s.seen("n", "o")
	s.pass(10 * time.Second)
	if len(s.m.Gossip().Unreachable(thisNode)) > 0 {
		t.Error("the disconnected node suspects others")
	}
	if s.status(node("p")) != joining {
		t.Error("the disconnected node is the leader")
	}
	// Replies to heartbeats from before the disconnection do not count.
	before := s.dropped(membership.DropUnexpected)
	if s.recv("m", membership.Echo{Nr: 1}); s.m.View().Connected || s.dropped(membership.DropUnexpected) != before+1 {
		t.Error("an earlier echo was accepted")
	}
	if s.recv("n", membership.Echo{Nr: 35}); s.m.View().Connected {
		t.Error("an echo of another node was accepted")
	}
	s.mute = false
	s.pass(time.Second)
	if !s.m.View().Connected || s.m.Suspended() {
		t.Fatal("the node is not connected after its echo")
	}
	if s.pass(4 * time.Second); len(s.m.Gossip().Unreachable(thisNode)) > 0 {
		t.Error("the silence before the reconnection was counted")
	}
	if s.pass(5*time.Second, "o"); len(s.m.Gossip().Unreachable(thisNode)) == 0 {
		t.Error("the silence after the reconnection was not counted")
	}
}

// A member that was unreachable before a disconnection stays unreachable until it replies.
func TestUnreachableBeforeDisconnection(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.pass(10*time.Second, "o")
	s.do(membership.LinkLost{})
	s.pass(2*time.Second, "o")
	for range 20 {
		s.pass(time.Second, "o")
		if len(s.m.Gossip().Unreachable(thisNode)) != 1 {
			t.Fatal("the member is reachable without a reply")
		}
	}
	if s.pass(3*time.Second, "n", "o"); len(s.m.Gossip().Unreachable(thisNode)) > 0 {
		t.Error("the member is unreachable after its reply")
	}
}

// A process that was paused may have been downed in that time. It stops hosting before it handles
// waiting inputs, and its own earlier heartbeats do not count.
func TestPaused(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.mute = true
	s.pass(time.Second, "n", "o") // the last echo is in flight
	s.now += time.Minute
	e := s.recv("m", membership.Echo{Nr: 4})
	if !slices.Equal(e.Life, []membership.Life{{Kind: membership.Disconnected}, {Kind: membership.Suspended}}) || !s.m.Suspended() {
		t.Errorf("life events: %v, want Disconnected, Suspended", e.Life)
	}
	if s.m.Counters().TimedOut[membership.TimeoutLate] != 1 {
		t.Errorf("the time-outs are %v, want one TimeoutLate", s.m.Counters().TimedOut)
	}
	s.mute = false
	s.took(s.m.Tick(s.now))
	if s.pass(time.Second, "n", "o"); !s.m.View().Connected || !s.m.Suspended() {
		t.Error("the node resumed without a confirmation of its membership")
	}
}

// config returns the default settings of a cluster.
func config() *membership.Settings {
	return &membership.Settings{
		Threshold: 8, MaxSamples: 1000, MinStdDeviation: 100 * time.Millisecond, AcceptablePause: 3 * time.Second, HeartbeatInterval: time.Second,
	}
}

// formula computes phi as the specification defines it.
func formula(gap, mean, deviation float64) float64 {
	y := (gap - mean) / deviation
	e := math.Exp(-y * (1.5976 + 0.070566*y*y))
	if gap > mean {
		return -math.Log10(e / (1 + e))
	}
	return -math.Log10(1 - 1/(1+e))
}

func near(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-9 }

func TestPhiFormula(t *testing.T) {
	t.Parallel()
	d := membership.NewDetector(config())
	now := time.Duration(0)
	d.Beat(now)
	gaps := []float64{750, 1250}
	for _, gap := range []time.Duration{time.Second, 900 * time.Millisecond, 1300 * time.Millisecond, 1001 * time.Millisecond, 2 * time.Second} {
		now += gap
		d.Beat(now)
		gaps = append(gaps, float64(gap.Milliseconds()))
	}
	var sum, squares float64
	for _, gap := range gaps {
		sum += gap
		squares += gap * gap
	}
	n := float64(len(gaps))
	mean := sum / n
	deviation := max(math.Sqrt(squares/n-mean*mean), 100)
	for after := time.Duration(0); after < 12*time.Second; after += 37 * time.Millisecond {
		want := formula(float64(after.Milliseconds()), mean+3000, deviation)
		if got := d.Phi(now + after); !near(got, want) {
			t.Fatalf("phi after %v is %v, want %v", after, got, want)
		}
	}
	if got := d.Phi(now + time.Hour); !math.IsInf(got, 1) {
		t.Errorf("phi after an hour is %v, want +Inf", got)
	}
}

func TestPhiOfSteadyHeartbeats(t *testing.T) {
	t.Parallel()
	d := membership.NewDetector(config())
	if d.Phi(time.Hour) != 0 || !d.Available(time.Hour) || d.Monitored() {
		t.Error("the detector suspects the node before the first heartbeat")
	}
	now := time.Duration(0)
	for range 2000 {
		d.Beat(now)
		now += time.Second
	}
	last := now - time.Second
	if !d.Available(last+4500*time.Millisecond) || d.Available(last+4530*time.Millisecond) {
		t.Errorf("phi does not reach the threshold between 4.50 s and 4.53 s: it is %v and %v", d.Phi(last+4500*time.Millisecond), d.Phi(last+4530*time.Millisecond))
	}
}

func TestSuspectedGapIsNotSampled(t *testing.T) {
	t.Parallel()
	steady, paused := membership.NewDetector(config()), membership.NewDetector(config())
	now := time.Duration(0)
	for range 10 {
		steady.Beat(now)
		paused.Beat(now)
		now += time.Second
	}
	late := now + time.Minute
	paused.Beat(late)
	if got, want := paused.Phi(late+4*time.Second), steady.Phi(now-time.Second+4*time.Second); !near(got, want) {
		t.Errorf("after a pause phi is %v, want %v as without the pause", got, want)
	}
}

func TestOldGaps(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.MaxSamples = 3
	d := membership.NewDetector(cfg)
	now := time.Duration(0)
	for _, gap := range []time.Duration{0, 1000, 1100, 1200, 1300} {
		now += gap * time.Millisecond
		d.Beat(now)
	}
	mean := (1100 + 1200 + 1300.0) / 3
	deviation := max(math.Sqrt((1100*1100+1200*1200+1300*1300.0)/3-mean*mean), 100)
	if got, want := d.Phi(now+4400*time.Millisecond), formula(4400, mean+3000, deviation); !near(got, want) {
		t.Errorf("phi is %v, want %v", got, want)
	}
}
