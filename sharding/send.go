// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"errors"
	"fmt"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/transport"
)

// hash is the default of Options.ShardOf: FNV-1a of 64 bits, folded. It must never change.
func hash(id string) uint32 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return uint32(h>>32) ^ uint32(h) //nolint:gosec // folded on purpose
}

// shardOf returns the shard of an entity. The program's function may panic.
func (s *shell) shardOf(id string) (n Shard, err error) {
	if s.opts.ShardOf == nil {
		return Shard(hash(id) % uint32(s.opts.Shards)), nil //nolint:gosec // at most coordinator.MaxShards
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: Options.ShardOf panicked over %q: %v", eventsourcing.ErrInvalid, id, p)
		}
	}()
	if n = s.opts.ShardOf(id); int(n) >= s.opts.Shards {
		return 0, fmt.Errorf("%w: Options.ShardOf says %d for %q, there are %d shards", eventsourcing.ErrInvalid, n, id, s.opts.Shards)
	}
	return n, nil
}

// route takes a command of this node. It does not block.
func (s *shell) route(m eventsourcing.Message) error {
	id := m.ID()
	if n := len(s.name) + 1 + len(id); n > journal.MaxIDLength { // found out later, it would be remembered
		return fmt.Errorf("%w: the entity ID has with its type %d bytes, at most %d are allowed", eventsourcing.ErrInvalid, n, journal.MaxIDLength)
	}
	n, err := s.shardOf(id)
	if err != nil {
		return err
	}
	g := &s.paths[n]
	var e encodedCommand
	if g.encodeFirst.Load() {
		if e, err = s.encode(&m); err != nil {
			return err
		}
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.ownAllowed && g.queued[ownQueue].Load() == 0 {
		switch {
		case !g.homeIsSelf && !e.isZero():
			return s.forwardCommand(g.home, n, m, &e)
		case g.homeIsSelf:
			if at := g.entries[id]; at != nil {
				at.touch()
				return s.entities.Deliver(m)
			}
		}
	}
	g.queued[ownQueue].Add(1)
	if err := s.inbox.addCommand(g, &queuedCommand{shard: n, own: &envelope{m, e}}); err != nil {
		g.queued[ownQueue].Add(-1)
		return err
	}
	return nil
}

// send sends a command to the node that has its shard, past the loop.
func (s *shell) forwardCommand(to identity.Node, n Shard, m eventsourcing.Message, e *encodedCommand) error {
	if !m.Take() {
		return nil // its caller has left
	}
	number := s.registerAsk(to, &m)
	p := region.Packet{Type: s.name, Frame: region.Frame{Kind: region.Forward, Shard: n}, Entity: m.ID(), Body: s.appendCommand(&m, e, number)}
	return s.sendPacket(to, region.AppendPacket(make([]byte, 0, len(p.Body)+len(p.Entity)+len(s.name)+16), p), number, &m)
}

// await returns the number under which the answer to a command is to come, 0 if nobody waits for it.
func (s *shell) registerAsk(to identity.Node, m *eventsourcing.Message) uint64 {
	if !m.Asked() {
		return 0
	}
	return s.router.asks.add(pendingAsk{*m, s, to})
}

// sent sends a frame with a command. The error says that it was not sent.
func (s *shell) sendPacket(to identity.Node, frame []byte, number uint64, m *eventsourcing.Message) error {
	err := s.node.Transport().Send(to, transport.Data, transport.Kind(shardcore.KindRegion), frame)
	if err == nil {
		return nil
	}
	if number != 0 {
		if _, open := s.router.asks.take(number); !open {
			return nil // it was told meanwhile that the node is gone
		}
	}
	m.Untake()
	if errors.Is(err, transport.ErrTooLarge) {
		return fmt.Errorf("%w: %w: %w", ErrNotSent, eventsourcing.ErrInvalid, err)
	}
	return fmt.Errorf("%w to %v: %w", ErrNotSent, to, err)
}

// dropAbandoned takes the commands out of the buffers of the region whose callers have left: a region that leaves must not wait for them, and others
// need the room.
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

// isAbandoned reports whether nobody waits for the answer to a command any more. One that nobody has ever waited for is to be done.
func isAbandoned(at *shardcore.Buffered) bool {
	if p, own := at.Local.(*envelope); own {
		return p.message.Asked() && p.message.Context().Err() != nil
	}
	a, err := decodeCommand(at.Body)
	return err == nil && a.replyTo.isSet() && a.hasDeadline && at.Waited >= a.timeLeft
}
