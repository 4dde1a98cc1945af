// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/transport"
)

// Kinds of messages of this package, in addition to those of package shardcore. They never change.
const (
	// kindReply is the reply to a command.
	kindReply transport.Kind = 202
)

// router dispatches the messages of a node to its regions. There is one for each node.
type router struct {
	node *cluster.Node
	asks askTable

	mu            sync.RWMutex
	reserved      map[string]*shell // running and starting shells
	shells        map[string]*shell
	regions       map[string]any // *Region[C]
	undeliverable atomic.Uint64  // malformed messages, and messages for no region
	unsentReplies atomic.Uint64  // answers
	lateReplies   atomic.Uint64  // replies without an outstanding ask
}

type routerKey struct{}

// routerOf returns the router of a node.
func routerOf(node *cluster.Node) *router {
	b, _ := node.Attached(routerKey{}, func() any {
		b := &router{node: node, reserved: map[string]*shell{}, shells: map[string]*shell{}, regions: map[string]any{}}
		t := node.Transport()
		t.Handle(transport.Kind(shardcore.KindCoordinator), b.receiveCoordinatorMessage)
		t.Handle(transport.Kind(shardcore.KindRegion), b.receiveRegionFrame)
		t.Handle(kindReply, b.receiveReply)
		return b
	}).(*router)
	return b
}

// reserve reserves the name of a type for a starting shell.
func (rt *router) reserve(s *shell) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.reserved[s.name] != nil {
		return fmt.Errorf("%w: the node already has a region or a proxy of the type: see RegionOf", ErrInvalid)
	}
	rt.reserved[s.name] = s
	return nil
}

// add publishes a shell whose name is reserved and which is complete.
func (rt *router) add(s *shell, r any) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.shells[s.name], rt.regions[s.name] = s, r
}

func (rt *router) remove(s *shell) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.reserved[s.name] == s {
		delete(rt.reserved, s.name)
		delete(rt.shells, s.name)
		delete(rt.regions, s.name)
	}
}

func (rt *router) find(name string) *shell {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.shells[name]
}

// receiveCoordinatorMessage receives a message between coordinators and regions. A message for an
// unknown type is dropped: its region has not started, or has ended.
func (rt *router) receiveCoordinatorMessage(ctx context.Context, m transport.Message) {
	name, err := coordinator.MessageType(m.Payload)
	s := rt.find(name)
	if err != nil || s == nil {
		rt.undeliverable.Add(1)
		return
	}
	s.receiveFrame(ctx, m, shardcore.KindCoordinator)
}

// receiveRegionFrame receives a frame of another region.
func (rt *router) receiveRegionFrame(ctx context.Context, m transport.Message) {
	p, err := region.DecodePacket(m.Payload)
	s := rt.find(p.Type)
	if err != nil || s == nil {
		rt.undeliverable.Add(1)
		return
	}
	if p.Kind == region.Forward {
		s.receiveCommand(ctx, m, &p)
		return
	}
	s.receiveFrame(ctx, m, shardcore.KindRegion)
}

// receiveFrame queues a frame without a command. It blocks at the limit; a frame is lost if the loop
// or ctx has ended.
func (s *shell) receiveFrame(ctx context.Context, m transport.Message, kind shardcore.Kind) {
	_ = s.inbox.Receive(ctx, frames, len(m.Payload), item{input: shardcore.Received{From: m.From, Kind: kind, Data: m.Payload}})
}

// sendReply sends a reply. A reply that exceeds the size limit is replaced by the result of
// instead.
func (rt *router) sendReply(to identity.Node, data []byte, instead func(error) []byte) {
	if to == rt.node.Self() {
		rt.deliverReply(data)
		return
	}
	t := rt.node.Transport()
	if most := t.MaxMessage(); len(data) > most && instead != nil {
		data = instead(fmt.Errorf("%d bytes, at most %d are allowed", len(data), most))
	}
	if err := t.Send(to, transport.Data, kindReply, data); err != nil {
		rt.unsentReplies.Add(1)
		rt.node.Logger().Debug("cannot send a reply", slog.String("to", to.String()), slog.Any("error", err))
	}
}

// receiveReply receives a reply of another node.
func (rt *router) receiveReply(_ context.Context, m transport.Message) { rt.deliverReply(m.Payload) }

func (rt *router) deliverReply(data []byte) {
	r, err := decodeReply(data)
	if err != nil {
		rt.undeliverable.Add(1)
		return
	}
	open, ok := rt.asks.take(r.number)
	switch {
	case !ok:
		rt.lateReplies.Add(1)
	case r.reason != 0:
		open.message.Answer(nil, refusal(r.reason))
	default:
		open.message.AnswerEncoded(r.data)
	}
}

// receiveCommand receives a command of another node.
func (s *shell) receiveCommand(ctx context.Context, m transport.Message, p *region.Packet) {
	n, err := s.shardOf(p.Entity)
	if err != nil || n != p.Shard {
		s.reportDropped(p.Entity, s.sendRefusal(p.Body, shardcore.NoShard), fmt.Errorf("%v sent it to shard %d: the nodes have different settings", m.From, p.Shard))
		return
	}
	g, c := &s.paths[n], s.decodeMessage(p.Entity, p.Body) //nolint:contextcheck // a command has the context that came with it
	sent, err := s.receiveDirect(g, c)
	if err != nil {
		s.fail(c.message, err)
	}
	if !sent {
		s.queuePeer(ctx, g, queuedCommand{peer: &shardcore.Forwarded{From: m.From, Packet: *p, Decoded: c}})
	}
}

// deliver passes a command to its entity. If that fails, the caller gets the error.
func (s *shell) deliver(m hosting.Message) {
	if err := s.entities.Deliver(m); err != nil {
		s.fail(m, err)
	}
}

const askStripes = 64

// askTable holds the asks that were sent to other nodes until their replies arrive.
type askTable struct {
	last    atomic.Uint64
	stripes [askStripes]askStripe
}

type askStripe struct {
	mu   sync.Mutex
	open map[uint64]pendingAsk
}

// pendingAsk is an ask without a reply.
type pendingAsk struct {
	message hosting.Message
	shell   *shell
	to      identity.Node
}

// add stores an ask and returns the number that identifies its reply.
func (a *askTable) add(open pendingAsk) uint64 {
	id := a.last.Add(1)
	s := &a.stripes[id%askStripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[uint64]pendingAsk{}
	}
	s.open[id] = open
	return id
}

// take removes and returns the ask with a number.
func (a *askTable) take(id uint64) (pendingAsk, bool) {
	s := &a.stripes[id%askStripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	open, ok := s.open[id]
	delete(s.open, id)
	return open, ok
}

// sweep removes the asks of a shell whose callers have given up, and returns their number.
func (a *askTable) sweep(s *shell) int {
	return len(a.takeAll(func(at *pendingAsk) bool { return at.shell == s && at.message.Context().Err() != nil }))
}

// takeAll removes and returns the asks that match.
func (a *askTable) takeAll(which func(*pendingAsk) bool) (taken []pendingAsk) {
	for i := range a.stripes {
		s := &a.stripes[i]
		s.mu.Lock()
		for id, open := range s.open { // the order does not matter
			if which(&open) {
				delete(s.open, id)
				taken = append(taken, open)
			}
		}
		s.mu.Unlock()
	}
	return taken
}

// len returns the number of asks.
func (a *askTable) len() (n int) {
	for i := range a.stripes {
		s := &a.stripes[i]
		s.mu.Lock()
		n += len(s.open)
		s.mu.Unlock()
	}
	return n
}
