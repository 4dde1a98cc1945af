// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
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
	d.want("all regions and proxies get begin hand-off", "a begin hand-off[1], b begin hand-off[1], c begin hand-off[1], p begin hand-off[1]")
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
	d.want("the shard that moves is not answered", "p homes b[2]")
	d.receive("c", coordinator.Message{Kind: coordinator.Register, Instance: 1})
	d.want("a registering proxy gets no home of the shard", "c register ack, c homes a[3] b[2]")
	d.ack(round, "a", "p", "p", "b")
	d.ack(round+1, "c")
	d.ack(round-1, "c")
	d.receive("z", coordinator.Message{Kind: coordinator.BeginHandOffAck, Round: round})
	d.stop("b", round, 1) // without a HandOff
	d.want("before all have acknowledged", "")
	d.ack(round, "c")
	d.want("all have", "b hand-off[1]")
	d.stop("a", round, 1)
	d.stop("b", round+1, 1)
	d.stop("b", round-1, 1)
	d.stop("b", round, 2)
	d.stored("only the home can report the stop", "")
	d.stop("b", round, 1)
	d.stop("b", round, 1)
	d.stored("it was stopped", "homes deallocated[1]")
	d.get("c", 1)
	d.want("before that is stored", "")
	d.saved()
	d.stored("another home", "homes allocated c[1]")
	d.want("before that is stored", "")
	d.saved()
	d.want("those that asked are answered", "c host[1], a homes c[1], p homes c[1]")
	if len(d.m.Moving()) > 0 || d.noted(coordinator.HandOffDone) != 1 {
		t.Errorf("%v are moving", d.m.Moving())
	}
}

func TestHandOffIsRepeated(t *testing.T) {
	t.Parallel()
	d, round := moving(t, coordinator.Config{})
	d.ack(round, "a")
	d.pass(2 * second)
	d.want("begin hand-off is repeated to those that have not acknowledged", "b begin hand-off[1], c begin hand-off[1], p begin hand-off[1]")
	d.ack(round, "b", "c", "p")
	d.want("then the home", "b hand-off[1]")
	d.pass(2 * second)
	d.want("again", "b hand-off[1]")
}

// Removed members and terminated regions count as having acknowledged.
func TestRemovedMembersCountAsAcknowledged(t *testing.T) {
	t.Parallel()
	d, round := moving(t, coordinator.Config{RemovalMargin: 20 * second})
	d.ack(round, "a", "b")
	d.members("a b p")
	d.want("p has not acknowledged", "")
	d.members("a b")
	d.want("all present members have acknowledged", "b hand-off[1]")

	d, round = moving(t, coordinator.Config{})
	d.ack(round, "a", "b", "p")
	d.receive("c", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.want("c has ended", "b hand-off[1]")

	d = active(t, coordinator.Config{RemovalMargin: 20 * second}, "a b c", append(registered("a", "b", "c"), allocated("b", 1, 2))...)
	d.members("a b")
	d.step(coordinator.RebalanceNow{})
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	d.want("removed members get no message", "a begin hand-off[1], b begin hand-off[1]")
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
		d.want("another home", "a host[2], c host[1], a homes c[1]")
		if len(d.m.Moving()) > 0 {
			t.Errorf("%v are moving", d.m.Moving())
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
	d.want("the shard stays, and the requester gets its home", "a homes b[1], b host[1]")
	d.ack(round, "c")
	d.want("late", "")
	if len(d.m.Moving()) > 0 || d.noted(coordinator.HandOffFailed) != 1 || d.notes[len(d.notes)-2].Node != node("c") {
		t.Errorf("%v are moving; %+v", d.m.Moving(), d.notes[len(d.notes)-2:])
	}

	d, round = moving(t, coordinator.Config{})
	d.ack(round, "a", "b", "c", "p")
	d.pass(59 * second)
	d.sent()
	d.pass(second)
	d.want("a home that may have stopped the shard gets host again", "b host[1]")
	if again := d.m; len(again.Moving()) > 0 {
		t.Errorf("%v are moving", again.Moving())
	}
	// Stopped for the first round does not count in the second one.
	d.receive("b", coordinator.Message{Kind: coordinator.Hosted, Round: round + 1, Shards: []shard{1}})
	d.changes = nil
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	next := d.round("a")
	d.ack(next, "a", "b", "c", "p")
	d.want("it is moved again", "a begin hand-off[1], b begin hand-off[1], c begin hand-off[1], p begin hand-off[1], b hand-off[1]")
	d.stop("b", round, 1)
	d.stored("late", "")
	d.stop("b", next, 1)
	d.stored("in time", "homes deallocated[1]; homes allocated c[1]")
}

func TestGracefulShutdown(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b c", append(registered("a", "b", "c"), allocated("b", 1, 2))...)
	shutDown := coordinator.Message{Kind: coordinator.GracefulShutdown, Instance: 1}
	d.receive("b", shutDown)
	round := d.round("b")
	d.want("all its shards move", "a begin hand-off[1 2], b begin hand-off[1 2], c begin hand-off[1 2]")
	d.receive("b", shutDown)
	d.want("once", "")
	d.ack(round, "a", "b", "c")
	d.want("they are stopped", "b hand-off[1 2]")
	d.get("c", 4, 5, 6)
	d.stored("it gets no others", "homes allocated a[4 6], homes allocated c[5]")
	d.sent()
	d.stop("b", round, 1)
	d.want("one of them", "c host[1]")
	d.stop("b", round, 2)
	d.want("the other one", "a host[2]")
	d.changes = nil
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.stored("it ends", "region terminated b")
	d.receive("b", shutDown)
	d.want("it is not known", "")
}

// A shard that has not started on its region does not move on.
func TestStartingShardIsNotRebalanced(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", registered("a", "b")...)
	d.get("a", 1)
	round := d.round("a")
	d.want("its home", "a host[1]")
	again := func() {
		d.step(coordinator.RebalanceNow{})
		d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	}
	again()
	d.want("it starts", "")
	d.receive("a", coordinator.Message{Kind: coordinator.Hosted, Round: round, Shards: []shard{1}})
	again()
	d.want("it has started", "a begin hand-off[1], b begin hand-off[1]")
}

// Shards that are being allocated to a region at its GracefulShutdown move as well.
func TestGracefulShutdownDuringAnAllocation(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", append(registered("a", "b"), allocated("a", 3, 4))...)
	d.hold = true
	d.get("a", 1)
	d.stored("it", "homes allocated b[1]")
	shutDown := coordinator.Message{Kind: coordinator.GracefulShutdown, Instance: 1}
	d.receive("b", shutDown)
	d.saved()
	d.want("the shard moves, and no region gets the old home", "a begin hand-off[1], b begin hand-off[1]")
	d.receive("b", shutDown)
	d.want("once", "")

	d = active(t, coordinator.Config{}, "a b", append(registered("a", "b"), allocated("a", 3, 4))...)
	d.mute = true
	d.get("a", 1)
	d.receive("b", shutDown)
	d.place(node("b"))
	d.stored("it gets nothing that was only chosen", "")
}

func TestRebalance(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", append(registered("a", "b"), allocated("a", 1, 2, 3, 4))...)
	d.pass(9 * second)
	if d.rebalance != nil {
		t.Error("it is asked too early")
	}
	d.pass(second)
	if d.rebalance == nil || len(d.rebalance.View.Regions) != 2 || len(d.rebalance.View.Members) != 2 {
		t.Fatalf("it is asked: %+v", d.rebalance)
	}
	ask := *d.rebalance
	d.rebalance = nil
	d.pass(30 * second)
	d.step(coordinator.RebalanceNow{})
	if d.rebalance != nil {
		t.Error("it is asked twice")
	}
	d.sent()
	d.step(coordinator.Rebalanced{ID: ask.ID + 1, Shards: []shard{2}})
	d.want("another answer", "")
	d.step(coordinator.Rebalanced{ID: ask.ID, Shards: []shard{3, 99, 1, 3, 5000}})
	d.want("those that can be moved, are", "a begin hand-off[1 3], b begin hand-off[1 3]")
	d.pass(10 * second)
	if d.rebalance == nil || !slices.Equal(d.rebalance.View.Moving, []shard{1, 3}) {
		t.Fatalf("it is asked: %+v", d.rebalance)
	}
	d.sent()
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1, 2}})
	d.want("moving shards are not moved again", "a begin hand-off[2], b begin hand-off[2]")
	d.rebalance = nil
	d.members("a b=preparing-for-shutdown")
	d.pass(30 * second)
	d.step(coordinator.RebalanceNow{})
	if d.rebalance != nil {
		t.Error("it is asked though all is about to stop")
	}
}

func TestStopShards(t *testing.T) {
	t.Parallel()
	stop := coordinator.Message{Kind: coordinator.StopShards, Shards: []shard{1, 9}}
	begin := func(cfg coordinator.Config) *driver {
		return active(t, cfg, "a b", append(registered("a", "b"), allocated("b", 1))...)
	}
	d := begin(coordinator.Config{})
	d.receive("a", stop)
	round := d.round("b")
	d.want("one is stopped, the other one does not run", "a stopped[9], a begin hand-off[1], b begin hand-off[1]")
	d.ack(round, "a", "b")
	d.sent()
	d.stop("b", round, 1)
	d.want("it has no other home", "a stopped[1]")
	d.pass(30 * second)
	d.want("nor later", "")
	d.get("b", 1)
	d.want("before it is needed", "a host[1], b homes a[1]")

	d = begin(coordinator.Config{Remember: true})
	d.sent()
	d.receive("a", stop)
	d.want("remembered shards are not stopped", "")
	d = begin(coordinator.Config{})
	d.members("a b=ready-for-shutdown")
	d.receive("a", stop)
	d.want("all is about to stop anyway", "")
}
