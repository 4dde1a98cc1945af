// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"errors"
	"fmt"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/transport"
)

// hash is the default of Options.ShardOf: 64-bit FNV-1a, folded to 32 bits. It must never change.
func hash(id string) uint32 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return uint32(h>>32) ^ uint32(h) //nolint:gosec // folded on purpose
}

// shardOf returns the shard of an entity. Options.ShardOf belongs to the application and may panic.
func (s *shell) shardOf(id string) (n Shard, err error) {
	if s.opts.ShardOf == nil {
		return Shard(hash(id) % uint32(s.opts.Shards)), nil //nolint:gosec // at most coordinator.MaxShards
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: Options.ShardOf panicked for %q: %v", eventsourcing.ErrInvalid, id, p)
		}
	}()
	if n = s.opts.ShardOf(id); int(n) >= s.opts.Shards {
		return 0, fmt.Errorf("%w: Options.ShardOf returned %d for %q, there are %d shards", eventsourcing.ErrInvalid, n, id, s.opts.Shards)
	}
	return n, nil
}

// route sends a command of this node. It does not block.
func (s *shell) route(m hosting.Message) error {
	id := m.ID()
	if n := len(s.name) + 1 + len(id); n > journal.MaxIDLength { // checked here, before the ID is stored as remembered
		return fmt.Errorf("%w: entity ID and type name have %d bytes together, at most %d are allowed", eventsourcing.ErrInvalid, n, journal.MaxIDLength)
	}
	n, err := s.shardOf(id)
	if err != nil {
		return err
	}
	g, c := &s.paths[n], envelope{message: m}
	sent, err := s.routeDirect(g, &c)
	if !sent { // the command waits, or leaves this node: encode it here, because the codec must not run on the loop
		c.encoded, c.failed = s.encode(&m)
		sent, err = s.routeDirect(g, &c)
	}
	if sent {
		return err
	}
	return s.queueOwn(g, c)
}

// forwardCommand sends a command to the home of its shard without the loop.
func (s *shell) forwardCommand(to identity.Node, n Shard, c *envelope) error {
	m := &c.message
	if !m.Take() {
		return nil // the caller has given up
	}
	number := s.registerAsk(to, m)
	p := region.Packet{Type: s.name, Frame: region.Frame{Kind: region.Forward, Shard: n}, Entity: m.ID(), Body: s.appendCommand(m, &c.encoded, number)}
	return s.sendPacket(to, region.AppendPacket(make([]byte, 0, len(p.Body)+len(p.Entity)+len(s.name)+16), p), number, m)
}

// registerAsk returns the number that identifies the reply to a command, 0 if no caller waits.
func (s *shell) registerAsk(to identity.Node, m *hosting.Message) uint64 {
	if !m.Asked() {
		return 0
	}
	return s.router.asks.add(pendingAsk{*m, s, to})
}

// sendPacket sends an encoded command. It returns an error if the command was not sent.
func (s *shell) sendPacket(to identity.Node, frame []byte, number uint64, m *hosting.Message) error {
	err := s.node.Transport().Send(to, transport.Data, transport.Kind(shardcore.KindRegion), frame)
	if err == nil {
		return nil
	}
	if number != 0 {
		if _, open := s.router.asks.take(number); !open {
			return nil // failAsks has reported the loss of the node
		}
	}
	m.Untake()
	if errors.Is(err, transport.ErrTooLarge) {
		return fmt.Errorf("%w: %w: %w", ErrNotSent, eventsourcing.ErrInvalid, err)
	}
	return fmt.Errorf("%w to %v: %w", ErrNotSent, to, err)
}

// dropAbandoned removes commands whose callers have given up from the buffers of the region: they
// take room, and a leaving region would wait for them.
func (s *shell) dropAbandoned() {
	var gone []uint64
	for at := range s.machine.Buffered(s.now()) {
		if isAbandoned(&at) {
			gone = append(gone, at.Token)
		}
	}
	if len(gone) > 0 {
		s.step(shardcore.Drop{Tokens: gone})
	}
}

// isAbandoned reports whether the caller of a command has given up. Commands without a caller are
// never abandoned.
func isAbandoned(at *shardcore.Buffered) bool {
	if p, own := at.Local.(*envelope); own {
		return p.message.Asked() && p.message.Context().Err() != nil
	}
	a, err := decodeCommand(at.Body)
	return err == nil && a.replyTo.isSet() && a.hasDeadline && at.Waited >= a.timeLeft
}
