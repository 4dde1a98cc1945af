// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// pin pins a shard to a node, or releases it if the name is "".
func (d *driver) pin(s shard, name string) {
	d.t.Helper()
	if err := d.m.CheckPin(s, name); err != nil {
		d.t.Fatal(err)
	}
	d.step(coordinator.SetPin{Pin: coordinator.Pin{Shard: s, Node: name}})
}

// handOff answers the messages of the running hand-off of a shard.
func (d *driver) handOff(s shard, home string, others ...string) {
	d.t.Helper()
	round := d.round(home)
	for _, n := range append(others, home) {
		d.receive(n, coordinator.Message{Kind: coordinator.BeginHandOffAck, Round: round})
	}
	d.receive(home, coordinator.Message{Kind: coordinator.Stopped, Round: round, Shards: []shard{s}})
}

// started reports that a region has started a shard.
func (d *driver) started(s shard, home string) {
	d.t.Helper()
	d.receive(home, coordinator.Message{Kind: coordinator.Hosted, Round: d.round(home), Shards: []shard{s}})
	d.sent()
}

func (d *driver) home(s shard) string {
	n, _ := d.state.Home(s)
	return n.Name
}

// three are the regions a, b and c, of which c is the emptiest one.
func three() []event {
	return append(registered("a", "b", "c"), allocated("a", 1, 2), allocated("b", 3, 4))
}

// A pinned shard moves at once. It stays until it is released, although the strategy moves it.
func TestPinMovesAndKeepsShard(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b c", three()...)
	d.pin(1, "b")
	d.stored("pin", "shards pinned b[1]")
	d.handOff(1, "a", "b", "c")
	host := d.round("b")
	d.want("pin", "a begin hand-off[1], b begin hand-off[1], c begin hand-off[1], a hand-off[1], b host[1]")
	if d.stored("move", "homes deallocated[1]; homes allocated b[1]"); d.home(1) != "b" {
		t.Fatalf("shard 1 is on %q, want b, although c is the emptiest node", d.home(1))
	}
	d.receive("b", coordinator.Message{Kind: coordinator.Hosted, Round: host, Shards: []shard{1}})
	d.step(coordinator.RebalanceNow{})
	if !slices.Equal(d.rebalance.View.Pinned, []shard{1}) {
		t.Errorf("the strategy sees the pins of %v, want 1", d.rebalance.View.Pinned)
	}
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	d.want("the strategy moves a pinned shard", "")
	d.pin(1, "")
	d.stored("release", "shards released[1]")
	d.step(coordinator.RebalanceNow{})
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	d.want("the strategy moves a released shard", "a begin hand-off[1], b begin hand-off[1], c begin hand-off[1]")
}

// A shard without a home goes to its node when it is needed.
func TestPinDecidesFirstHome(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b c", three()...)
	d.pin(9, "a")
	d.get("b", 9, 8)
	if d.home(9) != "a" || d.home(8) != "c" {
		t.Errorf("shards 9 and 8 are on %q and %q, want the pinned one on a and the other one on c", d.home(9), d.home(8))
	}
}

// While the node of a pin is gone or leaving, the strategy chooses the home. The shard returns to
// the next incarnation of the node.
func TestPinIsDormantWithoutItsNode(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b c", append(three(), pinned("b", 3))...)
	d.members("a c")
	if d.home(3) != "c" {
		t.Fatalf("after the removal of b, shard 3 is on %q, want c", d.home(3))
	}
	d.started(3, "c")
	d.step(coordinator.RebalanceNow{})
	if d.rebalance.View.Pinned != nil {
		t.Errorf("the strategy sees the pins of %v, want none without b", d.rebalance.View.Pinned)
	}
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID})
	d.members("a b c")
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 2})
	d.sent()
	d.pass(10 * time.Second)
	if moving := d.m.Moving(); !slices.Equal(moving, []shard{3}) {
		t.Errorf("Moving() = %v, want shard 3 to return to b", moving)
	}
}

// A shard that is pinned to a leaving node moves away and does not return.
func TestPinDoesNotHoldLeavingNode(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b c", append(three(), pinned("b", 3))...)
	d.members("a b=leaving c")
	d.receive("b", coordinator.Message{Kind: coordinator.GracefulShutdown})
	round := d.round("b")
	for _, n := range []string{"a", "b", "c"} {
		d.receive(n, coordinator.Message{Kind: coordinator.BeginHandOffAck, Round: round})
	}
	d.receive("b", coordinator.Message{Kind: coordinator.Stopped, Round: round, Shards: []shard{3, 4}})
	if d.home(3) != "c" || d.home(4) == "b" {
		t.Fatalf("shards 3 and 4 are on %q and %q, want them to leave b", d.home(3), d.home(4))
	}
	if name, ok := d.state.Pin(3); !ok || name != "b" {
		t.Errorf("shard 3 is pinned to %q, want b: the pin is dormant", name)
	}
	d.started(3, "c")
	d.pass(30 * time.Second)
	if moving := d.m.Moving(); len(moving) > 0 {
		t.Errorf("Moving() = %v, want none while b leaves", moving)
	}
}

// The next coordinator continues the pins that are stored.
func TestPinsAreDurable(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b c", append(three(), pinned("b", 1))...)
	d.pass(10 * time.Second)
	if !slices.Equal(d.m.Moving(), []shard{1}) {
		t.Errorf("Moving() = %v, want the pinned shard 1", d.m.Moving())
	}
}

func TestCheckPin(t *testing.T) {
	t.Parallel()
	events := append(three(), registered("d", "e")...)
	events = append(events, event{Kind: coordinator.ProxyRegistered, Node: node("p")}, pinned("b", 3))
	d := active(t, coordinator.Config{}, "a b c=down d=leaving e p x", events...)
	d.receive("e", coordinator.Message{Kind: coordinator.GracefulShutdown})
	for name, test := range map[string]struct {
		shard shard
		node  string
		want  string // "" for no error
	}{
		"node with a region":     {1, "b", ""},
		"pinned shard":           {3, "a", ""},
		"release":                {3, "", ""},
		"shard without a pin":    {1, "", "shard 1 of type \"account\" is not pinned"},
		"shard above the number": {1000, "b", "has the shards 0 to 999, not 1000"},
		"unknown node":           {1, "y", "node \"y\": it is not a member of the cluster"},
		"proxy":                  {1, "p", "it has only a proxy of type \"account\""},
		"node without a region":  {1, "x", "it does not host type \"account\""},
		"downed node":            {1, "c", "it is down, not up"},
		"leaving node":           {1, "d", "it is leaving, not up"},
		"drained node":           {1, "e", "its region is leaving or drained"},
	} {
		err := d.m.CheckPin(test.shard, test.node)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v, want no error", name, err)
		case test.want != "" && (!errors.Is(err, coordinator.ErrCannotPin) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want ErrCannotPin and %q", name, err, test.want)
		}
	}
}

func TestPinsAreLimited(t *testing.T) {
	t.Parallel()
	all := make([]shard, coordinator.MaxPins)
	for i := range all {
		all[i] = shard(i + 10)
	}
	d := active(t, coordinator.Config{Shards: 2000}, "a b c", append(three(), pinned("b", all...))...)
	if err := d.m.CheckPin(1, "b"); !errors.Is(err, coordinator.ErrCannotPin) || !strings.Contains(err.Error(), fmt.Sprintf("has %d pins", coordinator.MaxPins)) {
		t.Errorf("a pin beyond the maximum: %v, want ErrCannotPin", err)
	}
	d.step(coordinator.SetPin{Pin: coordinator.Pin{Shard: 1, Node: "b"}})
	if n := len(d.state.Pins()); n != coordinator.MaxPins {
		t.Errorf("%d pins are stored, want %d", n, coordinator.MaxPins)
	}
	if err := d.m.CheckPin(10, "c"); err != nil {
		t.Errorf("another node for a pinned shard: %v, want no error", err)
	}
}
