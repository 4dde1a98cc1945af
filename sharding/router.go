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
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/transport"
)

// Kinds of messages of this package, besides those of package shards. They never change.
const (
	// kindAnswer is the answer to a command.
	kindAnswer transport.Kind = 202
)

// switchboard leads what comes to a node to its regions. There is one for each node.
type switchboard struct {
	node    *cluster.Node
	asks    asks
	answers eventsourcing.AnswerCodec

	mu      sync.RWMutex
	taken   map[string]*site // also those that are being started
	sites   map[string]*site
	regions map[string]any // *Region of some type of commands
	unknown atomic.Uint64  // frames for none, or that can't be read
	unsent  atomic.Uint64  // answers
	late    atomic.Uint64  // answers that nobody waits for
}

type switchboardKey struct{}

// switchboardOf returns that of a node.
func switchboardOf(node *cluster.Node) *switchboard {
	b, _ := node.Attached(switchboardKey{}, func() any {
		b := &switchboard{node: node, taken: map[string]*site{}, sites: map[string]*site{}, regions: map[string]any{}}
		t := node.Transport()
		t.Handle(transport.Kind(shardcore.KindCoordinator), b.said)
		t.Handle(transport.Kind(shardcore.KindRegion), b.arrived)
		t.Handle(kindAnswer, b.answered)
		return b
	}).(*switchboard)
	return b
}

// reserve takes the name of a type for a region that is being started.
func (b *switchboard) reserve(s *site) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken[s.name] != nil {
		return fmt.Errorf("%w: there is a region, or a proxy, of the type on this node: RegionOf returns it", ErrInvalid)
	}
	b.taken[s.name] = s
	return nil
}

// add lets frames come to a region whose name is reserved, and others find it. From then on it is complete.
func (b *switchboard) add(s *site, r any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sites[s.name], b.regions[s.name] = s, r
}

func (b *switchboard) remove(s *site) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken[s.name] == s {
		delete(b.taken, s.name)
		delete(b.sites, s.name)
		delete(b.regions, s.name)
	}
}

func (b *switchboard) find(name string) *site {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.sites[name]
}

// said takes what a coordinator or a region says to the other. What is for no region is dropped: it is not there yet, or no more.
func (b *switchboard) said(ctx context.Context, m transport.Message) {
	name, err := shardcore.TypeOf(shardcore.KindCoordinator, m.Payload)
	s := b.find(name)
	if err != nil || s == nil {
		b.unknown.Add(1)
		return
	}
	s.inbox.receive(ctx, item{frame: &shardcore.Received{From: m.From, Kind: shardcore.KindCoordinator, Data: m.Payload}}, nil)
}

// arrived takes a frame of another region.
func (b *switchboard) arrived(ctx context.Context, m transport.Message) {
	p, err := region.DecodePacket(m.Payload)
	s := b.find(p.Type)
	if err != nil || s == nil {
		b.unknown.Add(1)
		return
	}
	if p.Kind == region.Forward {
		s.forwarded(ctx, m, &p)
		return
	}
	s.inbox.receive(ctx, item{frame: &shardcore.Received{From: m.From, Kind: shardcore.KindRegion, Data: m.Payload}}, nil)
}

// reply sends an answer to whoever waits for it. One that is too large for a message is replaced.
func (b *switchboard) reply(to identity.Node, data []byte, instead func(error) []byte) {
	if to == b.node.Self() {
		b.replied(data)
		return
	}
	t := b.node.Transport()
	if most := t.MaxMessage(); len(data) > most && instead != nil {
		data = instead(fmt.Errorf("it has %d bytes, at most %d are allowed", len(data), most))
	}
	if err := t.Send(to, transport.Data, kindAnswer, data); err != nil {
		b.unsent.Add(1)
		b.node.Logger().Debug("an answer could not be sent", slog.String("to", to.String()), slog.Any("error", err))
	}
}

// answered takes an answer.
func (b *switchboard) answered(_ context.Context, m transport.Message) { b.replied(m.Payload) }

func (b *switchboard) replied(data []byte) {
	r, err := decodeReply(data)
	if err != nil {
		b.unknown.Add(1)
		return
	}
	open, ok := b.asks.take(r.number)
	switch {
	case !ok:
		b.late.Add(1)
	case r.why != 0:
		open.message.Answer(nil, refusal(r.why))
	default:
		open.message.AnswerEncoded(r.data)
	}
}

// forwarded takes a command of another node.
func (s *site) forwarded(ctx context.Context, m transport.Message, p *region.Packet) {
	n, err := s.shardOf(p.Entity)
	if err != nil || n != p.Shard {
		s.drop(p.Entity, s.refuse(p.Body, shardcore.NoShard), fmt.Errorf("the sender, %v, takes it for one of shard %d: the nodes do not agree", m.From, p.Shard))
		return
	}
	g, message, opened := &s.gates[n], eventsourcing.Message{}, false
	if g.local.Load() {
		if message, opened = s.open(p.Entity, p.Body); !opened || s.admit(g, message) { //nolint:contextcheck // a command has the context that came with it
			return
		}
	}
	g.count[others].Add(1)
	w := &waiting{
		shard: n, frame: &shardcore.Received{From: m.From, Kind: shardcore.KindRegion, Data: m.Payload},
		entity: p.Entity, body: p.Body, message: message, opened: opened,
	}
	if !s.inbox.receive(ctx, item{command: w}, g) {
		g.count[others].Add(-1)
		s.unheard(w)
	}
}

// admit hands a command of another node to its entity, past the loop. It is false if it can't go there.
func (s *site) admit(g *gate, m eventsourcing.Message) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	at := g.seats[m.ID()]
	if !g.others || at == nil || g.count[others].Load() != 0 {
		return false
	}
	at.touch()
	s.deliver(m)
	return true
}

// deliver hands a command to its entity. If that fails whoever waits for the answer is told.
func (s *site) deliver(m eventsourcing.Message) {
	if err := s.entities.Deliver(m); err != nil {
		s.drop(m.ID(), m.Asked(), err)
		m.Answer(nil, err)
	}
}

const askStripes = 64

// asks are the commands that were sent to other nodes and whose answers are awaited here.
type asks struct {
	last    atomic.Uint64
	stripes [askStripes]askStripe
}

type askStripe struct {
	mu   sync.Mutex
	open map[uint64]ask
}

// ask is one of them.
type ask struct {
	message eventsourcing.Message
	site    *site
	to      identity.Node
}

// add returns the number under which the answer is to come.
func (a *asks) add(open ask) uint64 {
	id := a.last.Add(1)
	s := &a.stripes[id%askStripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[uint64]ask{}
	}
	s.open[id] = open
	return id
}

// take returns the one of a number, which is awaited no more then.
func (a *asks) take(id uint64) (ask, bool) {
	s := &a.stripes[id%askStripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	open, ok := s.open[id]
	delete(s.open, id)
	return open, ok
}

// sweep forgets the asks of a site whose callers have left: the command or the answer was lost, or the answer comes too late.
func (a *asks) sweep(s *site) int {
	return len(a.takeAll(func(at *ask) bool { return at.site == s && at.message.Context().Err() != nil }))
}

// takeAll returns all of some kind, which are awaited no more then.
func (a *asks) takeAll(which func(*ask) bool) (taken []ask) {
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

// len returns how many answers are awaited.
func (a *asks) len() (n int) {
	for i := range a.stripes {
		s := &a.stripes[i]
		s.mu.Lock()
		n += len(s.open)
		s.mu.Unlock()
	}
	return n
}
