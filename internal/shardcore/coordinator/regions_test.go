// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding/allocation"
)

func TestRegistration(t *testing.T) {
	t.Parallel()
	register := coordinator.Message{Kind: coordinator.Register, Instance: 1}
	for name, test := range map[string]struct {
		members, from string
		want          string
	}{
		"member":           {"a b", "b", "region registered b"},
		"not a member":     {"a", "b", ""},
		"joining member":   {"a b=joining", "b", ""},
		"weakly up member": {"a b=weakly-up", "b", ""},
		"leaving member":   {"a b=leaving", "b", "proxy registered b"},
		"exiting member":   {"a b=exiting", "b", "proxy registered b"},
		"down member":      {"a b=down", "b", ""},
		"own node":         {"a=leaving", "a", "region registered a"},
	} {
		d := active(t, coordinator.Config{}, test.members)
		d.receive(test.from, register)
		d.stored(name, test.want)
	}
	d := active(t, coordinator.Config{Role: "entities"}, "a b c=entities")
	d.receive("b", register)
	d.receive("c", register)
	d.receive("b", coordinator.Message{Kind: coordinator.RegisterProxy})
	d.stored("only nodes with the role become regions", "region registered c; proxy registered b")
	d.want("registrations are acknowledged", "c register ack, b register ack")
	d.receive("c", register)
	d.receive("b", coordinator.Message{Kind: coordinator.RegisterProxy})
	d.stored("repeated registrations are not stored", "")
	d.want("repeated registrations are acknowledged", "c register ack, b register ack")
	if d.get("z", 1); d.ask != nil {
		t.Error("a shard was allocated for a node that is not a member")
	}
}

// A region that is leaving while the coordinator moves hands off its shards to the next one.
func TestLeavingAcrossCoordinators(t *testing.T) {
	t.Parallel()
	events := append(registered("a", "b"), proxy(coordinator.ProxyRegistered, "c"), allocated("b", 1))
	for _, status := range []string{"leaving", "exiting"} {
		d := active(t, coordinator.Config{}, "a b="+status+" c="+status, events...)
		d.receive("b", coordinator.Message{Kind: coordinator.GracefulShutdown})
		round := d.round("b")
		d.want("GracefulShutdown of a node that is "+status, "a begin hand-off[1], b begin hand-off[1], c begin hand-off[1]")
		for _, n := range []string{"a", "b", "c"} {
			d.receive(n, coordinator.Message{Kind: coordinator.BeginHandOffAck, Round: round})
		}
		d.want("all regions and proxies have acknowledged", "b hand-off[1]")
	}
	d := active(t, coordinator.Config{}, "a b=down", events...)
	d.receive("b", coordinator.Message{Kind: coordinator.Register})
	d.want("down region", "")
}

// A node that is leaving before its registration gets homes and no shards, from the next
// coordinator as well.
func TestLeavingBeforeRegistration(t *testing.T) {
	t.Parallel()
	register := coordinator.Message{Kind: coordinator.Register, Instance: 1}
	d := active(t, coordinator.Config{}, "a b", append(registered("a"), allocated("a", 1))...)
	d.members("a b=exiting")
	d.receive("b", register)
	d.want("after the registration", "b register ack, b homes a[1]")
	d.get("b", 1, 2, 3)
	d.want("after the request for homes", "b homes a[1], a host[2 3], b homes a[2 3]")
	d.receive("b", coordinator.Message{Kind: coordinator.GracefulShutdown})
	d.step(coordinator.RebalanceNow{})
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	d.want("after the rebalance", "a begin hand-off[1], b begin hand-off[1]")
	d.stored("the leaving node is stored as a proxy", "proxy registered b; homes allocated a[2 3]")

	next := active(t, coordinator.Config{}, "a b=exiting", append(registered("a"), allocated("a", 1, 2, 3), proxy(coordinator.ProxyRegistered, "b"))...)
	next.receive("b", register)
	next.want("registration with the next coordinator", "b register ack, b homes a[1 2 3]")
	next.get("b", 3, 4)
	next.want("request to the next coordinator", "b homes a[3], a host[4], b homes a[4]")
	next.receive("b", coordinator.Message{Kind: coordinator.RegionStopped})
	next.stored("after RegionStopped", "homes allocated a[4]; proxy terminated b")

	alone := active(t, coordinator.Config{}, "a b=leaving")
	alone.receive("b", register)
	alone.get("b", 1)
	alone.pass(time.Minute)
	alone.want("without a region", "b register ack")
	alone.stored("without a region", "proxy registered b")
}

// A region or a proxy may register again while the termination of its previous instance is being
// stored. The termination does not remove the new registration.
func TestRegistrationDuringTermination(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b=leaving c", append(registered("a", "b"), allocated("b", 1), proxy(coordinator.ProxyRegistered, "c"))...)
	d.hold = true
	d.receive("a", coordinator.Message{Kind: coordinator.RegisterProxy}) // the registration is being stored
	for _, n := range []string{"b", "c"} {
		d.receive(n, coordinator.Message{Kind: coordinator.RegionStopped})
	}
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 2})
	d.receive("c", coordinator.Message{Kind: coordinator.RegisterProxy, Instance: 2})
	d.want("before the terminations are stored", "")
	d.hold = false
	d.saved()
	d.want("after the terminations are stored", "a register ack, b register ack, c register ack, a host[1]")
	d.stored("each termination precedes the new registration", "proxy registered a; region terminated b, proxy terminated c, proxy registered b, proxy registered c; homes allocated a[1]")
}

// A region that has stopped between two coordinators gets no messages: its shards are not announced
// before it has registered with the second coordinator.
func TestHomesOfUnregisteredRegions(t *testing.T) {
	t.Parallel()
	d := drive(t, coordinator.Config{}, append(registered("a", "b"), allocated("a", 1), allocated("b", 2))...)
	d.members("a b")
	d.loaded()
	d.pass(time.Minute)
	d.sent()
	register := coordinator.Message{Kind: coordinator.Register, Instance: 1}
	d.receive("a", register)
	d.want("a registered region gets only its own shards", "a register ack, a homes a[1], a host[1]")
	d.get("a", 1, 2)
	d.want("a requester gets only homes of registered regions", "a homes a[1]")
	d.receive("b", register)
	d.sent()
	d.get("a", 1, 2)
	d.want("after the other region has registered", "a homes a[1] b[2]")
}

// A registering region gets the homes of at most 5,000 shards, 500 in each message.
func TestHomesAreSentInBatches(t *testing.T) {
	t.Parallel()
	var many []shard
	for s := range shard(7000) {
		many = append(many, s)
	}
	d := active(t, coordinator.Config{Shards: 7000}, "a b", append(registered("a", "b"), allocated("a", many[:300]...), allocated("b", many[300:]...))...)
	d.receive("a", coordinator.Message{Kind: coordinator.Register, Instance: 1})
	sizes := ""
	for line := range strings.SplitSeq(d.sent(), ", ") {
		sizes += fmt.Sprint(len(strings.Fields(line))-2, " ")
	}
	// The first number belongs to the register ack. Each shard of a batch is one word, and the
	// first word also contains the region.
	if sizes != "1 500 500 500 500 500 500 500 500 500 500 " && sizes != "0 500 500 500 500 500 500 500 500 500 500 " {
		t.Errorf("the batches have %s shards, want ten batches of 500", sizes)
	}
}

func TestMinRegions(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{MinRegions: 3}, "a b c d")
	for _, n := range []string{"a", "b", "b"} {
		d.receive(n, coordinator.Message{Kind: coordinator.Register, Instance: 1})
		d.get(n, 1)
	}
	d.receive("d", coordinator.Message{Kind: coordinator.RegisterProxy})
	if d.ask != nil || d.state.Shards() > 0 {
		t.Error("a shard was allocated before MinRegions regions registered")
	}
	d.sent()
	d.receive("c", coordinator.Message{Kind: coordinator.Register, Instance: 1})
	d.want("after the third region has registered", "c register ack, a host[1], b homes a[1]")
	d.members("a")
	d.get("a", 2)
	d.stored("fewer regions than MinRegions later", "region registered a; region registered b; proxy registered d; region registered c; homes allocated a[1]; "+
		"region terminated b, region terminated c, proxy terminated d; homes allocated a[2]")
	// A coordinator that takes over does not wait.
	d = active(t, coordinator.Config{MinRegions: 3}, "a b", append(registered("b"), allocated("b", 1))...)
	d.get("b", 2)
	d.stored("takeover with a shard on a member", "homes allocated b[2]")
	d = active(t, coordinator.Config{MinRegions: 3}, "a b", append(registered("b", "z"), allocated("z", 1))...)
	d.get("b", 2)
	d.stored("takeover without a shard on a member", "")
}

// A region that requests the home of a shard, while this home may have stopped, gets the reply without
// another request: when the shard has a new home, or when the home has registered.
func TestHomesFollowTheirDecision(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{RemovalMargin: after(10 * second)}, "a b c", append(registered("a", "b", "c"), allocated("b", 1))...)
	d.members("a c")
	d.get("c", 1)
	d.pass(10*second - 1)
	d.want("during the removal margin", "")
	d.pass(1)
	d.receive("c", coordinator.Message{Kind: coordinator.Hosted, Round: d.round("c")})
	d.want("after the removal margin", "a host[1], c homes a[1]")

	d = drive(t, coordinator.Config{}, append(registered("a", "b"), allocated("b", 1))...)
	d.members("a b")
	d.loaded()
	d.pass(500 * time.Millisecond)
	d.receive("a", coordinator.Message{Kind: coordinator.Register})
	d.sent()
	d.get("a", 1)
	d.want("before the home has registered", "")
	d.receive("b", coordinator.Message{Kind: coordinator.Register})
	d.want("after the home has registered", "b register ack, b homes b[1], b host[1], a homes b[1]")
}

// A coordinator that takes over is active as soon as all regions and proxies have registered.
func TestTakeoverEndsWithTheLastRegistration(t *testing.T) {
	t.Parallel()
	d := drive(t, coordinator.Config{}, append(registered("a", "b", "z"), proxy(coordinator.ProxyRegistered, "p"))...)
	d.members("a b p")
	d.loaded()
	for i, n := range []string{"a", "b", "p"} {
		if d.pass(0); d.m.Phase() != coordinator.Settling {
			t.Errorf("the phase is %v after %d of 3 registrations, want settling", d.m.Phase(), i)
		}
		kind := coordinator.Register
		if n == "p" {
			kind = coordinator.RegisterProxy
		}
		d.receive(n, coordinator.Message{Kind: kind})
	}
	if d.pass(0); d.m.Phase() != coordinator.Active {
		t.Errorf("the phase is %v after all registrations, want active", d.m.Phase())
	}
}

// A region counts as terminated at the end of the removal margin, when its node is certainly down.
func TestRemovalMargin(t *testing.T) {
	t.Parallel()
	cfg := coordinator.Config{RemovalMargin: after(20 * second)}
	events := append(registered("a", "b"), allocated("b", 1))
	d := active(t, cfg, "a b", events...)
	d.members("a")
	d.get("a", 1, 2)
	d.receive("a", coordinator.Message{Kind: coordinator.Hosted, Round: d.round("a"), Shards: []shard{2}})
	d.want("request for homes during the removal margin", "a host[2]")
	d.pass(10 * second)
	d.members("a c") // another change of the members
	d.pass(9 * second)
	d.stored("before the end of the removal margin", "homes allocated a[2]")
	d.sent()
	d.pass(second)
	d.stored("at the end of the removal margin", "region terminated b; homes allocated a[1]")
	d.want("new home after the removal margin", "a host[1]")

	bySize := coordinator.Config{RemovalMargin: func(members int) time.Duration { return time.Duration(members) * 5 * second }}
	d = active(t, bySize, "a b c d", events...)
	d.members("a")
	d.pass(20*second - 1)
	d.stored("before the end of the removal margin of four members", "")
	d.pass(1)
	d.stored("at the end of the removal margin of four members", "region terminated b; homes allocated a[1]")

	d = active(t, cfg, "a b", events...)
	d.members("a")
	d.pass(5 * second)
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.stored("RegionStopped of a removed node", "")

	d = active(t, cfg, "a b", events...)
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.stored("RegionStopped of a member", "region terminated b; homes allocated a[1]")

	// The next coordinator gets the time of the removal.
	for removed, want := range map[string]string{"": "region terminated b", "b": ""} {
		d = drive(t, cfg, events...)
		d.now = 15 * second
		if removed == "" {
			d.members("a")
		} else {
			d.members("a", coordinator.Removal{Node: node(removed), Until: 30 * second})
		}
		d.loaded()
		d.changes = d.changes[1:]
		d.stored("at the start, removed: "+removed, want)
	}
	d.pass(14 * second)
	d.changes = nil
	d.members("a b")
	d = drive(t, cfg, events...)
	d.members("a b")
	d.pass(second)
	d.members("a") // the coordinator is still loading
	d.loaded()
	d.changes = d.changes[1:]
	d.pass(19 * second)
	d.stored("19 seconds after a removal during the load", "")
	d.pass(second)
	d.stored("20 seconds after a removal during the load", "region terminated b")
}

// While the whole cluster is stopping, the shards of a stopped region get a home only on request.
func TestShardsOfStoppingCluster(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", append(registered("a", "b"), allocated("b", 1, 2))...)
	d.members("a=preparing-for-shutdown b=preparing-for-shutdown")
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped})
	d.pass(time.Minute)
	d.stored("after RegionStopped", "region terminated b")
	d.get("a", 2)
	d.stored("after a request", "homes allocated a[2]")
}

// A new region on the same node has no shards of the previous region.
func TestInstances(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", append(registered("a", "b"), allocated("b", 1, 2))...)
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 2})
	d.want("first registration of a new instance", "b register ack, b homes b[1 2], b host[1 2]")
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 2})
	d.want("repeated registration", "b register ack, b homes b[1 2]")
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.receive("b", coordinator.Message{Kind: coordinator.GracefulShutdown, Instance: 1})
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 1})
	d.stored("messages of a previous instance", "")
	d.want("messages of a previous instance", "")
	d.hold = true
	d.get("a", 7)
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 2})
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 3})
	d.saved()
	d.stored("stop and immediate restart of a region", "homes allocated a[7]; region terminated b, region registered b")
	// A region may also stop before its registration is stored.
	d = active(t, coordinator.Config{}, "a b", registered("a")...)
	d.hold = true
	d.get("a", 7)
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 1})
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.saved()
	d.stored("stop before the registration is stored", "homes allocated a[7]; region registered b, region terminated b")
	d.saved()
	d.get("a", 8)
	d.stored("after the stop of the only other region", "homes allocated a[8]")
}

func TestHostIsRepeated(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a", registered("a")...)
	d.get("a", 1, 2)
	round := d.round("a")
	d.want("the region gets host", "a host[1 2]")
	d.receive("a", coordinator.Message{Kind: coordinator.Hosted, Round: round, Shards: []shard{2}})
	d.receive("a", coordinator.Message{Kind: coordinator.Hosted, Round: round - 1, Shards: []shard{1}})
	d.receive("b", coordinator.Message{Kind: coordinator.Hosted, Round: round, Shards: []shard{1}})
	d.pass(10 * second)
	again := d.round("a")
	if again <= round {
		t.Errorf("host is repeated in round %d, want a later round than %d: a region may have received homes in a later one", again, round)
	}
	d.want("host is repeated for shards that have not started", "a host[1]")
	d.receive("a", coordinator.Message{Kind: coordinator.Hosted, Round: again, Shards: []shard{1}})
	d.pass(30 * second)
	d.want("after all shards have started", "")
}

func TestStrategyFindsNoRegion(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", registered("a", "b")...)
	d.mute = true
	d.get("b", 1, 2, 3, 4)
	d.place(node("b"), identity.Node{}, node("z")) // the strategy returns no home for the last shard
	d.want("the first shard has a home", "b host[1]")
	if n := d.noted(coordinator.NotAllocated); n != 1 {
		t.Errorf("NotAllocated was noted %d times, want 1", n)
	}
	d.pass(second)
	if d.ask != nil {
		t.Error("the strategy was called again at once")
	}
	d.step(coordinator.HomesChosen{ID: 1, Homes: []identity.Node{node("a")}})
	d.pass(second)
	if d.ask == nil || len(d.ask.Requests) != 3 {
		t.Fatalf("the strategy was called again with %+v, want 3 requests", d.ask)
	}
	d.place(node("a"), node("a"), node("a"))
	d.want("after the second call of the strategy", "a host[2 3 4], b homes a[2 3 4]")
	// A region that has terminated before the answer gets no shards.
	d.get("b", 5)
	d.receive("a", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.changes = nil
	d.place(node("a"))
	d.stored("the chosen region has terminated", "")
	// A shard beyond the last one is not requested.
	d.get("b", 1000)
	d.place(node("b"), node("b"), node("b"))
	d.pass(2 * second)
	if d.ask == nil || slices.ContainsFunc(d.ask.Requests, func(r allocation.Request) bool { return r.Shard >= 1000 }) {
		t.Errorf("the strategy was called with %+v, want no shard from 1000", d.ask)
	}
}

// A new shard is remembered before it gets a home. Remembered shards get a home without a request.
func TestRemember(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{Remember: true}, "a b", append(registered("a", "b"), allocated("b", 1))...)
	if d.add == nil || !slices.Equal(d.add.Shards, []shard{1}) {
		t.Fatalf("hosted shards are added as remembered: %+v, want shard 1", d.add)
	}
	d.step(coordinator.ShardsAdded{ID: d.add.ID})
	d.add = nil
	d.get("a", 2, 3)
	d.get("b", 4)
	d.stored("before the shards are remembered", "")
	if d.add == nil || !slices.Equal(d.add.Shards, []shard{2, 3}) {
		t.Fatalf("new shards are added as remembered: %+v, want shards 2 and 3", d.add)
	}
	id := d.add.ID
	d.step(coordinator.ShardsAdded{ID: id, Failed: true})
	d.stored("after AddShards failed", "")
	d.pass(second)
	if d.add.ID == id || !slices.Equal(d.add.Shards, []shard{2, 3}) {
		t.Fatalf("the retry of AddShards is %+v, want a new ID with shards 2 and 3", d.add)
	}
	d.step(coordinator.ShardsAdded{ID: id})
	d.stored("late reply to the failed call", "")
	d.step(coordinator.ShardsAdded{ID: d.add.ID})
	d.stored("after the shards are remembered", "homes allocated a[2 3]")
	d.step(coordinator.ShardsAdded{ID: d.add.ID})
	d.stored("after the shard of a later request is remembered", "homes allocated b[4]")

	d = drive(t, coordinator.Config{Remember: true}, append(registered("a", "z"), allocated("z", 1), allocated("a", 2))...)
	d.remembered = []shard{1, 2, 3, 5000}
	d.members("a")
	d.loaded()
	d.pass(second)
	d.stored("all remembered shards get homes", "started a 1; region terminated z; homes allocated a[1 3]")
}

func after(margin time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return margin }
}
