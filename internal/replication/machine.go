// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
)

// Machine is the protocol state of one node. Its methods take the time of the node's monotonic
// clock and return effects. It is not safe for concurrent use.
type Machine struct {
	cfg     Config
	self    identity.Node
	actor   *crdt.Self
	types   *crdt.Types
	rand    *rand.Rand
	durable patterns[struct{}]
	expire  patterns[time.Duration]

	now    time.Duration
	skew   time.Duration // offset of the wall clock since Started
	out    Effects
	spare  Effects   // memory for the next effects
	sends  []message // the messages of the step, which are packed into packets at its end
	groups []group   // memory of packSends
	timers [timers]time.Duration
	count  Counters

	loading bool
	queue   []Input // requests that arrived while loading
	stopped bool

	keys      map[string]*entry
	buckets   [buckets][]*entry // sorted by key
	tree      tree
	dirty     []*entry
	alive     int     // keys that are not deleted
	base      uint64  // the highest version of a removed entry
	valueBuf  []byte  // buffer for encoded values
	deltaBuf  []byte  // buffer for encoded deltas
	digestBuf []byte  // buffer for the input of digests
	items     []Item  // buffer for received items
	entries   []Entry // buffer for the entries of a chunk
	shortBuf  []byte  // buffer for short messages; len is the used part

	parts      uint64 // number of the last message that was sent in parts
	assemblies []*assembly

	members     membersState
	rounds      roundsState
	deltas      deltaState
	exchange    exchangeState
	pull        pullState
	pullers     map[identity.Node]time.Duration // times of the last Pull of new nodes
	pruning     pruningState
	subs        subscriptions
	stores      storesState
	messageNr   uint64        // number of the last message
	expiring    int           // the next bucket to examine for expired keys
	lastAwaited time.Duration // time of the last request or change that another node or a user sent
}

// timer identifies a timer. Timers that are due at the same time run in this order.
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

// New returns the machine of a node without data.
func New(cfg Config) (*Machine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m := &Machine{
		cfg: cfg, self: cfg.Self.Node(), actor: cfg.Self, types: cfg.Types, rand: cfg.Rand,
		keys: map[string]*entry{}, loading: len(cfg.Durable) > 0, lastAwaited: -time.Hour,
		members: membersState{known: map[identity.Node]bool{}},
		pullers: map[identity.Node]time.Duration{},
		rounds:  roundsState{open: map[uint64]*round{}},
		deltas: deltaState{
			followers: map[identity.Node]*follower{}, requested: map[string]time.Duration{}, lastChange: -time.Hour, lastFlush: -time.Hour,
		},
		pruning: pruningState{removed: map[identity.Node]time.Duration{}},
		subs:    subscriptions{byNr: map[uint64]*subscription{}, exact: map[string][]*subscription{}},
		stores:  storesState{waiting: map[uint64]waiter{}, records: map[uint64]*entry{}},
	}
	for _, p := range cfg.Durable {
		m.durable.add(p, struct{}{})
	}
	for p, d := range cfg.Expire {
		m.expire.add(p, d)
	}
	for i := range m.timers {
		m.timers[i] = Never
	}
	// Spread the rounds of nodes that were started together.
	m.timers[timerGossip] = time.Duration(m.rand.Int64N(int64(cfg.GossipInterval)))
	if cfg.PruneInterval > 0 {
		m.timers[timerPrune] = cfg.PruneInterval
	}
	return m, nil
}

// Step processes a batch of inputs. The time now must not decrease between calls.
func (m *Machine) Step(now time.Duration, b Batch) Effects {
	m.begin(now)
	if b.Members != nil && !m.stopped {
		m.setMembers(*b.Members)
		m.endInput()
	}
	for i := range b.Packets {
		m.receivePacket(&b.Packets[i])
	}
	for _, in := range b.Inputs {
		if !m.stopped {
			m.handle(in)
			m.endInput()
		}
	}
	return m.end()
}

func (m *Machine) handle(in Input) {
	switch in := in.(type) {
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
	default:
		m.request(in)
	}
}

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
		m.deltas.sendNow, m.deltas.pushLargeToo = true, true
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

// Next returns the time at which Tick must be called, or Never. Every step may change it.
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

// Tick runs the timers that are due.
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
			m.runTimer(t)
		}
	}
	m.endInput()
	return m.end()
}

func (m *Machine) runTimer(t timer) {
	[timers]func(*Machine){
		timerGossip:  (*Machine).gossipTick,
		timerCompare: (*Machine).compare,
		timerDelta:   func(m *Machine) { m.deltas.sendNow = true },
		timerNotify:  (*Machine).notify,
		timerPrune:   (*Machine).prune,
		timerPull:    (*Machine).pullDue,
		timerStore:   (*Machine).retryStores,
		timerSend:    (*Machine).sendOutgoing,
		timerExpire:  (*Machine).expireSome,
	}[t](m)
}

func (m *Machine) setTimer(t timer, after time.Duration) { m.timers[t] = m.now + after }

// setTimerBy sets a timer unless it is due earlier.
func (m *Machine) setTimerBy(t timer, at time.Duration) { m.timers[t] = min(m.timers[t], at) }

func (m *Machine) begin(now time.Duration) {
	m.now = max(m.now, now)
	m.out, m.spare = m.spare, Effects{}
}

// endInput performs the work that an input has scheduled for its end.
func (m *Machine) endInput() {
	if m.deltas.sendNow && !m.stopped && !m.loading {
		m.deltas.sendNow = false
		m.propagate()
	}
	m.storeQueued()
}

func (m *Machine) end() Effects {
	m.packSends()
	return m.out
}

func (m *Machine) wallTime() time.Time { return m.cfg.Started.Add(m.now + m.skew) }

// wall returns the wall time in Unix milliseconds.
func (m *Machine) wall() uint64 { return uint64(max(1, m.wallTime().UnixMilli())) }

func (m *Machine) note(n Note) { m.out.Notes = append(m.out.Notes, n) }

func (m *Machine) reply(r Reply) { m.out.Replies = append(m.out.Replies, r) }

// send sends a message. A message that is too large for one packet is sent in parts. Messages above
// MaxMessage are dropped.
func (m *Machine) send(to identity.Node, bulk bool, msg Message) {
	m.sendEncoded(to, bulk, msg.kind(), AppendMessage(nil, msg))
}

func (m *Machine) sendEncoded(to identity.Node, bulk bool, kind Kind, data []byte) {
	switch {
	case len(data) > MaxMessage:
		m.count.Dropped[DropTooLarge]++
	case len(data) > m.cfg.MaxMessage:
		m.split(to, bulk, data)
	default:
		m.count.Sent[kind]++
		m.count.SentBytes[kind] += uint64(len(data))
		m.sends = append(m.sends, message{to, bulk, data})
	}
}

func (m *Machine) stop() {
	for _, in := range m.queue {
		if r, is := requestOf(in); is {
			m.reply(Reply{ID: r.ID, Outcome: Stopped})
		}
	}
	m.queue = nil
	for _, nr := range slices.Sorted(maps.Keys(m.rounds.open)) {
		m.finish(m.rounds.open[nr], Stopped, nil)
	}
	for _, nr := range slices.Sorted(maps.Keys(m.stores.waiting)) {
		if w := m.stores.waiting[nr]; w.kind == waitsReply {
			w.reply.Outcome = Stopped
			m.reply(w.reply)
		}
	}
	for len(m.stores.failed) > 0 { // last attempt
		m.retryStores()
	}
	m.stopped, m.out.Stopped = true, true
}

// Value returns the content of a key. It is the zero Value for a deleted key.
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

// ReplicaCount returns the number of nodes that count in a quorum, including this one; 0 while
// records are loaded.
func (m *Machine) ReplicaCount() int {
	if m.loading {
		return 0
	}
	return len(m.members.eligible) + 1
}

// Root returns the digest of all data: machines with the same root hold the same data.
func (m *Machine) Root() Digest {
	m.updateDigests()
	return m.tree.root.digest()
}

// Synced reports whether this node has fetched the data that other nodes had when it joined.
func (m *Machine) Synced() bool { return m.pull.done }

// Counters returns the counters.
func (m *Machine) Counters() Counters {
	c := m.count
	c.Keys, c.Tombstones = m.alive, len(m.keys)-m.alive
	c.Open, c.Log, c.Storing = len(m.rounds.open), len(m.deltas.log), len(m.stores.waiting)
	return c
}

func (m *Machine) receive(from identity.Node, data []byte) {
	switch {
	case m.loading:
		m.count.Dropped[DropLoading]++
	case !m.members.known[from]:
		m.count.Dropped[DropStranger]++
	default:
		m.receiveData(from, data, false)
	}
}

// receiveData handles a complete message. assembled is set if it was assembled from parts.
func (m *Machine) receiveData(from identity.Node, data []byte, assembled bool) {
	r := reader{Reader: *wire.NewReader(data, wireMajor|wireMinor, MaxMessage, ErrMalformed), known: m.keys}
	kind := r.head()
	var msg Message
	var ack Ack
	var delta Delta
	switch { // the most frequent kinds are not converted to an interface
	case r.Err() != nil:
	case kind == KindAck:
		ack = readAck(&r)
	case kind == KindDelta:
		delta = readDelta(&r, m.items)
		m.items = nil
	default:
		msg = readMessage(&r, kind)
	}
	if err := r.End(); err != nil {
		m.count.Dropped[DropMalformed]++
		m.note(Note{Kind: NoteMalformed, Node: from, Err: err})
		return
	}
	m.count.Received[kind]++
	m.messageNr++
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

// maxReused is the maximum length of a list whose memory is reused.
const maxReused = 4096

// maxScratch is the maximum size of a value buffer that is reused.
const maxScratch = 1 << 20

// Reuse lets the next step use the memory of the effects of the last step. The caller must not use
// these effects afterwards. Effects that are not passed to Reuse stay valid.
func (m *Machine) Reuse(e Effects) {
	m.spare = Effects{
		Notes: reuse(e.Notes), Store: reuse(e.Store), Send: reuse(e.Send), Values: reuse(e.Values), Replies: reuse(e.Replies), Events: reuse(e.Events),
	}
}

// reuse returns an empty list with the memory of s.
func reuse[E any](s []E) []E {
	if cap(s) > maxReused {
		return nil
	}
	clear(s)
	return s[:0]
}

// shortMessage returns a buffer within a block that short messages share.
func (m *Machine) shortMessage(size int) []byte {
	const many = 2048
	if cap(m.shortBuf)-len(m.shortBuf) < size {
		m.shortBuf = make([]byte, 0, many)
	}
	n := len(m.shortBuf)
	m.shortBuf = m.shortBuf[:n+size]
	return m.shortBuf[n : n : n+size]
}
