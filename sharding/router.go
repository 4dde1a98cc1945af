// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/transport"
)

// Kinds of messages of this package, in addition to those of package shardcore. They never change.
const (
	kindReply transport.Kind = 202
	kindQuery transport.Kind = 203 // a request
)

// router dispatches the messages of a node to its regions. Each node has one router.
type router struct {
	node *cluster.Node
	asks askTable

	mu            sync.RWMutex
	reserved      map[string]*shell // running and starting shells
	shells        map[string]*shell
	regions       map[string]any // *Region[C]
	undeliverable atomic.Uint64  // malformed and unexpected messages, and messages for no region
	unsentReplies atomic.Uint64  // replies that could not be sent, or name an asker that is not a member
	lateReplies   atomic.Uint64  // replies without an outstanding ask, or from a node that cannot have it
}

type routerKey struct{}

func routerOf(node *cluster.Node) *router {
	b, _ := node.Attached(routerKey{}, func() any {
		b := &router{node: node, reserved: map[string]*shell{}, shells: map[string]*shell{}, regions: map[string]any{}}
		t := node.Transport()
		t.Handle(transport.Kind(shardcore.KindCoordinator), b.receiveCoordinatorMessage)
		t.Handle(transport.Kind(shardcore.KindRegion), b.receiveRegionFrame)
		t.Handle(kindReply, func(_ context.Context, m transport.Message) { b.deliverReply(m.From, m.Payload) })
		return b
	}).(*router)
	return b
}

func (rt *router) reserve(s *shell) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.reserved[s.name] != nil {
		return fmt.Errorf("%w: the node already has a region or a proxy of the type: see RegionOf", ErrInvalid)
	}
	rt.reserved[s.name] = s
	return nil
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

// routeTo returns the route to the entities of a type, nil if the node has no region or proxy of it.
func (rt *router) routeTo(name string) func(hosting.Message) error {
	if s := rt.find(name); s != nil {
		return s.route
	}
	return nil
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

// receiveFrame queues a frame without a command. It blocks at the limit. A frame is lost if the
// loop or ctx has ended.
func (s *shell) receiveFrame(ctx context.Context, m transport.Message, kind shardcore.Kind) {
	_ = s.inbox.Receive(ctx, frames, len(m.Payload), item{input: shardcore.Received{From: m.From, Kind: kind, Data: m.Payload}})
}

// sendReply sends a reply to a member. A command can name any asker, and a link to each of them
// would fill the table of links. If the reply is too large, instead(err) returns the reply to send.
func (rt *router) sendReply(to identity.Node, data []byte, instead func(error) []byte) {
	if to == rt.node.Self() {
		rt.deliverReply(to, data)
		return
	}
	if rt.node.State().Status(to) == cluster.Removed {
		rt.unsentReplies.Add(1)
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

func (rt *router) deliverReply(from identity.Node, data []byte) {
	r, err := decodeReply(data)
	if err != nil {
		rt.undeliverable.Add(1)
		return
	}
	open, ok := rt.asks.takeFrom(r.number, from)
	switch {
	case !ok:
		rt.lateReplies.Add(1)
	case r.reason != 0:
		open.message.Answer(nil, refusal(r.reason))
	default:
		open.message.AnswerEncoded(r.data)
	}
}

func (s *shell) receiveCommand(ctx context.Context, m transport.Message, p *region.Packet) {
	n, err := s.shardOf(p.Entity)
	if err != nil {
		a, _ := decodeCommand(p.Body, m.From) // without a number, nobody waits
		s.reportDropped(p.Entity, a.replyTo.isSet(), fmt.Errorf("from %v: %w", m.From, err))
		s.sendReply(a.replyTo, nil, err)
		return
	}
	if n != p.Shard {
		s.reportDropped(p.Entity, s.sendRefusal(p.Body, shardcore.NoShard), fmt.Errorf("%v sent it to shard %d: the nodes have different settings", m.From, p.Shard))
		return
	}
	// Commands of peers are refused instead of delayed: a blocked lane would also delay the flushes
	// that end the wait.
	g, c := &s.paths[n], new(decodedCommand)
	if !c.charge.Take(s.budget.Account(m.From.Name), costOf(len(p.Body))) {
		s.overBudget.Add(1)
		s.reportDropped(p.Entity, s.sendRefusal(p.Body, shardcore.BufferFull), fmt.Errorf("%w: from %v: no room in the memory budget of the node", ErrBuffersFull, m.From))
		return
	}
	c.decode(s, m.From, p.Entity, p.Body) //nolint:contextcheck // a command has the context that came with it
	sent, err := s.receiveDirect(g, c)
	if err != nil {
		s.fail(c.message, err)
	}
	if !sent {
		s.queuePeer(ctx, g, queuedCommand{peer: &shardcore.Forwarded{From: m.From, Packet: *p, Decoded: c}})
	}
}

const askStripes = 64

// askTable holds the asks that were sent to other nodes until their replies arrive.
type askTable struct {
	stripes [askStripes]askStripe
}

type askStripe struct {
	mu   sync.Mutex
	open map[uint64]pendingAsk
}

type pendingAsk struct {
	message hosting.Message
	shell   *shell
	to      identity.Node
	expires time.Duration // on the clock of the shell, for an ask without a deadline
}

// maxAsk is the time after which the reply to an ask without a deadline counts as lost. An outbox
// sends such an ask for each transmission of a delivery.
const maxAsk = 10 * time.Minute

// add stores an ask and returns the number that identifies its reply. The number is random, so that
// only nodes that have received the command can reply.
func (a *askTable) add(open pendingAsk) uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	id := binary.NativeEndian.Uint64(b[:])>>1 | 1<<62 // never 0
	s := &a.stripes[id%askStripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[uint64]pendingAsk{}
	}
	s.open[id] = open
	return id
}

// take removes an ask whose command was not sent.
func (a *askTable) take(id uint64) (pendingAsk, bool) { return a.takeFrom(id, identity.Node{}) }

// takeFrom removes the ask that a node replies to. A command can be relayed, so each node that may
// host its entity can reply. A zero node stands for this one.
func (a *askTable) takeFrom(id uint64, from identity.Node) (pendingAsk, bool) {
	s := &a.stripes[id%askStripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	open, ok := s.open[id]
	if ok = ok && (from.IsZero() || from == open.to || open.shell.mayHost(from)); !ok {
		return pendingAsk{}, false
	}
	delete(s.open, id)
	return open, true
}

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

func (a *askTable) len() (n int) {
	for i := range a.stripes {
		s := &a.stripes[i]
		s.mu.Lock()
		n += len(s.open)
		s.mu.Unlock()
	}
	return n
}

// hash is the default of Options.ShardOf: 64-bit FNV-1a, folded to 32 bits. It must never change.
func hash(id string) uint32 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return uint32(h>>32) ^ uint32(h) //nolint:gosec // folded on purpose
}

// mayHost reports whether a node can host entities of the type.
func (s *shell) mayHost(n identity.Node) bool {
	m, found := s.node.State().Member(n)
	return n == s.node.Self() || found && m.HasRole(s.opts.Role)
}

// shardOf returns the shard of an entity. The error matches eventsourcing.ErrArgument if the ID is
// invalid: an invalid ID must not reach a shard, which would store it as remembered.
// Options.ShardOf belongs to the application and may panic.
func (s *shell) shardOf(id string) (n Shard, err error) {
	if err = journal.CheckID(id); err != nil {
		return 0, fmt.Errorf("%w: entity ID: %w", eventsourcing.ErrArgument, err)
	}
	if n := len(s.name) + 1 + len(id); n > journal.MaxIDLength {
		return 0, fmt.Errorf("%w: entity ID and type name have %d bytes together, at most %d are allowed", eventsourcing.ErrArgument, n, journal.MaxIDLength)
	}
	if s.opts.ShardOf == nil {
		return Shard(hash(id) % uint32(s.opts.Shards)), nil //nolint:gosec // at most coordinator.MaxShards
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: Options.ShardOf panicked for %q: %s", eventsourcing.ErrInvalid, id, panics.Text(p))
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
		return nil // the caller no longer waits
	}
	number := s.registerAsk(to, m)
	var body [512]byte // a longer command is allocated
	p := region.Packet{Type: s.name, Frame: region.Frame{Kind: region.Forward, Shard: n}, Entity: m.ID(), Body: s.appendCommand(body[:0], m, &c.encoded, number)}
	return s.sendPacket(to, region.AppendPacket(make([]byte, 0, len(p.Body)+len(p.Entity)+len(s.name)+16), p), number, m)
}

// registerAsk returns the number that identifies the reply to a command, 0 if no caller waits.
func (s *shell) registerAsk(to identity.Node, m *hosting.Message) uint64 {
	if !m.Asked() {
		return 0
	}
	return s.router.asks.add(pendingAsk{*m, s, to, s.now() + maxAsk})
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
		return fmt.Errorf("%w: %w: %w", ErrNotSent, eventsourcing.ErrArgument, err)
	}
	return fmt.Errorf("%w to %v: %w", ErrNotSent, to, err)
}

// dropAbandoned removes commands without a waiting caller, which take room and delay a leave.
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

// isAbandoned reports whether the caller of a command no longer waits. Commands without a caller
// are never abandoned.
func isAbandoned(at *shardcore.Buffered) bool {
	if p, own := at.Local.(*envelope); own {
		return p.message.Asked() && p.message.Context().Err() != nil
	}
	a, err := decodeCommand(at.Body, identity.Node{})
	return err == nil && a.replyTo.isSet() && a.hasDeadline && at.Waited >= a.timeLeft
}
