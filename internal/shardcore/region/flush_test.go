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

// kinds returns the kinds of the frames for a node.
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

// Two regions have relayed messages to each other. Neither waits for the reply of the other before
// it replies to a flush itself.
func TestFlushBetweenTwoRelays(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, homes(5, 1, "b"))
	arrive(m, "c", forward(1, 0)) // relayed to b
	out := arrive(m, "b", flush(1))
	if got := out.Frames[0].Frame; got.Kind != region.Flushed || len(got.Shards) != 0 {
		t.Errorf("a flush of relayed messages: %+v, want Flushed without shards", got)
	}
	out = arrive(m, "b", flush(0))
	if got := out.Frames[len(out.Frames)-1].Frame; got.Kind != region.Flushed || !slices.Equal(got.Shards, []region.Shard{1}) {
		t.Errorf("a flush of messages that may have been relayed: %+v, want Flushed with shard 1", got)
	}
	if got := out.Frames[0].Frame; got.Kind != region.Flush || got.Hop != 1 {
		t.Errorf("a flush of messages that may have been relayed sends %+v, want a Flush of hop 1 first", out)
	}
	arrive(m, "b", region.Frame{Kind: region.Flushed, Instance: 2, ID: out.Frames[0].Frame.ID})
	out = arrive(m, "b", flush(0))
	if got := out.Frames[0].Frame; len(got.Shards) != 0 {
		t.Errorf("after all messages have arrived: %+v, want Flushed without shards", got)
	}
}

func TestFlushIsHeldByWaitingMessages(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	for hop := range 2 {
		arrive(m, "b", forward(uint64(hop), hop))
		for other := range 2 {
			held := arrive(m, "b", flush(other)).Frames[0].Frame.Shards
			if (len(held) > 0) != (other <= hop) {
				t.Errorf("a flush of hop %d, a message of hop %d waits: held %v, want shards only for a message of the same or a higher hop", other, hop, held)
			}
		}
		if held := arrive(m, "c", flush(hop)).Frames[0].Frame.Shards; len(held) > 0 {
			t.Errorf("held by a message of another region: %v, want none", held)
		}
	}
}

// A relayed message is refused as soon as another region is the known home, even while the path to
// the home is being flushed.
func TestRelayedMessageIsRefused(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, homes(5, 1, "b"))
	arrive(m, "c", forward(1, 0))
	arrive(m, "b", region.Frame{Kind: region.NotHome, Shard: 1})
	arrive(m, "b", forward(2, 1))
	out := receive(m, homes(5, 2, "c"))
	if len(out.Refused) != 1 || out.Refused[0] != (shard.Refusal{Token: 2, Reason: shard.NotHome}) {
		t.Errorf("when the home becomes known: %+v, want message 2 refused with NotHome", out)
	}
	out = arrive(m, "b", forward(3, 1))
	if len(out.Refused) != 1 || out.Refused[0].Token != 3 {
		t.Errorf("with a known home: %+v, want message 3 refused", out)
	}
}

// Senders no longer wait for a removed region. Messages that the removed region has relayed must
// not arrive later.
func TestMessagesRelayedByRemovedRegions(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	arrive(m, "b", forward(1, 1))
	arrive(m, "b", forward(2, 0))
	out := setMembers(m, "c", "a")
	if len(out.Refused) != 1 || out.Refused[0].Token != 1 || m.Buffered() != 1 {
		t.Errorf("after the removal of the relaying region: %+v, want message 1 refused and one waiting message", out)
	}
}

func TestFlushedOfAnotherInstanceIsIgnored(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, homes(5, 1, "b"))
	m.Step(0, region.Send{Shard: 1, Token: 1})
	id := receive(m, shardMessage(coordinator.BeginHandOff, 2)).Frames[0].Frame.ID
	if out := arrive(m, "b", region.Frame{Kind: region.Flushed, Instance: 1, ID: id}); hasMessage(out, coordinator.BeginHandOffAck) {
		t.Errorf("Flushed of another instance: %+v, want no BeginHandOffAck", out)
	}
	if out := arrive(m, "b", region.Frame{Kind: region.Flushed, Instance: 2, ID: id}); !hasMessage(out, coordinator.BeginHandOffAck) {
		t.Errorf("Flushed of this instance: %+v, want BeginHandOffAck", out)
	}
}

// Messages of other regions do not wait for messages of local senders.
func TestQueuesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, homes(5, 1, "b"))
	m.Step(0, region.Send{Shard: 1, Token: 1})
	receive(m, shardMessage(coordinator.BeginHandOff, 2))
	m.Step(0, region.Send{Shard: 1, Token: 2})
	out := receive(m, shardMessage(coordinator.Host, 3))
	if len(out.Actions) != 1 || out.Actions[0].Kind != region.Start {
		t.Fatalf("Host: %+v, want one start", out)
	}
	if out = arrive(m, "b", forward(3, 0)); len(out.Actions) != 1 || out.Actions[0].Token != 3 {
		t.Errorf("a message of another region: %+v, want message 3 passed to the shard", out)
	}
	if m.Buffered() != 1 {
		t.Errorf("%d messages wait, want 1", m.Buffered())
	}
}
