// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// Machine is one node's part of the protocol. It is told what happens, with the
// time on the node's monotonic clock, and answers what is to be done. It is not
// safe for concurrent use.
type Machine struct {
	cfg     Config
	self    identity.Node
	actor   *crdt.Self
	types   *crdt.Types
	rand    *rand.Rand
	durable patterns[struct{}]
	expire  patterns[time.Duration]

	now    time.Duration
	skew   time.Duration // what the wall clock has gained
	out    Effects
	spare  Effects // memory for them
	timers [timers]time.Duration
	count  Counters

	loading bool
	queue   []Input // requests that came while loading
	stopped bool

	keys    map[string]*entry
	buckets [buckets][]*entry // sorted by key
	tree    tree
	dirty   []*entry
	alive   int     // keys that are not deleted
	base    uint64  // the highest version of a key that was forgotten
	scratch []byte  // for values
	small   []byte  // for deltas
	leaf    []byte  // for what digests are made of
	items   []Item  // for those that are received
	entries []Entry // for those that are sent to a new node
	short   []byte  // for short messages, as far as it is in use

	parts      uint64 // the number of the last message that was sent in parts
	assemblies []*assembly

	members  membersState
	rounds   roundsState
	deltas   deltaState
	exchange exchangeState
	pull     pullState
	filled   map[identity.Node]time.Duration // when nodes that get the data from here have last asked for a part
	pruning  pruningState
	subs     subscriptions
	stores   storesState
	heard    uint64        // the number of the last message
	expiring int           // the bucket that is looked at next for what has expired
	asked    time.Duration // when somebody has last asked for something and waits for it, or was told of a change
}

// timer is one of the things that a machine waits for. When several are due they
// are handled in this order.
type timer uint8

const (
	timerGossip timer = iota
	timerCompare
	timerDelta
	timerNotify
	timerPrune
	timerPull
	timerStore
	timerSend
	timerExpire
	timers
)

// New returns the machine of a node that holds nothing.
func New(cfg Config) (*Machine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("replication: %w", err)
	}
	m := &Machine{
		cfg: cfg, self: cfg.Self.Node(), actor: cfg.Self, types: cfg.Types, rand: cfg.Rand,
		keys: map[string]*entry{}, loading: len(cfg.Durable) > 0, asked: -time.Hour,
	}
	for _, p := range cfg.Durable {
		m.durable.add(p, struct{}{})
	}
	for p, d := range cfg.Expire {
		m.expire.add(p, d)
	}
	m.members.known = map[identity.Node]bool{}
	m.filled = map[identity.Node]time.Duration{}
	m.rounds.open = map[uint64]*round{}
	m.deltas.followers = map[identity.Node]*follower{}
	m.deltas.asked = map[string]time.Duration{}
	m.deltas.lastChange, m.deltas.lastFlush = -time.Hour, -time.Hour
	m.pruning.removed = map[identity.Node]time.Duration{}
	m.subs.byNr = map[uint64]*subscription{}
	m.subs.exact = map[string][]*subscription{}
	m.stores.waiting = map[uint64]waiter{}
	m.stores.records = map[uint64]*entry{}
	for i := range m.timers {
		m.timers[i] = Never
	}
	// Nodes that were started together do not all do the same at the same time.
	m.timers[timerGossip] = time.Duration(m.rand.Int64N(int64(cfg.GossipInterval)))
	if cfg.PruneInterval > 0 {
		m.timers[timerPrune] = cfg.PruneInterval
	}
	return m, nil
}

// Step handles what happened at a time, which never goes back.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	m.begin(now)
	if !m.stopped {
		m.handle(in)
	}
	return m.end()
}

// Receive is Step for what was received.
func (m *Machine) Receive(now time.Duration, in Received) Effects {
	m.begin(now)
	if !m.stopped {
		m.received(in)
	}
	return m.end()
}

func (m *Machine) handle(in Input) {
	switch in := in.(type) {
	case Members:
		m.setMembers(in)
	case SetClock:
		m.skew = in.Time.Sub(m.cfg.Started) - m.now
		m.actor.Advance(in.Time)
	case Load:
		m.load(in)
	case Loaded:
		m.loaded()
	case Stored:
		m.stored(in)
	case Stop:
		m.stop()
	case Received:
		m.received(in)
	default:
		m.request(in)
	}
}

// request handles what users want.
func (m *Machine) request(in Input) {
	if m.loading {
		if r, is := requestOf(in); is && len(m.queue) >= m.cfg.MaxRequests {
			m.reply(Reply{ID: r.ID, Outcome: Busy})
			return
		}
		m.queue = append(m.queue, in)
		return
	}
	switch in := in.(type) {
	case Get:
		m.get(in)
	case Update:
		m.update(&in)
	case *Update:
		m.update(in)
	case Delete:
		m.delete(in)
	case Subscribe:
		m.subscribe(in)
	case Unsubscribe:
		m.unsubscribe(in.Nr)
	case Flush:
		m.notify()
		m.deltas.now, m.deltas.flush = true, true
	case Touch:
		for _, key := range in.Keys {
			if e := m.keys[key]; e != nil {
				m.touch(e)
			}
		}
	}
}

func requestOf(in Input) (Request, bool) {
	switch in := in.(type) {
	case Get:
		return in.Request, true
	case Update:
		return in.Request, true
	case *Update:
		return in.Request, true
	case Delete:
		return in.Request, true
	}
	return Request{}, false
}

// Next returns when Tick is to be called next; Never if not at all. Every step
// may change it.
func (m *Machine) Next() time.Duration {
	if m.stopped {
		return Never
	}
	next := m.rounds.next()
	for _, due := range m.timers {
		next = min(next, due)
	}
	return next
}

// Tick handles all that is due.
func (m *Machine) Tick(now time.Duration) Effects {
	m.begin(now)
	if !m.stopped {
		for len(m.rounds.due) > 0 && m.rounds.due[0].due <= now {
			m.roundDue(m.rounds.due[0])
		}
	}
	for t := range timers {
		if m.timers[t] <= now && !m.stopped {
			m.timers[t] = Never
			m.fire(t)
		}
	}
	return m.end()
}

func (m *Machine) fire(t timer) {
	switch t {
	case timerGossip:
		m.again(timerGossip, m.cfg.GossipInterval)
		m.gossipTick()
	case timerCompare:
		m.compare()
	case timerDelta:
		m.deltas.now = true
	case timerNotify:
		m.notify()
	case timerPrune:
		m.prune()
	case timerPull:
		m.pullDue()
	case timerStore:
		m.storeAgain()
	case timerSend:
		m.sendRest()
	case timerExpire:
		m.expireSome()
	case timers:
	}
}

// again sets a timer.
func (m *Machine) again(t timer, after time.Duration) { m.timers[t] = m.now + after }

// soon sets a timer unless it is due before.
func (m *Machine) soon(t timer, at time.Duration) { m.timers[t] = min(m.timers[t], at) }

func (m *Machine) begin(now time.Duration) {
	m.now = max(m.now, now)
	m.out, m.spare = m.spare, Effects{}
}

func (m *Machine) end() Effects {
	if m.deltas.now && !m.stopped && !m.loading {
		m.deltas.now = false
		m.propagate()
	}
	m.storeKept()
	return m.out
}

func (m *Machine) wallTime() time.Time { return m.cfg.Started.Add(m.now + m.skew) }

// wall is the time on the wall in Unix milliseconds.
func (m *Machine) wall() uint64 { return uint64(max(1, m.wallTime().UnixMilli())) }

func (m *Machine) note(n Note) { m.out.Notes = append(m.out.Notes, n) }

func (m *Machine) reply(r Reply) { m.out.Replies = append(m.out.Replies, r) }

// send sends a message, in parts if it is large, unless it is larger than any may be.
func (m *Machine) send(to identity.Node, bulk bool, msg Message) {
	m.sendEncoded(to, bulk, msg.kind(), AppendMessage(nil, msg))
}

func (m *Machine) sendEncoded(to identity.Node, bulk bool, kind Kind, data []byte) {
	switch {
	case len(data) > MaxMessage:
		m.count.Dropped[DropTooLarge]++
		return
	case len(data) > m.cfg.MaxMessage:
		m.split(to, bulk, data)
		return
	}
	m.count.Sent[kind]++
	m.count.SentBytes[kind] += uint64(len(data))
	m.out.Send = append(m.out.Send, Send{To: to, Bulk: bulk, Kind: kind, Data: data})
}

// stop ends it all.
func (m *Machine) stop() {
	for _, in := range m.queue {
		if r, is := requestOf(in); is {
			m.reply(Reply{ID: r.ID, Outcome: Stopped})
		}
	}
	m.queue = nil
	for _, r := range m.rounds.sorted() {
		m.finish(r, Stopped, nil)
	}
	for _, nr := range m.stores.sorted() {
		if w := m.stores.waiting[nr]; w.kind == waitsReply {
			w.reply.Outcome = Stopped
			m.reply(w.reply)
		}
	}
	for len(m.stores.failed) > 0 { // the last try
		m.storeAgain()
	}
	m.stopped, m.out.Stopped = true, true
}

// Value returns what a key holds. Of a deleted key it is the zero Value.
func (m *Machine) Value(key string) (v crdt.Value, deleted, found bool) {
	e := m.keys[key]
	if e == nil {
		return crdt.Value{}, false, false
	}
	return e.value, e.deleted, true
}

// Keys returns the keys that are not deleted, sorted.
func (m *Machine) Keys() []string {
	keys := make([]string, 0, m.alive)
	for i := range m.buckets {
		for _, e := range m.buckets[i] {
			if !e.deleted {
				keys = append(keys, e.key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// ReplicaCount returns how many nodes count in a quorum, this one included; 0
// while records are loaded.
func (m *Machine) ReplicaCount() int {
	if m.loading {
		return 0
	}
	return len(m.members.eligible) + 1
}

// Root returns the digest of all that the machine holds: two that agree hold
// the same.
func (m *Machine) Root() Digest {
	m.refresh()
	return m.tree.root.digest()
}

// Synced reports whether a node that was new has got the data from others.
func (m *Machine) Synced() bool { return m.pull.done }

// Counters returns what was counted so far.
func (m *Machine) Counters() Counters {
	c := m.count
	c.Keys, c.Tombstones = m.alive, len(m.keys)-m.alive
	c.Open, c.Log, c.Storing = len(m.rounds.open), len(m.deltas.log), len(m.stores.waiting)
	return c
}

func (m *Machine) received(in Received) {
	switch {
	case m.loading:
		m.count.Dropped[DropLoading]++
	case !m.members.known[in.From]:
		m.count.Dropped[DropStranger]++
	default:
		m.receiveData(in.From, in.Data, false)
	}
}

// receiveData handles a message, which was put together from parts or is whole.
func (m *Machine) receiveData(from identity.Node, data []byte, assembled bool) {
	r := reader{b: data, known: m.keys}
	kind := r.head()
	var msg Message
	var ack Ack
	var delta Delta
	switch { // those that come most often are no values of an interface
	case r.err != nil:
	case kind == KindAck:
		ack = readAck(&r)
	case kind == KindDelta:
		delta = readDelta(&r, m.items)
		m.items = nil
	default:
		msg = readMessage(&r, kind)
	}
	if err := r.end(); err != nil {
		m.count.Dropped[DropMalformed]++
		m.note(Note{Kind: NoteMalformed, Node: from, Err: err})
		return
	}
	m.count.Received[kind]++
	m.heard++
	switch msg := msg.(type) {
	case nil:
		if kind == KindAck {
			m.receiveAck(from, ack)
		} else {
			m.receiveDelta(from, delta)
			m.items = reuse(delta.Items)
		}
	case Write:
		m.receiveWrite(from, msg)
	case Read:
		m.receiveRead(from, msg)
	case ReadResult:
		m.receiveResult(from, msg)
	case Root:
		m.receiveRoot(from, msg)
	case Groups:
		m.receiveGroups(from, msg)
	case Buckets:
		m.receiveBuckets(from, msg)
	case Keys:
		m.receiveKeys(from, msg)
	case Uses:
		m.receiveUses(msg)
	case Want:
		m.receiveWant(from, msg)
	case Gossip:
		m.receiveGossip(from, msg)
	case Pull:
		m.receivePull(from, msg)
	case Chunk:
		m.receiveChunk(from, msg)
	case Part:
		if assembled {
			m.count.Dropped[DropParts]++
			return
		}
		m.receivePart(from, msg)
	}
}

// maxReused is how long a list is, at most, of which the memory is used again.
const maxReused = 4096

// maxScratch is how many bytes values take, at most, of which the memory is used again.
const maxScratch = 1 << 20

// Reuse gives back the effects of the last step, of which nothing must be used any more. Those of a step that are not given back stay as they
// are.
func (m *Machine) Reuse(e Effects) {
	m.spare = Effects{
		Notes: reuse(e.Notes), Store: reuse(e.Store), Send: reuse(e.Send), Values: reuse(e.Values), Replies: reuse(e.Replies), Events: reuse(e.Events),
	}
}

// reuse returns the memory of a list for another one.
func reuse[E any](s []E) []E {
	if cap(s) > maxReused {
		return nil
	}
	clear(s)
	return s[:0]
}

// room returns memory for a short message that is gone soon, together with its neighbours.
func (m *Machine) room(size int) []byte {
	const many = 2048
	if cap(m.short)-len(m.short) < size {
		m.short = make([]byte, 0, many)
	}
	n := len(m.short)
	m.short = m.short[:n+size]
	return m.short[n : n : n+size]
}
