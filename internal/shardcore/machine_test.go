// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/sharding/passivation"
)

func node(name string) identity.Node { return identity.Node{Name: name, UID: 7} }

func config() shardcore.Config {
	return shardcore.Config{
		Region:      region.Config{Self: node("a"), Type: "account", Instance: 1},
		Shard:       shard.Config{Passivation: passivation.Settings{Limit: 4}, Starts: 6},
		Coordinator: coordinator.Config{Shards: 10, RemovalMargin: func(int) time.Duration { return time.Minute }},
	}
}

// driver steps the machine of node a.
type driver struct {
	t   *testing.T
	m   *shardcore.Machine
	now time.Duration
}

func drive(t *testing.T, names ...string) *driver {
	t.Helper()
	m, err := shardcore.New(config())
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, m: m}
	d.setMembers(identity.Up, names...)
	return d
}

func (d *driver) step(in shardcore.Input) shardcore.Effects { return d.m.Step(d.now, in) }

func (d *driver) setMembers(self identity.Status, names ...string) shardcore.Effects {
	var in shardcore.Members
	for i, name := range names {
		at := identity.Member{Node: node(name), Status: identity.Up, UpNumber: int32(i + 1)}
		if name == "a" {
			at.Status = self
		}
		in.Members.Members = append(in.Members.Members, at)
	}
	slices.SortFunc(in.Members.Members, func(a, b identity.Member) int { return a.Node.Compare(b.Node) })
	return d.step(in)
}

func (d *driver) receive(msg coordinator.Message) shardcore.Effects {
	msg.Type, msg.Instance, msg.Term = "account", 1, max(msg.Term, 3)
	return d.step(shardcore.Received{From: node("b"), Kind: shardcore.KindCoordinator, Data: coordinator.AppendMessage(nil, msg)})
}

func (d *driver) arrive(f region.Frame, entity string) shardcore.Effects {
	data := region.AppendPacket(nil, region.Packet{Type: "account", Frame: f, Entity: entity, Body: []byte("hello")})
	return d.step(shardcore.Received{From: node("b"), Kind: shardcore.KindRegion, Data: data})
}

// lead makes node a the coordinator. Its store replies at once.
func (d *driver) lead() {
	d.t.Helper()
	out := d.step(shardcore.StartCoordinator{})
	out = d.step(shardcore.CoordinatorReply{Input: coordinator.Loaded{ID: out.Load}})
	for out.Save != nil {
		out = d.step(shardcore.CoordinatorReply{Input: coordinator.Saved{ID: out.Save.ID}})
	}
	d.now += time.Second
	out = d.m.Tick(d.now)
	for out.Save != nil {
		out = d.step(shardcore.CoordinatorReply{Input: coordinator.Saved{ID: out.Save.ID}})
	}
	if c := d.m.LocalCoordinator(); c == nil || c.Phase() != coordinator.Active || !d.m.Registered() {
		d.t.Fatalf("LocalCoordinator() = %v, Registered() = %t, want an active coordinator and true", c, d.m.Registered())
	}
}

func message() shardcore.Message { return shardcore.Message{Entity: "x", Local: "hello"} }

// The region, the coordinator and an entity of one node work together without another node.
func TestSingleNode(t *testing.T) {
	t.Parallel()
	d := drive(t, "a")
	d.lead()
	out := d.step(shardcore.Send{Shard: 3, Message: message()})
	if out.Ask == nil || len(out.Ask.Requests) != 1 || len(out.Send) != 0 {
		t.Fatalf("Send: %+v, want a request for one home from the strategy", out)
	}
	out = d.step(shardcore.CoordinatorReply{Input: coordinator.HomesChosen{ID: out.Ask.ID, Homes: []identity.Node{node("a")}}})
	if out.Save == nil || len(out.Actions) != 0 {
		t.Fatalf("after the choice of the strategy: %+v, want a Save and no action", out)
	}
	out = d.step(shardcore.CoordinatorReply{Input: coordinator.Saved{ID: out.Save.ID}})
	if len(out.Actions) != 2 || out.Actions[0].Kind != shard.Start || out.Actions[1].Message.Local != "hello" {
		t.Fatalf("after the save: %+v, want a Start and the message hello", out)
	}
	run := out.Actions[0].ShardRun
	out = d.step(shardcore.ShardInput{ShardRun: run, Input: shard.Passivate{Entity: "x", Incarnation: 1}})
	if len(out.Actions) != 1 || out.Actions[0].Kind != shard.Stop || d.m.Tracked(3) != 1 || len(d.m.Running(3)) != 1 {
		t.Errorf("Passivate: %+v, want one Stop and a tracked entity", out)
	}
	d.step(shardcore.ShardInput{ShardRun: shardcore.ShardRun{Shard: 3, Generation: run.Generation + 1}, Input: shard.Ended{Entity: "x", Incarnation: 1}})
	if d.m.Tracked(3) != 1 {
		t.Error("Ended of another generation stopped the entity")
	}
	d.step(shardcore.ShardInput{ShardRun: run, Input: shard.Ended{Entity: "x", Incarnation: 1}})
	if d.m.Tracked(3) != 0 || d.m.Waiting() != 0 {
		t.Errorf("after the end %d entities are tracked and %d messages wait, want none", d.m.Tracked(3), d.m.Waiting())
	}
	if home, _ := d.m.Home(3); home != node("a") || len(d.m.Hosted()) != 1 {
		t.Errorf("Home(3) = %v, want a", home)
	}
}

func TestForwardedMessagesAreEncoded(t *testing.T) {
	t.Parallel()
	d := drive(t, "b", "a", "c")
	d.receive(coordinator.Message{Kind: coordinator.RegisterAck})
	d.receive(coordinator.Message{Kind: coordinator.Homes, Round: 1, Homes: []coordinator.Home{{Node: node("c"), Shards: []shardcore.Shard{1}}}})
	out := d.step(shardcore.Send{Shard: 1, Message: message()})
	if len(out.Send) != 1 || out.Send[0].Data != nil || out.Send[0].Message.Local != "hello" || out.Send[0].To != node("c") {
		t.Fatalf("Send to another node: %+v, want the message hello for c, not encoded yet", out)
	}
	data := out.Send[0].Encoded([]byte("hello"))
	p, err := region.DecodePacket(data)
	if err != nil || p.Type != "account" || p.Entity != "x" || string(p.Body) != "hello" || p.Shard != 1 {
		t.Errorf("DecodePacket = %+v, %v, want hello for entity x in shard 1 of account", p, err)
	}
	d.receive(coordinator.Message{Kind: coordinator.Host, Round: 2, Shards: []shardcore.Shard{2}})
	out = d.arrive(region.Frame{Kind: region.Forward, Shard: 2}, "y")
	if len(out.Actions) != 2 || string(out.Actions[1].Message.Body) != "hello" || out.Actions[1].Entity != "y" {
		t.Errorf("a message of another node: %+v, want a Start and the message hello for y", out)
	}
	out = d.arrive(region.Frame{Kind: region.Forward, Shard: 1}, "x")
	if i := len(out.Send) - 1; i < 0 || out.Send[i].To != node("c") || out.Send[i].Data == nil {
		t.Errorf("a relayed message: %+v, want an encoded frame for c", out)
	}
}

func TestInvalidMessagesAreRefused(t *testing.T) {
	t.Parallel()
	d := drive(t, "b", "a")
	if out := d.step(shardcore.Send{Shard: 10, Message: message()}); len(out.Refused) != 1 || out.Refused[0].Reason != shardcore.NoShard {
		t.Errorf("Send beyond the last shard: %+v, want a refusal with NoShard", out)
	}
	if out := d.arrive(region.Frame{Kind: region.Forward, Shard: 10}, "x"); len(out.Refused) != 1 || out.Refused[0].Reason != shardcore.NoShard {
		t.Errorf("a message of another node: %+v, want a refusal with NoShard", out)
	}
	for _, kind := range []shardcore.Kind{shardcore.KindCoordinator, shardcore.KindRegion} {
		out := d.step(shardcore.Received{From: node("b"), Kind: kind, Data: []byte("?")})
		if len(out.Malformed) != 1 || out.Malformed[0].From != node("b") {
			t.Errorf("malformed frame of kind %d: %+v, want one malformed frame of b", kind, out)
		}
	}
	if d.m.Waiting() != 0 {
		t.Errorf("%d messages wait, want 0", d.m.Waiting())
	}
}

// A downed or removed node stops its region, its entities and its coordinator at once.
func TestDownedNodeStops(t *testing.T) {
	t.Parallel()
	for subject, end := range map[string]func(d *driver) shardcore.Effects{
		"down":    func(d *driver) shardcore.Effects { return d.setMembers(identity.Down, "a", "b") },
		"removed": func(d *driver) shardcore.Effects { return d.setMembers(identity.Up, "b") },
		"stop":    func(d *driver) shardcore.Effects { return d.step(shardcore.Stop{}) },
	} {
		d := drive(t, "a", "b")
		d.step(shardcore.StartCoordinator{})
		d.receive(coordinator.Message{Kind: coordinator.Host, Round: 1, Shards: []shardcore.Shard{2}})
		d.arrive(region.Frame{Kind: region.Forward, Shard: 2}, "x")
		out := end(d)
		if len(out.Actions) != 1 || out.Actions[0].Kind != shard.Kill || !out.CoordinatorStopped || out.Stopped {
			t.Errorf("%s: %+v, want a Kill and the end of the coordinator only", subject, out)
		}
		out = d.step(shardcore.ShardInput{ShardRun: out.Actions[0].ShardRun, Input: shard.Ended{Entity: "x", Incarnation: 1}})
		if !out.Stopped || len(out.Ended) != 1 {
			t.Errorf("%s: after the end of the entity: %+v, want Stopped and one ended shard", subject, out)
		}
		if out = d.step(shardcore.StartCoordinator{}); out.Load != 0 {
			t.Errorf("%s: StartCoordinator: %+v, want no load", subject, out)
		}
	}
}

// A fenced coordinator is replaced after a pause. The pause grows up to 25 s. Replies to the fenced
// coordinator do not reach its replacement.
func TestFencedCoordinatorIsReplaced(t *testing.T) {
	t.Parallel()
	d := drive(t, "a")
	out := d.step(shardcore.StartCoordinator{})
	for _, pause := range []time.Duration{5, 10, 20, 25, 25} {
		first := out.Load
		out = d.step(shardcore.CoordinatorReply{Input: coordinator.Loaded{ID: first}})
		if out.Save == nil {
			t.Fatalf("after the load: %+v, want a Save of the term", out)
		}
		d.step(shardcore.CoordinatorReply{Input: coordinator.SaveFailed{ID: out.Save.ID, Fenced: true}})
		if d.m.LocalCoordinator() != nil {
			t.Fatal("the fenced coordinator continues")
		}
		out = d.m.Tick(d.now + pause*time.Second - 1)
		if next := d.now + pause*time.Second; out.Load != 0 || d.m.LocalCoordinator() != nil {
			t.Fatalf("before the pause ends at %v: %+v, want no coordinator", next, out)
		}
		d.now += pause * time.Second
		if out = d.m.Tick(d.now); out.Load == 0 || out.Load == first {
			t.Fatalf("after the pause, at %v: %+v, want a load with another ID", d.now, out)
		}
		if late := d.step(shardcore.CoordinatorReply{Input: coordinator.Loaded{ID: first}}); late.Save != nil {
			t.Errorf("a reply to the previous coordinator: %+v, want no Save", late)
		}
	}
	if out = d.step(shardcore.StopCoordinator{}); !out.CoordinatorStopped || d.m.LocalCoordinator() != nil {
		t.Errorf("StopCoordinator: %+v, want CoordinatorStopped", out)
	}
}

// A coordinator that starts later gets the removals that this node has seen.
func TestRemovalsArePassedToTheCoordinator(t *testing.T) {
	t.Parallel()
	d := drive(t, "a", "c")
	d.setMembers(identity.Up, "a")
	d.now = 30 * time.Second
	out := d.step(shardcore.StartCoordinator{})
	state, err := coordinator.State{}.Apply(
		coordinator.Event{Kind: coordinator.Started, Term: 1, Node: node("c")},
		coordinator.Event{Kind: coordinator.RegionRegistered, Node: node("c")}, coordinator.Event{Kind: coordinator.HomesAllocated, Node: node("c"), Shards: []shardcore.Shard{1}})
	if err != nil {
		t.Fatal(err)
	}
	out = d.step(shardcore.CoordinatorReply{Input: coordinator.Loaded{ID: out.Load, State: state, Rev: 3}})
	out = d.step(shardcore.CoordinatorReply{Input: coordinator.Saved{ID: out.Save.ID}})
	for d.now < 59*time.Second {
		if out.Save != nil && out.Save.Events[0].Kind == coordinator.RegionTerminated {
			t.Fatalf("the region was terminated at %v, before the end of the removal margin: %+v", d.now, out.Save)
		}
		if out.Save != nil {
			out = d.step(shardcore.CoordinatorReply{Input: coordinator.Saved{ID: out.Save.ID}})
			continue
		}
		d.now += time.Second
		out = d.m.Tick(d.now)
	}
	d.now = time.Minute
	if out = d.m.Tick(d.now); out.Save == nil || out.Save.Events[0].Kind != coordinator.RegionTerminated {
		t.Errorf("after the removal margin: %+v, want a Save that terminates the region", out)
	}
}

// Shards share the limits of the node.
func TestLimitsAreShared(t *testing.T) {
	t.Parallel()
	d := drive(t, "b", "a")
	d.receive(coordinator.Message{Kind: coordinator.Host, Round: 1, Shards: []shardcore.Shard{1}})
	for _, entity := range []string{"v", "w", "x", "y"} {
		if out := d.arrive(region.Frame{Kind: region.Forward, Shard: 1}, entity); len(out.Actions) != 2 {
			t.Errorf("%s: %+v, want a Start and the message", entity, out)
		}
	}
	out := d.receive(coordinator.Message{Kind: coordinator.Host, Round: 1, Shards: []shardcore.Shard{2}})
	if len(out.Actions) != 2 || out.Actions[0].Kind != shard.Stop || out.Actions[1].Kind != shard.Stop {
		t.Errorf("after the start of a second shard: %+v, want two Stops", out)
	}
}

func TestInvalidConfigsNameTheField(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*shardcore.Config){
		"CoordinatorBackoff": func(c *shardcore.Config) { c.CoordinatorBackoff = -1 },
		"RecoverNumber":      func(c *shardcore.Config) { c.RecoverNumber = -1 },
		"RecoverInterval":    func(c *shardcore.Config) { c.RecoverInterval = -1 },
	} {
		cfg := config()
		change(&cfg)
		if _, err := shardcore.New(cfg); !errors.Is(err, shardcore.ErrInvalid) || !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("%s: %v, want ErrInvalid with the field", field, err)
		}
	}
	for subject, change := range map[string]func(*shardcore.Config){
		"region":      func(c *shardcore.Config) { c.Region.BufferSize = -1 },
		"shard":       func(c *shardcore.Config) { c.Shard.BufferSize = -1 },
		"coordinator": func(c *shardcore.Config) { c.Coordinator.Settle = -1 },
	} {
		cfg := config()
		change(&cfg)
		if _, err := shardcore.New(cfg); err == nil || !strings.Contains(err.Error(), subject+": invalid") {
			t.Errorf("%s: %v, want an error about this part", subject, err)
		}
	}
}
