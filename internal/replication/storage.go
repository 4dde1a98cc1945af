// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

const (
	// storeRetry is after which time records are written again that could not be.
	storeRetry = time.Second
	// maxRetried and maxRetriedBytes are how many of them, about, at a time.
	maxRetried      = 1_024
	maxRetriedBytes = 8 << 20
)

// storesState are the records that are being written to disk.
type storesState struct {
	last    uint64
	waiting map[uint64]waiter
	peers   int               // how many other nodes wait
	records map[uint64]*entry // the last one of each key
	kept    []*entry          // to be stored at the end of the step
	failed  []*entry          // to be stored again
}

func (s *storesState) sorted() []uint64 { return slices.Sorted(maps.Keys(s.waiting)) }

// waits is who waits for a record to be written.
type waits uint8

const (
	waitsNobody waits = iota
	waitsReply        // a request that asks no others
	waitsRound        // a round
	waitsPeer         // a node that has sent it
)

// waiter waits for a record to be written.
type waiter struct {
	kind  waits
	nr    uint64 // of the round, here or at the node
	node  identity.Node
	reply Reply
}

// store writes an entry to disk.
func (m *Machine) store(e *entry, w waiter) {
	e.kept = false
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

// write writes a record to disk, or deletes it.
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

// keep lets an entry be stored that has changed without a request, if it is durable: once, however often it changes in a step.
func (m *Machine) keep(e *entry) {
	if e.durable && !e.kept && !m.loading {
		e.kept = true
		m.stores.kept = append(m.stores.kept, e)
	}
}

// storeKept stores what is to be stored.
func (m *Machine) storeKept() {
	for _, e := range m.stores.kept {
		if e.kept && !e.gone {
			m.store(e, waiter{})
		}
		e.kept = false
	}
	clear(m.stores.kept)
	m.stores.kept = m.stores.kept[:0]
}

// erase deletes the record of an entry that is forgotten.
func (m *Machine) erase(e *entry) {
	if m.loading { // nothing is written yet
		m.storeLater(e)
		m.soon(timerStore, m.now)
		return
	}
	m.write(e, nil, waiter{})
}

// storeLater lets an entry be stored again, so that what is on disk does not stay behind what is known: a deletion would be undone by
// the next start.
func (m *Machine) storeLater(e *entry) {
	if !e.failed {
		e.failed = true
		m.stores.failed = append(m.stores.failed, e)
	}
	m.soon(timerStore, m.now+storeRetry)
}

// storeAgain stores what could not be stored.
func (m *Machine) storeAgain() {
	s := &m.stores
	n, size := 0, 0
	for n < len(s.failed) && n < maxRetried && size < maxRetriedBytes {
		e := s.failed[n]
		n++
		e.failed = false
		if e.record != 0 {
			continue // it was stored since then
		}
		if now := m.keys[e.key]; now != nil && now.durable {
			size += now.size
			m.store(now, waiter{})
		} else {
			m.write(e, nil, waiter{})
		}
	}
	if s.failed = slices.Delete(s.failed, 0, n); len(s.failed) > 0 {
		m.again(timerStore, storeRetry)
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
				m.storeLater(e)
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
		case r == nil: // it has timed out
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

// receiveWrite merges an entry, and answers once it is safe.
func (m *Machine) receiveWrite(from identity.Node, in Write) {
	if m.isExpired(in.Entry.Key, in.Entry.Used) {
		in.Entry.Used = m.wall() // it is in use now, whatever the clock of the other node says
	}
	a, err := m.absorb(&in.Entry)
	if err != nil {
		m.ack(from, in.Nr, m.refused(from, in.Entry.Key, err))
		return
	}
	if a.e != nil && a.e.durable {
		// Even if nothing has changed: the record may be on its way to the disk.
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
	if m.stores.peers >= 2*m.cfg.MaxRequests { // the disk does not keep up
		m.store(e, waiter{})
		m.ack(from, nr, StoreFault)
		return
	}
	m.store(e, waiter{kind: waitsPeer, node: from, nr: nr})
}

func (m *Machine) ack(to identity.Node, nr uint64, verdict Verdict) {
	if nr != 0 {
		m.asked = m.now
		m.sendEncoded(to, false, KindAck, appendAck(m.room(maxAck), nr, verdict))
	}
}

// load takes a record from the disk.
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
		// To go on without it would be to lose what was acknowledged.
		m.note(Note{Kind: NoteLoad, Key: in.Key, Err: fmt.Errorf("replication: load %q: %w", in.Key, err)})
		m.stop()
		return
	}
	if e := m.keys[in.Key]; e != nil {
		e.durable = true // whatever Config.Durable says: it must not come back with the next start once it is deleted
		if r.Used > 0 {
			m.use(e, r.Used)
		} else {
			m.touch(e)
		}
	}
}

// loaded begins to serve.
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
