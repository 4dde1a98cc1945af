// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"maps"
	"slices"

	"github.com/refold-io/refold/identity"
)

// storesState are the records that are being written to disk.
type storesState struct {
	last    uint64
	waiting map[uint64]waiter
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
	r := Record{Deleted: e.deleted}
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
	m.write(e.key, AppendRecord(nil, r), w)
}

// write writes a record to disk, or deletes it.
func (m *Machine) write(key string, data []byte, w waiter) {
	m.stores.last++
	if w.kind != waitsNobody {
		m.stores.waiting[m.stores.last] = w
	}
	m.out.Store = append(m.out.Store, Store{Nr: m.stores.last, Key: key, Data: data})
}

// keep stores an entry that has changed without a request, if it is durable.
func (m *Machine) keep(e *entry) {
	if e.durable {
		m.store(e, waiter{})
	}
}

func (m *Machine) stored(in Stored) {
	if in.Err != nil {
		m.note(Note{Kind: NoteStore, N: len(in.Nrs), Err: in.Err})
	}
	for _, nr := range in.Nrs {
		if w, found := m.stores.waiting[nr]; found {
			delete(m.stores.waiting, nr)
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
		m.send(w.node, false, Ack{w.nr, verdict})
	case waitsNobody:
	}
}

// receiveWrite merges an entry, and answers once it is safe.
func (m *Machine) receiveWrite(from identity.Node, in Write) {
	a, err := m.absorb(&in.Entry)
	if err != nil {
		m.refused(from, in.Entry.Key, err)
		m.ack(from, in.Nr, Refused)
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
	if len(m.stores.waiting) >= 2*m.cfg.MaxRequests { // the disk does not keep up
		m.store(e, waiter{})
		m.ack(from, nr, StoreFault)
		return
	}
	m.store(e, waiter{kind: waitsPeer, node: from, nr: nr})
}

func (m *Machine) ack(to identity.Node, nr uint64, verdict Verdict) {
	if nr != 0 {
		m.send(to, false, Ack{nr, verdict})
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
		m.touch(e)
	}
}

// loaded begins to serve.
func (m *Machine) loaded() {
	if !m.loading {
		return
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
