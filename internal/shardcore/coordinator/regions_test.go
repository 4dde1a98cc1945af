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
		"a member":              {"a b", "b", "region registered b"},
		"a stranger":            {"a", "b", ""},
		"one that joins":        {"a b=joining", "b", ""},
		"one that is weakly up": {"a b=weakly-up", "b", ""},
		"one that leaves":       {"a b=leaving", "b", "proxy registered b"},
		"one that exits":        {"a b=exiting", "b", "proxy registered b"},
		"one that is down":      {"a b=down", "b", ""},
		"the node itself":       {"a=leaving", "a", "region registered a"},
	} {
		d := active(t, coordinator.Config{}, test.members)
		d.receive(test.from, register)
		d.stored(name, test.want)
	}
	d := active(t, coordinator.Config{Role: "entities"}, "a b c=entities")
	d.receive("b", register)
	d.receive("c", register)
	d.receive("b", coordinator.Message{Kind: coordinator.RegisterProxy})
	d.stored("those with the role, and proxies", "region registered c; proxy registered b")
	d.want("they hear it", "c register ack, b register ack")
	d.receive("c", register)
	d.receive("b", coordinator.Message{Kind: coordinator.RegisterProxy})
	d.stored("nothing is stored twice", "")
	d.want("they hear it again", "c register ack, b register ack")
	if d.get("z", 1); d.ask != nil {
		t.Error("a stranger gets a shard allocated")
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
		d.want(status, "a begin hand-off[1], b begin hand-off[1], c begin hand-off[1]")
		for _, n := range []string{"a", "b", "c"} {
			d.receive(n, coordinator.Message{Kind: coordinator.BeginHandOffAck, Round: round})
		}
		d.want("all have answered", "b hand-off[1]")
	}
	d := active(t, coordinator.Config{}, "a b=down", events...)
	d.receive("b", coordinator.Message{Kind: coordinator.Register})
	d.want("a down region hands off nothing", "")
}

// A node that is leaving before its registration gets homes and no shards, from the next
// coordinator as well.
func TestLeavingBeforeRegistration(t *testing.T) {
	t.Parallel()
	register := coordinator.Message{Kind: coordinator.Register, Instance: 1}
	d := active(t, coordinator.Config{}, "a b", append(registered("a"), allocated("a", 1))...)
	d.members("a b=exiting")
	d.receive("b", register)
	d.want("it is known", "b register ack, b homes a[1]")
	d.get("b", 1, 2, 3)
	d.want("it asks", "b homes a[1], a host[2 3], b homes a[2 3]")
	d.receive("b", coordinator.Message{Kind: coordinator.GracefulShutdown})
	d.step(coordinator.RebalanceNow{})
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	d.want("a shard moves", "a begin hand-off[1], b begin hand-off[1]")
	d.stored("as a proxy", "proxy registered b; homes allocated a[2 3]")

	next := active(t, coordinator.Config{}, "a b=exiting", append(registered("a"), allocated("a", 1, 2, 3), proxy(coordinator.ProxyRegistered, "b"))...)
	next.receive("b", register)
	next.want("the next coordinator", "b register ack, b homes a[1 2 3]")
	next.get("b", 3, 4)
	next.want("it asks the next one", "b homes a[3], a host[4], b homes a[4]")
	next.receive("b", coordinator.Message{Kind: coordinator.RegionStopped})
	next.stored("it stops", "homes allocated a[4]; proxy terminated b")

	alone := active(t, coordinator.Config{}, "a b=leaving")
	alone.receive("b", register)
	alone.get("b", 1)
	alone.pass(time.Minute)
	alone.want("there is no region", "b register ack")
	alone.stored("there is no region", "proxy registered b")
}

// A region that starts again on a leaving node is not the terminating one, and neither is a proxy.
func TestRegistrationDuringTermination(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b=leaving c", append(registered("a", "b"), allocated("b", 1), proxy(coordinator.ProxyRegistered, "c"))...)
	d.hold = true
	d.receive("a", coordinator.Message{Kind: coordinator.RegisterProxy}) // is being stored
	for _, n := range []string{"b", "c"} {
		d.receive(n, coordinator.Message{Kind: coordinator.RegionStopped})
	}
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 2})
	d.receive("c", coordinator.Message{Kind: coordinator.RegisterProxy, Instance: 2})
	d.want("nothing is stored yet", "")
	d.hold = false
	d.saved()
	d.want("they are known", "a register ack, b register ack, c register ack, a host[1]")
	d.stored("each for the one before", "proxy registered a; region terminated b, proxy terminated c, proxy registered b, proxy registered c; homes allocated a[1]")
}

// A region that has stopped between two coordinators gets no messages: its shards are not announced
// before it has registered with the second one.
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
	d.want("the other one has come", "a homes a[1] b[2]")
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
	// Each batch has the shards, and the region with the first one.
	if sizes != "1 500 500 500 500 500 500 500 500 500 500 " && sizes != "0 500 500 500 500 500 500 500 500 500 500 " {
		t.Errorf("the messages have %s", sizes)
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
		t.Error("a shard is allocated too early")
	}
	d.sent()
	d.receive("c", coordinator.Message{Kind: coordinator.Register, Instance: 1})
	d.want("then those that asked are answered", "c register ack, a host[1], b homes a[1]")
	d.members("a")
	d.get("a", 2)
	d.stored("it stays so", "region registered a; region registered b; proxy registered d; region registered c; homes allocated a[1]; "+
		"region terminated b, region terminated c, proxy terminated d; homes allocated a[2]")
	// A coordinator that takes over does not wait.
	d = active(t, coordinator.Config{MinRegions: 3}, "a b", append(registered("b"), allocated("b", 1))...)
	d.get("b", 2)
	d.stored("at once", "homes allocated b[2]")
	d = active(t, coordinator.Config{MinRegions: 3}, "a b", append(registered("b", "z"), allocated("z", 1))...)
	d.get("b", 2)
	d.stored("but not if nothing is left of it", "")
}

// A region counts as terminated at the end of the removal margin, when its node is certainly down.
func TestRemovalMargin(t *testing.T) {
	t.Parallel()
	cfg := coordinator.Config{RemovalMargin: 20 * second}
	events := append(registered("a", "b"), allocated("b", 1))
	d := active(t, cfg, "a b", events...)
	d.members("a")
	d.get("a", 1, 2)
	d.receive("a", coordinator.Message{Kind: coordinator.Hosted, Round: d.round("a"), Shards: []shard{2}})
	d.want("homes of a terminating region are not sent", "a host[2]")
	d.pass(10 * second)
	d.members("a c") // another change of the members
	d.pass(9 * second)
	d.stored("before the end", "homes allocated a[2]")
	d.sent()
	d.pass(second)
	d.stored("at the end", "region terminated b; homes allocated a[1]")
	d.want("its shards have another home", "a host[1]")

	d = active(t, cfg, "a b", events...)
	d.members("a")
	d.pass(5 * second)
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.stored("a message of an unknown node is ignored", "")

	d = active(t, cfg, "a b", events...)
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.stored("a region that has stopped is terminated", "region terminated b; homes allocated a[1]")

	// The next coordinator knows the time of the removal.
	for removed, want := range map[string]string{"": "region terminated b", "b": ""} {
		d = drive(t, cfg, events...)
		d.now = 15 * second
		if removed == "" {
			d.members("a")
		} else {
			d.members("a", coordinator.Removal{Node: node(removed), At: 10 * second})
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
	d.members("a") // while it loads
	d.loaded()
	d.changes = d.changes[1:]
	d.pass(19 * second)
	d.stored("while it loads", "")
	d.pass(second)
	d.stored("20 seconds after that", "region terminated b")
}

// While the whole cluster is stopping, the shards of a stopped region get a home only on request.
func TestShardsOfStoppingCluster(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", append(registered("a", "b"), allocated("b", 1, 2))...)
	d.members("a=preparing-for-shutdown b=preparing-for-shutdown")
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped})
	d.pass(time.Minute)
	d.stored("it has stopped", "region terminated b")
	d.get("a", 2)
	d.stored("requests are answered", "homes allocated a[2]")
}

// A new region on the same node has no shards of the previous one.
func TestInstances(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", append(registered("a", "b"), allocated("b", 1, 2))...)
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 2})
	d.want("the region gets its shards", "b register ack, b homes b[1 2], b host[1 2]")
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 2})
	d.want("once", "b register ack, b homes b[1 2]")
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.receive("b", coordinator.Message{Kind: coordinator.GracefulShutdown, Instance: 1})
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 1})
	d.stored("the one before", "")
	d.want("is not heeded", "")
	d.hold = true
	d.get("a", 7)
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 2})
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 3})
	d.saved()
	d.stored("it comes again at once", "homes allocated a[7]; region terminated b, region registered b")
	// It may also stop before its registration is stored.
	d = active(t, coordinator.Config{}, "a b", registered("a")...)
	d.hold = true
	d.get("a", 7)
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 1})
	d.receive("b", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.saved()
	d.stored("it comes and goes", "homes allocated a[7]; region registered b, region terminated b")
	d.saved()
	d.get("a", 8)
	d.stored("and gets nothing", "homes allocated a[8]")
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
	d.want("host is repeated for shards that have not started", "a host[1]")
	d.receive("a", coordinator.Message{Kind: coordinator.Hosted, Round: round, Shards: []shard{1}})
	d.pass(30 * second)
	d.want("then no more", "")
}

func TestStrategyFindsNoRegion(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", registered("a", "b")...)
	d.mute = true
	d.get("b", 1, 2, 3, 4)
	d.place(node("b"), identity.Node{}, node("z")) // and no home for the last one
	d.want("one has a home", "b host[1]")
	if n := d.noted(coordinator.NotAllocated); n != 1 {
		t.Errorf("%d notes", n)
	}
	d.pass(second)
	if d.ask != nil {
		t.Error("it is asked again at once")
	}
	d.step(coordinator.HomesChosen{ID: 1, Homes: []identity.Node{node("a")}})
	d.pass(second)
	if d.ask == nil || len(d.ask.Requests) != 3 {
		t.Fatalf("it is asked for %+v", d.ask)
	}
	d.place(node("a"), node("a"), node("a"))
	d.want("then they have too", "a host[2 3 4], b homes a[2 3 4]")
	// A region that has terminated before the answer gets no shards.
	d.get("b", 5)
	d.receive("a", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	d.changes = nil
	d.place(node("a"))
	d.stored("the region is gone", "")
	// Out of range.
	d.get("b", 1000)
	d.place(node("b"), node("b"), node("b"))
	d.pass(2 * second)
	if d.ask == nil || slices.ContainsFunc(d.ask.Requests, func(r allocation.Request) bool { return r.Shard >= 1000 }) {
		t.Errorf("the strategy is asked for %+v", d.ask)
	}
}

// A new shard is remembered before it gets a home. Remembered shards get a home without a request.
func TestRemember(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{Remember: true}, "a b", append(registered("a", "b"), allocated("b", 1))...)
	if d.add == nil || !slices.Equal(d.add.Shards, []shard{1}) {
		t.Fatalf("hosted shards are not remembered: %+v", d.add)
	}
	d.step(coordinator.ShardsAdded{ID: d.add.ID})
	d.add = nil
	d.get("a", 2, 3)
	d.get("b", 4)
	d.stored("before it is remembered", "")
	if d.add == nil || !slices.Equal(d.add.Shards, []shard{2, 3}) {
		t.Fatalf("they are remembered: %+v", d.add)
	}
	id := d.add.ID
	d.step(coordinator.ShardsAdded{ID: id, Failed: true})
	d.stored("that failed", "")
	d.pass(second)
	if d.add.ID == id || !slices.Equal(d.add.Shards, []shard{2, 3}) {
		t.Fatalf("it is tried again: %+v", d.add)
	}
	d.step(coordinator.ShardsAdded{ID: id})
	d.stored("an answer to the first time", "")
	d.step(coordinator.ShardsAdded{ID: d.add.ID})
	d.stored("it is remembered", "homes allocated a[2 3]")
	d.step(coordinator.ShardsAdded{ID: d.add.ID})
	d.stored("and then the other one", "homes allocated b[4]")

	d = drive(t, coordinator.Config{Remember: true}, append(registered("a", "z"), allocated("z", 1), allocated("a", 2))...)
	d.remembered = []shard{1, 2, 3, 5000}
	d.members("a")
	d.loaded()
	d.pass(second)
	d.stored("all remembered shards get homes", "started a 1; region terminated z; homes allocated a[1 3]")
}
