// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region_test

import (
	"testing"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
)

func TestHomeHoldsItsOwnMessagesDuringAMove(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, shardMessage(coordinator.Host, 1))
	if out := receive(m, shardMessage(coordinator.BeginHandOff, 2)); !hasMessage(out, coordinator.BeginHandOffAck) {
		t.Errorf("BeginHandOff: %+v, want BeginHandOffAck", out)
	}
	if out := m.Step(0, region.Send{Shard: 1, Token: 1}); len(out.Actions) != 0 {
		t.Errorf("a message of this node: %+v, want no action", out)
	}
	frame := region.Frame{Kind: region.Forward, Shard: 1, Token: 2}
	if out := m.Step(0, region.FrameReceived{From: node("b"), Frame: frame}); len(out.Actions) != 1 || out.Actions[0].Token != 2 {
		t.Errorf("a message of another node: %+v, want message 2 passed to the shard", out)
	}
	if out := receive(m, shardMessage(coordinator.Host, 3)); len(out.Actions) != 1 || out.Actions[0].Token != 1 {
		t.Errorf("when the shard stays: %+v, want message 1 passed to the shard", out)
	}
}

func TestNewHomeWaitsForTheFlush(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, homes(5, 1, "b"))
	m.Step(0, region.Send{Shard: 1, Token: 1})
	m.Step(0, region.FrameReceived{From: node("b"), Frame: region.Frame{Kind: region.NotHome, Shard: 1}})
	if out := m.Step(0, region.Send{Shard: 1, Token: 2}); !hasMessage(out, coordinator.GetHomes) {
		t.Errorf("NotHome: %+v, want GetHomes", out)
	}
	out := receive(m, homes(5, 2, "c"))
	if len(out.Frames) != 1 || out.Frames[0].Frame.Kind != region.Flush || out.Frames[0].To != node("b") {
		t.Fatalf("Homes with another home: %+v, want a Flush to b", out)
	}
	flushed := region.Frame{Kind: region.Flushed, Instance: 2, ID: out.Frames[0].Frame.ID, Shards: []region.Shard{1}}
	if out = m.Step(0, region.FrameReceived{From: node("b"), Frame: flushed}); len(out.Frames) != 0 {
		t.Errorf("Flushed with a held shard: %+v, want no frame", out)
	}
	flushed.Shards = nil
	out = m.Step(0, region.FrameReceived{From: node("b"), Frame: flushed})
	if len(out.Frames) != 1 || out.Frames[0].Frame.Token != 2 || out.Frames[0].To != node("c") {
		t.Errorf("Flushed: %+v, want message 2 sent to c", out)
	}
}
