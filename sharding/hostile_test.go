// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/wire"
	"github.com/refold-io/refold/transport"
)

const (
	kindCoordinator = transport.Kind(shardcore.KindCoordinator)
	kindRegion      = transport.Kind(shardcore.KindRegion)
	kindReply       = transport.Kind(202)
)

// attack sends a message from a node to another one.
func (w *world) attack(from *transport.Transport, to *host, kind transport.Kind, data []byte) {
	w.Helper()
	for _, lane := range []transport.Lane{transport.Data, transport.Bulk} {
		w.must(from.Send(to.Self(), lane, kind, data))
	}
}

// forward returns a command for an entity, as another node sends it. The reply goes to asker.
func (w *world) forward(h *host, id string, command any, asker identity.Node) []byte {
	w.Helper()
	manifest, payload, err := diaries("").Protocol().Commands.Encode(command)
	w.must(err)
	n, _ := h.region.ShardOf(id) // an invalid ID has no shard
	body := append(wire.AppendNode([]byte{0x10, 1}, asker), 7)
	for _, text := range []string{manifest, string(payload)} {
		body = append(binary.AppendUvarint(body, uint64(len(text))), text...)
	}
	return region.AppendPacket(nil, region.Packet{Type: "diary", Frame: region.Frame{Kind: region.Forward, Shard: n}, Entity: id, Body: body})
}

// A node that does not join cannot disable a type, command its entities, or receive their replies.
func TestStrangersAreHarmless(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		all := w.cluster("a", "b")
		w.spread(all, 10, 0)
		evil := w.transport("evil")
		var answers atomic.Int32
		evil.Handle(kindReply, func(context.Context, transport.Message) { answers.Add(1) })
		for _, h := range all {
			for kind := coordinator.Register; kind <= coordinator.Refused; kind++ {
				w.attack(evil, h, kindCoordinator, coordinator.AppendMessage(nil, coordinator.Message{Kind: kind, Type: "diary", Term: 1 << 63, Instance: 1, Shards: []coordinator.Shard{1, 2, 3}}))
			}
			for d := range 10 {
				w.attack(evil, h, kindRegion, w.forward(h, fmt.Sprint("d", d), write{By: "evil"}, evil.Self()))
			}
			for kind := region.NotHome; kind <= region.Flushed; kind++ {
				w.attack(evil, h, kindRegion, region.AppendPacket(nil, region.Packet{Type: "diary", Frame: region.Frame{Kind: kind, Instance: 1, ID: 1, Shards: []region.Shard{1}}}))
			}
		}
		w.sleep(3 * time.Minute) // the messages wait in vain for the sender to become a member
		w.spread(all, 20, 1)     // some of these have no home yet
		for _, h := range all {
			s, err := h.region.State(w.Context())
			if err != nil || !s.Registered {
				w.Errorf("the region of %v is not registered: %v", h.Self(), err)
			}
		}
		for d := range 10 {
			w.wrote(all[0], fmt.Sprint("d", d), "evil", 0)
		}
		if n := answers.Load(); n != 0 {
			w.Errorf("the stranger has received %d replies, want 0", n)
		}
	})
}

// transport opens the transport of a node that does not join.
func (w *world) transport(name string) *transport.Transport {
	w.Helper()
	self, err := identity.New(name)
	w.must(err)
	t, err := transport.Open(w.network.Carrier(self), transport.Config{})
	w.must(err)
	w.Cleanup(func() { w.must(t.Close()) })
	return t
}
