// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"slices"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

func (m *Machine) get(in Get) {
	if !m.admit(in.Request) {
		return
	}
	if e := m.keys[in.Key]; e != nil {
		m.touch(e)
	}
	var peers []identity.Node
	if in.Level.Kind != Local {
		peers = m.order(in.Level, in.PreferOldest, nil)
	}
	if len(peers) == 0 && in.Level.Kind != Count && m.countsIn(in.Level) {
		o, v := m.lookup(in.Key)
		m.replyLocal(in.Request, o, v)
		return
	}
	r := m.openRound(in.Request, reading, peers)
	r.repair = in.RepairPeers
	if !r.tooFew {
		m.ask(r, r.needed)
	}
	m.check(r)
}

func (m *Machine) lookup(key string) (Outcome, crdt.Value) {
	switch e := m.keys[key]; {
	case e == nil:
		return NotFound, crdt.Value{}
	case e.deleted:
		return Deleted, crdt.Value{}
	default:
		return Done, e.value
	}
}

func (m *Machine) receiveRead(from identity.Node, in Read) {
	m.lastAwaited = m.now
	out := ReadResult{Nr: in.Nr}
	if e := m.keys[in.Key]; e != nil {
		w, err := m.encodeEntry(e)
		if err != nil {
			m.note(Note{Kind: NoteRefused, Key: e.key, Err: err})
			return
		}
		out.Entry = &w
	}
	m.send(from, false, out)
}

func (m *Machine) receiveResult(from identity.Node, in ReadResult) {
	r, t := m.target(in.Nr, from)
	switch {
	case r == nil:
		return
	case r.phase != reading, in.Entry != nil && in.Entry.Key != r.key:
		m.count.Dropped[DropLate]++
		return
	}
	t.done, t.answer = true, in.Entry
	r.answered++
	m.check(r)
}

// readDone merges the results of a read into the entry and starts a repair if required.
func (m *Machine) readDone(r *round) {
	changed := false
	for i := range r.targets {
		t := &r.targets[i]
		if t.answer == nil {
			continue
		}
		a, err := m.absorb(t.answer)
		if err != nil {
			m.noteRefused(t.node, r.key, err)
			m.finish(r, Failed, err)
			return
		}
		if a.changed {
			changed = true
			m.storeSoon(a.e) // even if another answer fails to merge
		}
	}
	if changed {
		m.count.Repaired++
	}
	e := m.keys[r.key]
	if e == nil {
		m.finish(r, NotFound, nil)
		return
	}
	m.touch(e)
	r.phase, r.durable = repairing, e.durable
	// Changes during the repair are not returned: the peers may not have them.
	r.found, r.value = m.lookup(r.key)
	if r.repair {
		m.repair(r, e)
	}
	if changed && e.durable {
		r.storing = true
		m.store(e, waiter{kind: waitsRound, nr: r.nr})
	}
	m.repaired(r)
}

// repaired ends a read, unless the disk or other nodes have not answered yet.
func (m *Machine) repaired(r *round) {
	if r.storing || r.answered < r.required {
		return
	}
	m.finish(r, r.found, nil)
}

// repair writes the result to the nodes that returned something else. They are asked first, other
// nodes in the second wave.
func (m *Machine) repair(r *round, e *entry) {
	m.updateDigest(e)
	slices.SortStableFunc(r.targets, func(a, b target) int {
		switch {
		case a.done == b.done:
			return 0
		case a.done:
			return -1
		}
		return 1
	})
	r.answered = r.ownCount
	for i := range r.targets {
		t := &r.targets[i]
		same := t.done && t.answer != nil && t.answer.digest() == e.digest
		t.asked, t.done, t.answer = same, same, nil
		if same {
			r.answered++
		}
	}
	if r.answered >= r.required {
		return
	}
	m.restartWave(r)
	m.ask(r, r.needed)
}
