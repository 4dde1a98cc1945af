// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// moving drives a coordinator until shard 1 is being moved from b. None of a, b, c and the proxy p
// has acknowledged.
func moving(t *testing.T, cfg coordinator.Config) (d *driver, round uint64) {
	t.Helper()
	d = active(t, cfg, "a b c p", append(registered("a", "b", "c"), allocated("b", 1, 2), allocated("a", 3), proxy(coordinator.ProxyRegistered, "p"))...)
	d.step(coordinator.RebalanceNow{})
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	round = d.round("b")
	d.want("start of the hand-off", "a begin hand-off[1], b begin hand-off[1], c begin hand-off[1], p begin hand-off[1]")
	return d, round
}

func (d *driver) ack(round uint64, from ...string) {
	for _, n := range from {
		d.receive(n, coordinator.Message{Kind: coordinator.BeginHandOffAck, Round: round})
	}
}

func (d *driver) stop(from string, round uint64, shards ...shard) {
	d.receive(from, coordinator.Message{Kind: coordinator.Stopped, Round: round, Shards: shards})
}

func TestHandOff(t *testing.T) {
	t.Parallel()
	d, round := moving(t, coordinator.Config{})
	d.hold = true
	d.get("a", 1)
	d.get("p", 1, 2)
	d.want("request for homes during the hand-off", "p homes b[2]")
	d.receive("c", coordinator.Message{Kind: coordinator.Register, Instance: 1})
	d.want("registration during the hand-off", "c register ack, c homes a[3] b[2]")
	d.ack(round, "a", "p", "p", "b")
	d.ack(round+1, "c")
	d.ack(round-1, "c")
	d.receive("z", coordinator.Message{Kind: coordinator.BeginHandOffAck, Round: round})
	d.stop("b", round, 1) // before a HandOff was sent
	d.want("before all have acknowledged", "")
	d.ack(round, "c")
	d.want("after all have acknowledged", "b hand-off[1]")
	d.stop("a", round, 1)
	d.stop("b", round+1, 1)
	d.stop("b", round-1, 1)
	d.stop("b", round, 2)
	d.stored("Stopped of another region, round or shard", "")
	d.stop("b", round, 1)
	d.stop("b", round, 1)
	d.stored("Stopped of the home", "homes deallocated[1]")
	d.get("c", 1)
	d.want("before the deallocation is stored", "")
	d.saved()
	d.stored("after the deallocation is stored", "homes allocated c[1]")
	d.want("before the allocation is stored", "")
	d.saved()
	d.want("after the allocation is stored", "c host[1], a homes c[1], p homes c[1]")
	if len(d.m.Moving()) > 0 || d.noted(coordinator.HandOffDone) != 1 {
		t.Errorf("Moving() = %v after the hand-off, want none", d.m.Moving())
	}
}

func TestHandOffIsRepeated(t *testing.T) {
	t.Parallel()
	d, round := moving(t, coordinator.Config{})
	d.ack(round, "a")
	d.pass(2 * second)
	d.want("repeated begin hand-off", "b begin hand-off[1], c begin hand-off[1], p begin hand-off[1]")
	d.ack(round, "b", "c", "p")
	d.want("after all have acknowledged", "b hand-off[1]")
	d.pass(2 * second)
	d.want("repeated hand-off", "b hand-off[1]")
}

// Removed members and terminated regions count as having acknowledged.
func TestRemovedMembersCountAsAcknowledged(t *testing.T) {
	t.Parallel()
	d, round := moving(t, coordinator.Config{RemovalMargin: after(20 * second)})
	d.ack(round, "a", "b")
	d.members("a b p")
	d.want("c was removed", "")
	d.members("a b")
	d.want("c and p were removed", "b hand-off[1]")

	d, round = moving(t, coordinator.Config{})
	d.ack(round, "a", "b", "p")
	d.receive("c", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.want("c has stopped", "b hand-off[1]")

	d = active(t, coordinator.Config{RemovalMargin: after(20 * second)}, "a b c", append(registered("a", "b", "c"), allocated("b", 1, 2))...)
	d.members("a b")
	d.step(coordinator.RebalanceNow{})
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	d.want("hand-off with a removed member", "a begin hand-off[1], b begin hand-off[1]")
}

// The termination of the home ends the move.
func TestHomeTerminatesDuringHandOff(t *testing.T) {
	t.Parallel()
	for _, acked := range [][]string{{"c"}, {"a", "b", "c", "p"}} {
		d, round := moving(t, coordinator.Config{})
		d.get("a", 1)
		d.ack(round, acked...)
		d.sent()
		d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
		d.want("after the home has stopped", "a host[2], c host[1], a homes c[1]")
		if len(d.m.Moving()) > 0 {
			t.Errorf("Moving() = %v after the home has stopped, want none", d.m.Moving())
		}
	}
}

func TestHandOffTimesOut(t *testing.T) {
	t.Parallel()
	d, round := moving(t, coordinator.Config{})
	d.get("a", 1)
	d.ack(round, "a", "b", "p")
	d.pass(59 * second)
	d.sent()
	d.changes = nil
	d.pass(second)
	d.want("after the timeout without an acknowledgement", "a homes b[1], b host[1]")
	d.ack(round, "c")
	d.want("late acknowledgement", "")
	if len(d.m.Moving()) > 0 || d.noted(coordinator.HandOffFailed) != 1 || d.notes[len(d.notes)-2].Node != node("c") {
		t.Errorf("after the timeout: Moving() = %v, notes %+v, want no moving shard and one HandOffFailed with c", d.m.Moving(), d.notes[len(d.notes)-2:])
	}

	d, round = moving(t, coordinator.Config{})
	d.ack(round, "a", "b", "c", "p")
	d.pass(59 * second)
	d.sent()
	d.pass(second)
	d.want("after the timeout without Stopped", "b host[1]")
	if again := d.m; len(again.Moving()) > 0 {
		t.Errorf("Moving() = %v after the timeout, want none", again.Moving())
	}
	// A Stopped of the first round has no effect in the second round.
	d.receive("b", coordinator.Message{Kind: coordinator.Hosted, Round: round + 1, Shards: []shard{1}})
	d.changes = nil
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	next := d.round("a")
	d.ack(next, "a", "b", "c", "p")
	d.want("second round", "a begin hand-off[1], b begin hand-off[1], c begin hand-off[1], p begin hand-off[1], b hand-off[1]")
	d.stop("b", round, 1)
	d.stored("Stopped of the first round", "")
	d.stop("b", next, 1)
	d.stored("Stopped of the second round", "homes deallocated[1]; homes allocated c[1]")
}

func TestGracefulShutdown(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b c", append(registered("a", "b", "c"), allocated("b", 1, 2))...)
	shutDown := coordinator.Message{Kind: coordinator.GracefulShutdown, Instance: 1}
	d.receive("b", shutDown)
	round := d.round("b")
	d.want("first GracefulShutdown", "a begin hand-off[1 2], b begin hand-off[1 2], c begin hand-off[1 2]")
	d.receive("b", shutDown)
	d.want("repeated GracefulShutdown", "")
	d.ack(round, "a", "b", "c")
	d.want("after all have acknowledged", "b hand-off[1 2]")
	d.get("c", 4, 5, 6)
	d.stored("allocation while b is leaving", "homes allocated a[4 6], homes allocated c[5]")
	d.sent()
	d.stop("b", round, 1)
	d.want("shard 1 has stopped", "c host[1]")
	d.stop("b", round, 2)
	d.want("shard 2 has stopped", "a host[2]")
	d.changes = nil
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.stored("RegionStopped", "region terminated b")
	d.receive("b", shutDown)
	d.want("GracefulShutdown of a terminated region", "")
}

// A shard that has not started on its region does not move on.
func TestStartingShardIsNotRebalanced(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", registered("a", "b")...)
	d.get("a", 1)
	round := d.round("a")
	d.want("first home", "a host[1]")
	again := func() {
		d.step(coordinator.RebalanceNow{})
		d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	}
	again()
	d.want("rebalance before the shard has started", "")
	d.receive("a", coordinator.Message{Kind: coordinator.Hosted, Round: round, Shards: []shard{1}})
	again()
	d.want("rebalance after the shard has started", "a begin hand-off[1], b begin hand-off[1]")
}

// Shards that are being allocated to a region at its GracefulShutdown move as well.
func TestGracefulShutdownDuringAnAllocation(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", append(registered("a", "b"), allocated("a", 3, 4))...)
	d.hold = true
	d.get("a", 1)
	d.stored("allocation", "homes allocated b[1]")
	shutDown := coordinator.Message{Kind: coordinator.GracefulShutdown, Instance: 1}
	d.receive("b", shutDown)
	d.saved()
	d.want("GracefulShutdown while the allocation is being stored", "a begin hand-off[1], b begin hand-off[1]")
	d.receive("b", shutDown)
	d.want("repeated GracefulShutdown", "")

	d = active(t, coordinator.Config{}, "a b", append(registered("a", "b"), allocated("a", 3, 4))...)
	d.mute = true
	d.get("a", 1)
	d.receive("b", shutDown)
	d.place(node("b"))
	d.stored("the strategy returns a leaving region", "")
}

func TestRebalance(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", append(registered("a", "b"), allocated("a", 1, 2, 3, 4))...)
	d.pass(9 * second)
	if d.rebalance != nil {
		t.Error("the strategy was called before RebalanceInterval")
	}
	d.pass(second)
	if d.rebalance == nil || len(d.rebalance.View.Regions) != 2 || len(d.rebalance.View.Members) != 2 {
		t.Fatalf("call of the strategy: %+v, want 2 regions and 2 members", d.rebalance)
	}
	ask := *d.rebalance
	d.rebalance = nil
	d.pass(30 * second)
	d.step(coordinator.RebalanceNow{})
	if d.rebalance != nil {
		t.Error("the strategy was called again before its reply")
	}
	d.sent()
	d.step(coordinator.Rebalanced{ID: ask.ID + 1, Shards: []shard{2}})
	d.want("reply with another ID", "")
	d.step(coordinator.Rebalanced{ID: ask.ID, Shards: []shard{3, 99, 1, 3, 5000}})
	d.want("reply with unknown and repeated shards", "a begin hand-off[1 3], b begin hand-off[1 3]")
	d.pass(10 * second)
	if d.rebalance == nil || !slices.Equal(d.rebalance.View.Moving, []shard{1, 3}) {
		t.Fatalf("second call of the strategy: %+v, want moving shards 1 and 3", d.rebalance)
	}
	d.sent()
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1, 2}})
	d.want("reply with a moving shard", "a begin hand-off[2], b begin hand-off[2]")
	d.rebalance = nil
	d.members("a b=preparing-for-shutdown")
	d.pass(30 * second)
	d.step(coordinator.RebalanceNow{})
	if d.rebalance != nil {
		t.Error("the strategy was called although the cluster is stopping")
	}
}

// At once, the home stops the shard before the other nodes have acknowledged.
func TestHandOffAtOnce(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{HandOffAtOnce: true}, "a b c", append(registered("a", "b", "c"), allocated("b", 1))...)
	d.step(coordinator.RebalanceNow{})
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	round := d.round("b")
	d.want("start of the hand-off", "a begin hand-off[1], b begin hand-off[1], c begin hand-off[1], b hand-off[1]")
	d.ack(round, "a", "b", "c")
	d.want("after the acknowledgements", "")
	d.get("c", 1)
	d.want("request for the home during the hand-off", "")
	d.pass(2 * second)
	d.want("the repetition", "b hand-off[1]")
	d.stop("b", round, 1)
	d.stored("Stopped of the home", "homes deallocated[1]; homes allocated a[1]")
}

// wantMoves compares Moves, each as the shard, the step, the homes and the seconds since its begin.
func (d *driver) wantMoves(name string, want ...string) {
	d.t.Helper()
	var got []string
	for _, x := range d.m.Moves() {
		got = append(got, fmt.Sprintf("%d %v %s>%s %v", x.Shard, x.Step, x.From.Name, x.To.Name, (d.now-x.Since).Round(second)))
	}
	if !slices.Equal(got, want) {
		d.t.Errorf("%s: Moves() = %q, want %q", name, got, want)
	}
}

// A move lasts from its begin until the shard has started on its next home.
func TestMoves(t *testing.T) {
	t.Parallel()
	d, round := moving(t, coordinator.Config{})
	d.wantMoves("begin", "1 stopping b> 0s")
	d.pass(second)
	d.ack(round, "a", "b", "c", "p")
	d.mute = true
	d.stop("b", round, 1)
	d.pass(second)
	d.wantMoves("after the shard has stopped", "1 allocating b> 2s")
	d.place(node("c"))
	d.pass(second)
	d.wantMoves("after the strategy has chosen", "1 starting b>c 3s")
	d.started(1, "c")
	d.wantMoves("after the shard has started")

	d, round = moving(t, coordinator.Config{})
	d.ack(round, "a", "b")
	d.pass(60 * second)
	d.wantMoves("after the hand-off has timed out")
}

func TestMovesOfPinnedShards(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b c", three()...)
	d.pin(1, "b")
	d.pass(second)
	d.pin(3, "c")
	d.wantMoves("two pins", "1 stopping a>b 1s", "3 stopping b>c 0s")
	d.mute = true
	d.handOff(3, "b", "a", "c")
	d.wantMoves("the newer shard has stopped", "1 stopping a>b 1s", "3 starting b>c 0s")
}

// Shards of a terminated home move. The shard of a home that terminates before it has started it
// leaves that home.
func TestMovesOfTerminatedHome(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b c", append(registered("a", "b", "c"), allocated("b", 1), allocated("a", 3))...)
	d.mute = true
	d.members("a c")
	d.wantMoves("b was removed", "1 allocating b> 0s")
	d.place(node("c"))
	d.wantMoves("the strategy has chosen c", "1 starting b>c 0s")
	d.pass(second)
	d.members("a")
	d.wantMoves("c was removed", "1 allocating c> 0s")
	d.place(node("a"))
	d.started(1, "a")
	d.wantMoves("the shard has started on a")
}

// A shard that starts for the first time does not move, and neither do the shards that a new
// coordinator starts.
func TestStartIsNoMove(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", append(registered("a", "b"), allocated("a", 1))...)
	d.get("a", 5)
	d.wantMoves("first home")
	d = drive(t, coordinator.Config{}, append(registered("a", "b"), allocated("a", 1))...)
	d.members("a b")
	d.loaded()
	d.pass(second)
	d.wantMoves("new coordinator")
}
