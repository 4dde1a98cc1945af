// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// fastPath is the path of a shard: commands bypass the loop, or wait for it. See shardcore.Path.
type fastPath struct {
	shard Shard

	mu sync.RWMutex
	shardcore.Path[*used, queuedCommand]
}

// used reports whether an entity has received commands through its path since the last check of the
// loop.
type used struct{ flag atomic.Bool }

// set writes only if it changes the flag, so that senders do not contend for the cache line.
func (u *used) set() {
	if !u.flag.Load() {
		u.flag.Store(true)
	}
}

func (u *used) take() bool { return u.flag.CompareAndSwap(true, false) }

// queuedCommand is a command that waits for the loop. Exactly one of the fields is set.
type queuedCommand struct {
	own  *envelope
	peer *shardcore.Forwarded // Decoded is a *decodedCommand
}

// restrictPath closes the path for commands that the machine no longer routes directly. The loop
// calls it before it applies the effects of a step.
func (s *shell) restrictPath(g *fastPath) {
	if g.IsOpen() {
		s.setPath(g, g.Restricted(s.machine.DirectRoute(g.shard)))
	}
}

func (s *shell) setPath(g *fastPath, r region.DirectRoute) {
	if g.Route() == r {
		return
	}
	g.mu.Lock()
	g.Set(r)
	g.mu.Unlock()
	if g.IsOpen() {
		s.openPaths[g.shard] = struct{}{}
	} else {
		delete(s.openPaths, g.shard)
	}
}

// routeDirect sends a command of this node through the path, if the path accepts it and no earlier
// command waits.
func (s *shell) routeDirect(g *fastPath, c *envelope) (sent bool, err error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.Waiting(shardcore.Own) {
		return false, nil
	}
	return s.passOwn(g, c)
}

// passOwn sends a command of this node through the path, if the path accepts it. The caller has
// locked the path.
func (s *shell) passOwn(g *fastPath, c *envelope) (sent bool, err error) {
	switch used, to := g.Target(shardcore.Own, c.message.ID()); {
	case to == shardcore.ToEntity:
		used.set()
		return true, s.host().Deliver(c.message)
	case to == shardcore.ToHome && c.failed != nil:
		return true, c.failed
	case to == shardcore.ToHome && !c.encoded.isZero():
		return true, s.forwardCommand(g.Route().Home, g.shard, c)
	}
	return false, nil
}

// receiveDirect is routeDirect for a command of another node.
func (s *shell) receiveDirect(g *fastPath, c *decodedCommand) (sent bool, err error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.Waiting(shardcore.Peers) {
		return false, nil
	}
	return s.passPeer(g, c)
}

func (s *shell) passPeer(g *fastPath, c *decodedCommand) (sent bool, err error) {
	if c.failed != nil { // the machine may relay the command to a node that can decode it
		return false, nil
	}
	used, to := g.Target(shardcore.Peers, c.message.ID())
	if to != shardcore.ToEntity {
		return false, nil
	}
	used.set()
	return true, s.deliverPeer(c)
}

// deliverPeer passes a command of another node to its entity.
func (s *shell) deliverPeer(c *decodedCommand) error {
	err := s.host().Deliver(c.message)
	if err != nil {
		c.charge.Free()
	}
	return err
}

// queueOwn queues a command of this node, unless the path accepts it now.
func (s *shell) queueOwn(g *fastPath, c envelope) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.Waiting(shardcore.Own) {
		if sent, err := s.passOwn(g, &c); sent {
			return err
		}
	}
	c.charged = costOf(len(c.encoded.payload))
	if !s.own.Take(c.charged) {
		s.overBudget.Add(1)
		return fmt.Errorf("%w: no room for %d bytes in the memory budget of the node", ErrBuffersFull, c.charged)
	}
	err := s.inbox.Offer(ownCommands, 0, item{path: g, origin: shardcore.Own})
	if err == nil && g.Wait(shardcore.Own, queuedCommand{own: &c}) {
		return nil
	}
	s.freeOwn(&c)
	if errors.Is(err, loop.ErrFull) {
		return fmt.Errorf("%w: %d for this node", ErrBuffersFull, s.opts.Tuning.BufferSize)
	}
	return s.stopped()
}

// freeOwn ends the charge of a command of this node that no longer waits.
func (s *shell) freeOwn(c *envelope) {
	s.own.Free(c.charged)
	c.charged = 0
}

// free ends the charge of a command that leaves the region, except to its entity.
func (s *shell) free(m *shardcore.Message) {
	if c, ok := m.Local.(*envelope); ok {
		s.freeOwn(c)
	} else if c, ok := m.Decoded.(*decodedCommand); ok {
		c.charge.Free()
	}
}

// queuePeer queues a command of another node. It blocks at the limit.
func (s *shell) queuePeer(ctx context.Context, g *fastPath, c queuedCommand) {
	g.mu.Lock()
	open := g.Wait(shardcore.Peers, c)
	g.mu.Unlock()
	if !open {
		s.refuseQueued(c)
		return
	}
	// The loop may handle the queue before this entry is in the inbox. Each command therefore adds
	// its own entry, so that no command stays in the queue.
	it := item{path: g, origin: shardcore.Peers}
	if s.inbox.Receive(ctx, commands, len(c.peer.Packet.Body), it) != nil {
		s.inbox.Add(it)
	}
}

// handleQueue sends the first commands of a queue through the path. The first command that the path
// does not accept goes to the machine.
func (s *shell) handleQueue(g *fastPath, from shardcore.Origin) {
	next, found, failed := s.passQueue(g, from)
	for _, report := range failed {
		report()
	}
	if !found {
		return
	}
	var in shardcore.Input
	if c := next.own; c != nil {
		in = shardcore.Send{Shard: g.shard, Message: shardcore.Message{Entity: c.message.ID(), Local: c}}
	} else {
		in = *next.peer
	}
	e := s.machine.Step(s.now(), in)
	s.restrictPath(g)
	s.applyAndContinue(e)
	s.setPath(g, s.machine.DirectRoute(g.shard)) // set the path only after the effects are applied
	g.mu.Lock()
	g.Done(from)
	g.mu.Unlock()
	s.queuedTotal.Add(1)
}

// passQueue sends the first commands of a queue through the path and returns the first command that
// the path does not accept. The functions in failed report the failures. The caller runs them after
// the path is unlocked, because they may send commands.
func (s *shell) passQueue(g *fastPath, from shardcore.Origin) (next queuedCommand, found bool, failed []func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	next, found = g.Pass(from, func(c queuedCommand) (sent bool) {
		var m hosting.Message
		var err error
		if c.own != nil {
			m = c.own.message
			if sent, err = s.passOwn(g, c.own); sent {
				s.freeOwn(c.own)
			}
		} else if d, ok := c.peer.Decoded.(*decodedCommand); ok {
			m = d.message
			sent, err = s.passPeer(g, d)
		}
		if err != nil {
			failed = append(failed, func() { s.fail(m, err) })
		}
		return sent
	})
	return next, found, failed
}

// fail reports to the caller of a command that the command was not delivered.
func (s *shell) fail(m hosting.Message, err error) {
	s.reportDropped(m.ID(), m.Asked(), err)
	m.Answer(nil, err)
}

func (s *shell) closePaths() {
	for i := range s.paths {
		g := &s.paths[i]
		g.mu.Lock()
		left := g.Close()
		g.mu.Unlock()
		for _, c := range left {
			s.refuseQueued(c)
		}
	}
}

// refuseQueued reports to the sender of a queued command that the loop has ended.
func (s *shell) refuseQueued(c queuedCommand) {
	if c.own != nil {
		s.freeOwn(c.own)
		c.own.message.Answer(nil, s.stopped())
		return
	}
	s.free(&shardcore.Message{Decoded: c.peer.Decoded})
	p := &c.peer.Packet
	s.reportDropped(p.Entity, s.sendRefusal(p.Body, shardcore.Stopped), ErrStopped)
}
