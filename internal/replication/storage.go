// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/identity"
)

const (
	// storeRetry is the time until a failed write is retried.
	storeRetry = time.Second
	// maxRetried and maxRetriedBytes limit the records retried at a time, approximately.
	maxRetried      = 1_024
	maxRetriedBytes = 8 << 20
)

type storesState struct {
	last    uint64
	waiting map[uint64]waiter
	peers   int               // number of waiting writes of other nodes
	records map[uint64]*entry // the last pending record of each key
	queued  []*entry          // entries to store at the end of the step
	failed  []*entry          // entries to store again
}

type waits uint8

const (
	waitsNobody waits = iota
	waitsReply        // a request that needs no other node
	waitsRound        // a round
	waitsPeer         // a write of another node
)

type waiter struct {
	kind  waits
	nr    uint64 // number of the round on this node or on the peer
	node  identity.Node
	reply Reply
}

func (m *Machine) store(e *entry, w waiter) {
	e.storeQueued = false
	r := Record{Deleted: e.deleted, Used: e.used}
	if !e.deleted {
		b, err := e.value.AppendBinary(make([]byte, 0, e.size+64))
		if err != nil {
			m.note(Note{Kind: NoteStore, Key: e.key, Err: err})
			m.storeEnded(w, err)
			return
		}
		r.Value = b
		for i := range e.pruning {
			if e.pruning[i].Performed {
				r.Pruning = append(r.Pruning, e.pruning[i])
			}
		}
	}
	m.write(e, AppendRecord(nil, r), w)
}

// write writes a record to disk, or deletes it if data is nil.
func (m *Machine) write(e *entry, data []byte, w waiter) {
	s := &m.stores
	s.last++
	if w.kind != waitsNobody {
		s.waiting[s.last] = w
	}
	if w.kind == waitsPeer {
		s.peers++
	}
	delete(s.records, e.record)
	e.record = s.last
	s.records[s.last] = e
	m.out.Store = append(m.out.Store, Store{Nr: s.last, Key: e.key, Data: data})
}

// storeSoon schedules an entry that was changed without a request to be stored at the end of the
// step, if it is durable.
func (m *Machine) storeSoon(e *entry) {
	if e.durable && !e.storeQueued && !m.loading {
		e.storeQueued = true
		m.stores.queued = append(m.stores.queued, e)
	}
}

func (m *Machine) storeQueued() {
	for _, e := range m.stores.queued {
		if e.storeQueued && !e.removed {
			m.store(e, waiter{})
		}
		e.storeQueued = false
	}
	clear(m.stores.queued)
	m.stores.queued = m.stores.queued[:0]
}

func (m *Machine) deleteRecord(e *entry) {
	if m.loading { // nothing is written while loading
		m.queueRetry(e)
		m.setTimerBy(timerStore, m.now)
		return
	}
	m.write(e, nil, waiter{})
}

// queueRetry schedules an entry to be stored again. Without a retry the record on disk would be
// outdated, and a restart could undo a deletion.
func (m *Machine) queueRetry(e *entry) {
	if !e.storeFailed {
		e.storeFailed = true
		m.stores.failed = append(m.stores.failed, e)
	}
	m.setTimerBy(timerStore, m.now+storeRetry)
}

func (m *Machine) retryStores() {
	s := &m.stores
	n, size := 0, 0
	for n < len(s.failed) && n < maxRetried && size < maxRetriedBytes {
		e := s.failed[n]
		n++
		e.storeFailed = false
		if e.record != 0 {
			continue // stored since then
		}
		if now := m.keys[e.key]; now != nil && now.durable {
			size += now.size
			m.store(now, waiter{})
		} else {
			m.write(e, nil, waiter{})
		}
	}
	if s.failed = slices.Delete(s.failed, 0, n); len(s.failed) > 0 {
		m.setTimer(timerStore, storeRetry)
	}
}

func (m *Machine) stored(in Stored) {
	if in.Err != nil {
		m.note(Note{Kind: NoteStore, N: len(in.Nrs), Err: in.Err})
	}
	for _, nr := range in.Nrs {
		if e := m.stores.records[nr]; e != nil {
			delete(m.stores.records, nr)
			if e.record = 0; in.Err != nil {
				m.queueRetry(e)
			}
		}
		if w, found := m.stores.waiting[nr]; found {
			delete(m.stores.waiting, nr)
			if w.kind == waitsPeer {
				m.stores.peers--
			}
			m.storeEnded(w, in.Err)
		}
	}
}

func (m *Machine) storeEnded(w waiter, err error) {
	switch w.kind {
	case waitsReply:
		if err != nil {
			w.reply.Outcome, w.reply.Err = StoreFailed, err
		}
		m.count.Outcomes[w.reply.Outcome]++
		m.reply(w.reply)
	case waitsRound:
		r := m.rounds.open[w.nr]
		switch {
		case r == nil: // the round has timed out
		case err != nil:
			m.finish(r, StoreFailed, err)
		case r.phase == repairing:
			r.storing = false
			m.repaired(r)
		default:
			r.storing = false
			m.check(r)
		}
	case waitsPeer:
		verdict := Merged
		if err != nil {
			verdict = StoreFault
		}
		m.ack(w.node, w.nr, verdict)
	case waitsNobody:
	}
}

// receiveWrite merges an entry and acknowledges it once it is stored.
func (m *Machine) receiveWrite(from identity.Node, in Write) {
	if m.isExpired(in.Entry.Key, in.Entry.Used) {
		in.Entry.Used = m.wall() // the key is in use now, even if the sender's clock is wrong
	}
	a, err := m.absorb(&in.Entry)
	if err != nil {
		m.ack(from, in.Nr, m.noteRefused(from, in.Entry.Key, err))
		return
	}
	if a.e != nil && a.e.durable {
		// Store the entry even if nothing has changed, because its last record may still be
		// pending.
		m.storeFor(a.e, from, in.Nr)
		return
	}
	m.ack(from, in.Nr, Merged)
}

func (m *Machine) storeFor(e *entry, from identity.Node, nr uint64) {
	if nr == 0 {
		m.store(e, waiter{})
		return
	}
	if m.stores.peers >= 2*m.cfg.MaxRequests { // the disk cannot keep up
		m.store(e, waiter{})
		m.ack(from, nr, StoreFault)
		return
	}
	m.store(e, waiter{kind: waitsPeer, node: from, nr: nr})
}

func (m *Machine) ack(to identity.Node, nr uint64, verdict Verdict) {
	if nr != 0 {
		m.lastAwaited = m.now
		m.sendEncoded(to, false, KindAck, appendAck(m.shortMessage(maxAck), nr, verdict))
	}
}

func (m *Machine) load(in Load) {
	if !m.loading {
		return
	}
	r, err := DecodeRecord(in.Data)
	if err == nil {
		err = CheckKey(in.Key)
	}
	if err == nil {
		_, err = m.absorb(&Entry{Key: in.Key, Deleted: r.Deleted, Value: r.Value, Pruning: r.Pruning})
	}
	if err != nil {
		// Continuing without the record would lose acknowledged data.
		m.note(Note{Kind: NoteLoad, Key: in.Key, Err: fmt.Errorf("load %q: %w", in.Key, err)})
		m.stop()
		return
	}
	if e := m.keys[in.Key]; e != nil {
		e.durable = true // even if Config.Durable no longer matches, so that a deletion reaches the disk
		if r.Used > 0 {
			m.use(e, r.Used)
		} else {
			m.touch(e)
		}
	}
}

func (m *Machine) loaded() {
	if !m.loading {
		return
	}
	if len(m.cfg.Expire) > 0 {
		m.expireUpTo(math.MaxInt)
	}
	m.loading = false
	queue := m.queue
	m.queue = nil
	for _, in := range queue {
		m.request(in)
	}
	m.notify()
	m.startPull()
}

// Backlog holds the last pending record of each key. The zero value is empty. It is not safe for
// concurrent use.
type Backlog struct {
	order []string // keys in order of arrival, including those that were taken
	byKey map[string]*waiting
}

// waiting is the pending record of a key, with the numbers of all Store effects of the key that it
// replaces.
type waiting struct {
	data []byte
	nrs  []uint64
}

// Writing is a set of records for one call of the store. The result of the call is reported for all
// Nrs.
type Writing struct {
	Records []durable.Record
	Nrs     []uint64
}

// Add adds records.
func (b *Backlog) Add(stores []Store) {
	for i := range stores {
		s := &stores[i]
		w := b.waiting(s.Key)
		w.data = s.Data
		w.nrs = append(w.nrs, s.Nr)
	}
}

func (b *Backlog) waiting(key string) *waiting {
	w := b.byKey[key]
	if w != nil {
		return w
	}
	if b.byKey == nil {
		b.byKey = map[string]*waiting{}
	}
	w = new(waiting)
	b.byKey[key] = w
	b.order = append(b.order, key)
	return w
}

// Len returns the number of pending records.
func (b *Backlog) Len() int { return len(b.byKey) }

// Take removes the oldest pending records, limited by number and bytes. It removes at least one
// record unless the backlog is empty.
func (b *Backlog) Take(records, bytes int) Writing {
	var out Writing
	taken := 0
	for _, key := range b.order {
		w := b.byKey[key]
		if len(out.Records) > 0 && (len(out.Records) == records || len(key)+len(w.data) > bytes) {
			break
		}
		taken++
		bytes -= len(key) + len(w.data)
		out.Records = append(out.Records, durable.Record{Key: key, Data: w.data})
		out.Nrs = append(out.Nrs, w.nrs...)
		delete(b.byKey, key)
	}
	if b.order = b.order[taken:]; len(b.order) == 0 {
		b.order = nil
	}
	return out
}

// Return puts back records that could not be written, except those of keys with a newer record. The
// numbers of these records were already reported.
func (b *Backlog) Return(w Writing) {
	for _, r := range w.Records {
		if b.byKey[r.Key] == nil {
			b.waiting(r.Key).data = r.Data
		}
	}
}

// Fit returns the records that pass Check, and results with the error of Check for the other records.
func Fit(stores []Store) (fit []Store, unfit []Stored) {
	for i := range stores {
		if err := (durable.Record{Key: stores[i].Key, Data: stores[i].Data}).Check(); err != nil {
			unfit = append(unfit, Stored{Nrs: []uint64{stores[i].Nr}, Err: err})
			continue
		}
		fit = append(fit, stores[i])
	}
	return fit, unfit
}
