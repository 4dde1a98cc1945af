// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

func TestProxyHostsNothing(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{Proxy: true})
	if out := receive(m, coordinator.Message{Kind: coordinator.RegisterAgain, Term: 6, Instance: 1}); !hasMessage(out, coordinator.RegisterProxy) {
		t.Errorf("registration: %+v, want RegisterProxy", out)
	}
	if out := receive(m, coordinator.Message{Kind: coordinator.Host, Term: 6, Round: 1, Shards: []region.Shard{1}}); len(out.Actions) != 0 || hasMessage(out, coordinator.Hosted) {
		t.Errorf("Host: %+v, want no action and no Hosted", out)
	}
	if out := receive(m, homes(6, 2, "a")); len(out.Actions) != 0 || len(m.Hosted()) != 0 {
		t.Errorf("Homes with the proxy: %+v, want no hosted shard", out)
	}
	receive(m, homes(6, 3, "b"))
	m.Step(0, region.Send{Shard: 1, Token: 1})
	out := receive(m, coordinator.Message{Kind: coordinator.BeginHandOff, Term: 6, Round: 4, Shards: []region.Shard{1}})
	if len(out.Frames) != 1 || out.Frames[0].Frame.Kind != region.Flush || hasMessage(out, coordinator.BeginHandOffAck) {
		t.Errorf("BeginHandOff: %+v, want a Flush and no BeginHandOffAck", out)
	}
}

func TestLeaveHandsOffAndStops(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, shardMessage(coordinator.Host, 1))
	receive(m, coordinator.Message{Kind: coordinator.Homes, Term: 5, Round: 1, Homes: []coordinator.Home{{Node: node("b"), Shards: []region.Shard{2}}}})
	m.Step(0, region.Send{Shard: 2, Token: 1})
	if out := m.Step(0, region.Leave{}); !hasMessage(out, coordinator.GracefulShutdown) || out.Stopped {
		t.Fatalf("Leave: %+v, want GracefulShutdown", out)
	}
	if out := m.Tick(2 * time.Second); !hasMessage(out, coordinator.GracefulShutdown) {
		t.Errorf("after a RetryInterval: %+v, want another GracefulShutdown", out)
	}
	more := coordinator.Message{Kind: coordinator.Host, Term: 5, Round: 2, Shards: []region.Shard{3}}
	if out := receive(m, more); len(out.Actions) != 0 || hasMessage(out, coordinator.Hosted) || !hasMessage(out, coordinator.GracefulShutdown) {
		t.Errorf("Host of another shard: %+v, want GracefulShutdown and no Hosted", out)
	}
	if out := m.Step(0, region.Send{Shard: 1, Token: 2}); len(out.Actions) != 1 {
		t.Errorf("a message during the hand-off: %+v, want the message passed to the shard", out)
	}
	receive(m, shardMessage(coordinator.BeginHandOff, 3))
	receive(m, shardMessage(coordinator.HandOff, 3))
	out := m.Step(0, region.ShardDone{Shard: 1, Generation: 1})
	if !hasMessage(out, coordinator.Stopped) || out.Stopped {
		t.Fatalf("the shard has ended, and a message is in flight: %+v, want Stopped for the shard, and no stop of the region", out)
	}
	f := out.Frames[0].Frame
	out = arrive(m, "b", region.Frame{Kind: region.Flushed, Instance: 2, ID: f.ID})
	if f.Kind != region.Flush || !out.Stopped || !hasMessage(out, coordinator.RegionStopped) {
		t.Errorf("after the flush: %+v, want a stop with RegionStopped", out)
	}
	if out = m.Step(0, region.Send{Shard: 2, Token: 3}); len(out.Refused) != 1 || out.Refused[0].Reason != shard.Stopped {
		t.Errorf("Send after the end: %+v, want a refusal with Stopped", out)
	}
	if out = receive(m, shardMessage(coordinator.Host, 9)); !hasMessage(out, coordinator.RegionStopped) || len(out.Actions) != 0 {
		t.Errorf("Host after the end: %+v, want RegionStopped and no action", out)
	}
}

func TestDrainedRegionRoutes(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, shardMessage(coordinator.Host, 1))
	if out := m.Step(0, region.Leave{KeepRouting: true}); !hasMessage(out, coordinator.GracefulShutdown) || !m.Leaving() {
		t.Fatalf("Leave: %+v, want GracefulShutdown", out)
	}
	receive(m, shardMessage(coordinator.BeginHandOff, 2))
	receive(m, shardMessage(coordinator.HandOff, 2))
	if out := m.Step(0, region.ShardDone{Shard: 1, Generation: 1}); !hasMessage(out, coordinator.Stopped) || out.Stopped || len(m.Hosted()) != 0 {
		t.Fatalf("after the end of the shard: %+v, want Stopped for the shard, and no stop of the region", out)
	}
	receive(m, homes(5, 3, "c"))
	if out := m.Step(0, region.Send{Shard: 1, Token: 1}); len(kinds(out, "c")) != 1 || len(out.Refused) != 0 {
		t.Errorf("Send to another home: %+v, want one frame to c", out)
	}
	if way := m.DirectRoute(1); way.Home != node("c") || !way.Own {
		t.Errorf("DirectRoute(1) = %+v, want to c", way)
	}
	if out := receive(m, coordinator.Message{Kind: coordinator.Host, Term: 5, Round: 4, Shards: []region.Shard{3}}); len(out.Actions) != 0 || !hasMessage(out, coordinator.GracefulShutdown) {
		t.Errorf("Host of another shard: %+v, want GracefulShutdown and no action", out)
	}
	if out := m.Step(0, region.Leave{KeepRouting: true}); out.Stopped {
		t.Errorf("a second drain: %+v, want no stop", out)
	}
	out := m.Step(0, region.Leave{})
	if way := m.DirectRoute(1); way.Own || out.Stopped || len(kinds(out, "c")) != 1 {
		t.Fatalf("Leave: %+v, DirectRoute(1) = %+v, want a Flush to c and no direct route", out, way)
	}
	m.Step(0, region.Leave{KeepRouting: true}) // this Leave has no effect after one without KeepRouting
	if out = arrive(m, "c", region.Frame{Kind: region.Flushed, Instance: 2, ID: out.Frames[0].Frame.ID}); !out.Stopped {
		t.Errorf("after the flush: %+v, want a stop", out)
	}
}

// TestUndrain checks that a region registers as a new instance after Undrain and accepts shards
// again. Undrain has no effect on a region that is stopping, or that was not drained.
func TestUndrain(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, shardMessage(coordinator.Host, 1))
	if out := m.Step(0, region.Undrain{}); len(out.Messages) != 0 || m.Instance() != 2 {
		t.Errorf("Undrain without a drain: %+v, want no message and no new instance", out)
	}
	m.Step(0, region.Leave{KeepRouting: true})
	out := m.Step(0, region.Undrain{})
	if len(out.Messages) != 1 || out.Messages[0].Message.Kind != coordinator.Register || out.Messages[0].Message.Instance != 3 || m.Leaving() || m.Registered() || len(m.Hosted()) != 1 {
		t.Fatalf("Undrain: %+v, want Register as instance 3 with the hosted shard", out)
	}
	if out = receive(m, shardMessage(coordinator.HandOff, 2)); len(out.Actions) != 0 {
		t.Errorf("HandOff for the previous instance: %+v, want no action", out)
	}
	for _, msg := range []coordinator.Message{
		{Kind: coordinator.RegisterAck, Term: 5, Round: 2, Instance: 3},
		{Kind: coordinator.Host, Term: 5, Round: 3, Instance: 3, Shards: []region.Shard{1, 2}},
	} {
		out = receive(m, msg)
	}
	if len(out.Actions) != 1 || out.Actions[0].Kind != region.Start || len(m.Hosted()) != 2 || !m.Registered() {
		t.Errorf("Host after Undrain: %+v, want the start of the second shard", out)
	}
	m.Step(0, region.Leave{})
	if out = m.Step(0, region.Undrain{}); len(out.Messages) != 0 || !m.Leaving() {
		t.Errorf("Undrain after Leave: %+v, want no effect", out)
	}
}

// TestLeaveWhileTheClusterStops checks that a leaving region stops its shards without a hand-off
// when the whole cluster is about to stop.
func TestLeaveWhileTheClusterStops(t *testing.T) {
	t.Parallel()
	for _, status := range []identity.Status{identity.PreparingForShutdown, identity.ReadyForShutdown} {
		m := start(t, region.Config{})
		receive(m, shardMessage(coordinator.Host, 1))
		m.Step(0, region.Send{Shard: 1, Token: 1})
		m.Step(0, region.Send{Shard: 7, Token: 2})
		m.Step(0, region.Members{Members: []identity.Member{
			{Node: node("a"), Status: status, UpNumber: 1}, {Node: node("c"), Status: identity.Up},
		}})
		out := m.Step(0, region.Leave{})
		if len(out.Actions) != 1 || out.Actions[0].Kind != region.HandOff || hasMessage(out, coordinator.GracefulShutdown) || out.Stopped {
			t.Fatalf("%v: Leave: %+v, want a HandOff without GracefulShutdown", status, out)
		}
		if len(out.Refused) != 1 || out.Refused[0].Token != 2 || out.Refused[0].Reason != shard.Stopped {
			t.Errorf("%v: waiting messages: %+v, want message 2 refused with Stopped", status, out)
		}
		if out = m.Tick(time.Minute); hasMessage(out, coordinator.GracefulShutdown) {
			t.Errorf("%v: at the next tick: %+v, want no GracefulShutdown", status, out)
		}
		if out = m.Step(0, region.ShardDone{Shard: 1, Generation: 1}); !out.Stopped || !hasMessage(out, coordinator.RegionStopped) {
			t.Errorf("%v: after the end of the shard: %+v, want a stop with RegionStopped", status, out)
		}
	}
}

func TestWaitingMessagesDelayTheStop(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	m.Step(0, region.Send{Shard: 1, Token: 1})
	if out := m.Step(0, region.Leave{}); out.Stopped {
		t.Fatalf("Leave: %+v, want no stop", out)
	}
	out := receive(m, homes(5, 1, "b"))
	if out.Stopped || len(kinds(out, "b")) != 2 || kinds(out, "b")[1] != region.Flush {
		t.Errorf("when the home is known: %+v, want the message and a Flush to b", out)
	}
}

func TestStopByForce(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, shardMessage(coordinator.Host, 1))
	m.Step(0, region.Send{Shard: 2, Token: 1})
	arrive(m, "b", region.Frame{Kind: region.Forward, Shard: 2, Token: 2, Hop: 1})
	out := m.Step(0, region.Stop{})
	if len(out.Refused) != 2 || len(out.Actions) != 1 || out.Actions[0].Kind != region.Abort || out.Stopped || m.Buffered() != 0 {
		t.Fatalf("Stop: %+v, want 2 refused messages and an Abort of the shard", out)
	}
	if out = receive(m, shardMessage(coordinator.Host, 2)); len(out.Actions) != 0 {
		t.Errorf("Host of another shard: %+v, want no action", out)
	}
	if out = arrive(m, "b", forward(3, 0)); len(out.Refused) != 1 || out.Refused[0].Reason != shard.Stopped {
		t.Errorf("Send: %+v, want a refusal with Stopped", out)
	}
	if out = m.Step(0, region.ShardDone{Shard: 1, Generation: 1}); !out.Stopped || !hasMessage(out, coordinator.RegionStopped) {
		t.Errorf("after the end of the shard: %+v, want a stop with RegionStopped", out)
	}
}

func TestFailedShardRestartsForAMessage(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, shardMessage(coordinator.Host, 1))
	if out := m.Step(0, region.ShardDone{Shard: 1, Generation: 1}); len(out.Actions) != 0 {
		t.Errorf("a failed shard without messages: %+v, want no action", out)
	}
	if out := m.Step(0, region.ShardDone{Shard: 1, Generation: 1}); len(out.Actions) != 0 {
		t.Errorf("a second ShardDone: %+v, want no action", out)
	}
	out := m.Step(0, region.Send{Shard: 1, Token: 1})
	if len(out.Actions) != 2 || out.Actions[0].Kind != region.Start || out.Actions[1].Generation != 2 {
		t.Errorf("Send: %+v, want a start of generation 2 and the message", out)
	}
}

func TestFailedRememberedShardRestarts(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{Remember: true, RestartBackoff: time.Minute})
	receive(m, shardMessage(coordinator.Host, 1))
	m.Step(0, region.ShardDone{Shard: 1, Generation: 1})
	if out := m.Step(0, region.Send{Shard: 1, Token: 1}); len(out.Actions) != 0 || m.Buffered() != 1 {
		t.Errorf("a message during the pause: %+v, want one waiting message and no action", out)
	}
	arrive(m, "b", forward(2, 0))
	m.Tick(59 * time.Second)
	if next := m.Next(); next != time.Minute {
		t.Errorf("the next tick is at %v, want 1m", next)
	}
	if out := m.Tick(time.Minute); len(out.Actions) != 3 || out.Actions[0].Kind != region.Start {
		t.Errorf("after the pause: %+v, want a start and both messages", out)
	}
	m.Step(0, region.ShardDone{Shard: 1, Generation: 2})
	arrive(m, "b", forward(3, 0))
	out := receive(m, shardMessage(coordinator.HandOff, 2))
	if len(out.Refused) != 1 || out.Refused[0] != (shard.Refusal{Token: 3, Reason: shard.HandedOff}) || !hasMessage(out, coordinator.Stopped) {
		t.Errorf("moved during the pause: %+v, want message 3 refused with HandedOff and Stopped for the shard", out)
	}
}

func TestFullBufferRefusesTheNewest(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{BufferSize: 2})
	arrive(m, "b", forward(1, 0))
	m.Step(0, region.Send{Shard: 2, Token: 2})
	for token := uint64(3); token < 6; token++ {
		if out := arrive(m, "b", forward(token, int(token%2))); len(out.Refused) != 1 || out.Refused[0] != (shard.Refusal{Token: token, Reason: shard.BufferFull}) {
			t.Errorf("Send with a full buffer: %+v, want a refusal with BufferFull", out)
		}
	}
	if out := receive(m, shardMessage(coordinator.Host, 1)); len(out.Actions) != 2 || out.Actions[1].Token != 1 || m.Buffered() != 1 {
		t.Errorf("the first messages: %+v, want a start and the first message", out)
	}
	if out := arrive(m, "b", forward(6, 0)); len(out.Refused) != 0 || m.Buffered() != 1 {
		t.Errorf("Send after the buffer was emptied: %+v, want one waiting message", out)
	}
}
