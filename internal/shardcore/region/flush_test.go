// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region_test

import (
	"slices"
	"testing"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

func arrive(m *region.Machine, from string, f region.Frame) region.Effects {
	return m.Step(0, region.FrameReceived{From: node(from), Frame: f})
}

func forward(token uint64, hop int) region.Frame {
	return region.Frame{Kind: region.Forward, Shard: 1, Token: token, Hop: hop}
}

// kinds are those of the frames to a node.
func kinds(out region.Effects, to string) []region.FrameKind {
	var found []region.FrameKind
	for _, o := range out.Frames {
		if o.To == node(to) {
			found = append(found, o.Frame.Kind)
		}
	}
	return found
}

func flush(hop int) region.Frame {
	return region.Frame{Kind: region.Flush, Hop: hop, Instance: 1, ID: 9, Shards: []region.Shard{1}}
}

// Of two regions that have passed messages on to each other, each once took the other for the home.
// Neither waits for the other's answer before it gives its own.
func TestRegionsThatPassedMessagesToEachOtherAreFlushed(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	hear(m, homes(5, 1, "b"))
	arrive(m, "c", forward(1, 0)) // is passed on to b
	out := arrive(m, "b", flush(1))
	if got := out.Frames[0].Frame; got.Kind != region.Flushed || len(got.Shards) != 0 {
		t.Errorf("what b passed on is not here: %+v", got)
	}
	out = arrive(m, "b", flush(0))
	if got := out.Frames[len(out.Frames)-1].Frame; got.Kind != region.Flushed || !slices.Equal(got.Shards, []region.Shard{1}) {
		t.Errorf("what b sent may have been passed on: %+v", got)
	}
	if got := out.Frames[0].Frame; got.Kind != region.Flush || got.Hop != 1 {
		t.Errorf("it is not flushed: %+v", out)
	}
	arrive(m, "b", region.Frame{Kind: region.Flushed, Instance: 2, ID: out.Frames[0].Frame.ID})
	out = arrive(m, "b", flush(0))
	if got := out.Frames[0].Frame; len(got.Shards) != 0 {
		t.Errorf("all has arrived: %+v", got)
	}
}

func TestAFlushIsHeldByWhatWaits(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	for hop := range 2 {
		arrive(m, "b", forward(uint64(hop), hop))
		for other := range 2 {
			held := arrive(m, "b", flush(other)).Frames[0].Frame.Shards
			if (len(held) > 0) != (other <= hop) {
				t.Errorf("with %d hops, waiting is %d: %v", other, hop, held)
			}
		}
		if held := arrive(m, "c", flush(hop)).Frames[0].Frame.Shards; len(held) > 0 {
			t.Errorf("held by what another one sent: %v", held)
		}
	}
}

// A second hop ends as soon as the home is known to be elsewhere, also while a path there is not
// clear.
func TestASecondHopIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	hear(m, homes(5, 1, "b"))
	arrive(m, "c", forward(1, 0))
	arrive(m, "b", region.Frame{Kind: region.NotHome, Shard: 1})
	arrive(m, "b", forward(2, 1))
	out := hear(m, homes(5, 2, "c"))
	if len(out.Refused) != 1 || out.Refused[0] != (region.Refusal{Shard: 1, Token: 2, Reason: shard.NotHome}) {
		t.Errorf("home known: %+v", out)
	}
	out = arrive(m, "b", forward(3, 1))
	if len(out.Refused) != 1 || out.Refused[0].Token != 3 {
		t.Errorf("home was known: %+v", out)
	}
}

// Whoever sent to a region that was removed goes on without it: what that one had passed on must
// not come later.
func TestWhatTheRemovedHavePassedOnIsRefused(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	arrive(m, "b", forward(1, 1))
	arrive(m, "b", forward(2, 0))
	out := see(m, "c", "a")
	if len(out.Refused) != 1 || out.Refused[0].Token != 1 || m.Buffered() != 1 {
		t.Errorf("%+v", out)
	}
}

func TestAnAnswerToAnotherInstanceIsPassedOver(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	hear(m, homes(5, 1, "b"))
	m.Step(0, region.Send{Shard: 1, Token: 1})
	id := hear(m, about(coordinator.BeginHandOff, 2)).Frames[0].Frame.ID
	if out := arrive(m, "b", region.Frame{Kind: region.Flushed, Instance: 1, ID: id}); says(out, coordinator.BeginHandOffAck) {
		t.Errorf("of another instance: %+v", out)
	}
	if out := arrive(m, "b", region.Frame{Kind: region.Flushed, Instance: 2, ID: id}); !says(out, coordinator.BeginHandOffAck) {
		t.Errorf("%+v", out)
	}
}

// What others wait for is never behind what a node's own senders wait for.
func TestLinesDontWaitForEachOther(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	hear(m, homes(5, 1, "b"))
	m.Step(0, region.Send{Shard: 1, Token: 1})
	hear(m, about(coordinator.BeginHandOff, 2))
	m.Step(0, region.Send{Shard: 1, Token: 2})
	out := hear(m, about(coordinator.Host, 3))
	if len(out.Actions) != 1 || out.Actions[0].Kind != region.Start {
		t.Fatalf("host: %+v", out)
	}
	if out = arrive(m, "b", forward(3, 0)); len(out.Actions) != 1 || out.Actions[0].Token != 3 {
		t.Errorf("of another: %+v", out)
	}
	if m.Buffered() != 1 {
		t.Errorf("%d wait", m.Buffered())
	}
}
