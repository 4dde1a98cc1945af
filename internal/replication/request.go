// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"slices"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/panics"
)

func (m *Machine) get(in Get) {
	if !m.admit(in.Request) {
		return
	}
	if e := m.keys[in.Key]; e != nil {
		m.touch(e)
	}
	peers := m.order(in.Level, in.PreferOldest, nil)
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
			m.storeSoon(a.e) // even if merging another answer fails
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

// repair writes the result of a read to other nodes: first to the nodes that returned another value, and in the second wave to further nodes.
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

func (m *Machine) update(in *Update) {
	if !m.admit(in.Request) {
		return
	}
	e := m.keys[in.Key]
	if e != nil && e.deleted {
		m.touch(e)
		m.replyLocal(in.Request, Deleted, crdt.Value{})
		return
	}
	var current crdt.Value
	var pruning []Marker
	size := 0
	if e != nil {
		current, pruning, size = e.value, e.pruning, e.size
	}
	next, delta, err := m.modify(in, current, pruning)
	if err != nil {
		m.fail(in.Request, err)
		return
	}
	same := e != nil && delta.IsZero() && crdt.Equal(next, current)
	var encoded []byte
	if !same {
		if encoded, err = delta.AppendBinary(m.deltaBuf[:0]); err == nil {
			m.deltaBuf = encoded[:0]
			size, err = m.checkSize(in.Key, current, next, size, len(encoded), e != nil && e.nearMax)
		}
		if err != nil {
			m.fail(in.Request, err)
			return
		}
	}
	whole := same || delta.IsZero() || m.cfg.DisableDeltas
	if e == nil {
		whole = true // other nodes have no value to which a delta can be applied
	}
	if e, err = m.ensure(in.Key); err != nil {
		m.fail(in.Request, err)
		return
	}
	pos := uint64(0)
	if !same {
		if e.version == 0 {
			whole = whole || m.base > 0
			e.version = m.base
		}
		e.version++
		m.set(e, next)
		e.size, e.changedAt = size, max(1, m.now)
		m.noteSize(e)
		pos = m.logChange(e, delta, whole, in.Level.Kind == Local)
		if len(m.deltas.log) > m.cfg.MaxLog/2 && len(m.members.gossip) < smallCluster {
			m.deltas.sendNow = true // send the log before changes are dropped from it
		}
	}
	m.touch(e)
	m.replicate(in.Request, e, pos, encoded, whole, Done)
}

func (m *Machine) modify(in *Update, current crdt.Value, pruning []Marker) (next crdt.Value, delta crdt.Delta, err error) {
	m.actor.Advance(m.wallTime())
	changed, err := callModify(in.Modify, current)
	switch {
	case err != nil:
		return current, delta, err
	case changed.IsZero():
		return current, delta, Errorf(ErrInvalid, "no value for %q", in.Key)
	}
	if delta = changed.Delta(); !delta.ModifiedOnlyBy(m.self) {
		return current, crdt.Delta{}, Errorf(ErrForeign, "%q was changed with the Self of another node", in.Key)
	}
	if current.IsZero() {
		next = changed.ResetDelta()
	} else {
		if !delta.IsZero() && !changed.DeltaIsComplete(current) {
			delta = crdt.Delta{} // the value was merged with another one, so the delta is incomplete
		}
		if next, err = current.Merge(changed); err != nil {
			return current, delta, mergeError(in.Key, err)
		}
	}
	if next, err = cleanUp(next, pruning); err != nil {
		return current, delta, fmt.Errorf("clean %q: %w", in.Key, err)
	}
	return next, delta, nil
}

func callModify(modify func(crdt.Value) (crdt.Value, error), current crdt.Value) (v crdt.Value, err error) {
	defer panics.Into(&err)
	return modify(current)
}

// checkSize returns a lower bound of the size of the encoded value, and an error if the value
// exceeds both Config.MaxEntry and its former size. It encodes the value only if it may be too
// large, or if its size may be worth a note. The argument noted reports that there was a note.
func (m *Machine) checkSize(key string, current, next crdt.Value, size, grown int, noted bool) (int, error) {
	most := m.cfg.MaxEntry
	exactAbove := m.noteAbove()
	if noted {
		exactAbove = most - most/8
	}
	if size > 0 && grown > 0 && !next.HasCustomType() && size+grown <= exactAbove {
		return size + grown, nil
	}
	b, err := next.AppendBinary(m.valueBuf[:0])
	if err != nil {
		return 0, fmt.Errorf("encode %q: %w", key, err)
	}
	if len(b) <= most {
		return len(b), nil
	}
	if !current.IsZero() {
		if was, err := current.AppendBinary(nil); err == nil && len(b) < len(was) {
			return len(b), nil
		}
	}
	return 0, &TooLargeError{Key: key, Size: len(b), Max: most}
}

// noteAbove is the size of a value above which the machine notes that it approaches Config.MaxEntry.
func (m *Machine) noteAbove() int { return m.cfg.MaxEntry - m.cfg.MaxEntry/4 }

// noteSize notes that the size of a value has risen above noteAbove, once for each rise.
func (m *Machine) noteSize(e *entry) {
	near := e.size > m.noteAbove()
	if near && !e.nearMax {
		m.note(Note{Kind: NoteLarge, Key: e.key, N: e.size})
	}
	e.nearMax = near
}

func (m *Machine) delete(in Delete) {
	if !m.admit(in.Request) {
		return
	}
	if e := m.keys[in.Key]; e != nil && e.deleted {
		// The earlier deletion may have failed on other nodes or on disk, so repeat it there.
		m.touch(e)
		m.replicate(in.Request, e, 0, nil, true, Deleted)
		return
	}
	e, err := m.ensure(in.Key)
	if err != nil {
		m.fail(in.Request, err)
		return
	}
	m.makeTombstone(e)
	if e.version == 0 {
		e.version = m.base
	}
	m.touch(e)
	pos := m.logChange(e, crdt.Delta{}, true, in.Level.Kind == Local)
	m.replicate(in.Request, e, pos, nil, true, Done)
}

// replicate stores an entry that is durable and sends it to as many nodes as the level requires.
// The request is answered with done.
func (m *Machine) replicate(in Request, e *entry, pos uint64, delta []byte, whole bool, done Outcome) {
	var stable *entry
	if !whole && e.causal {
		stable = e
	}
	peers := m.order(in.Level, in.PreferOldest, stable)
	alone := len(peers) == 0 && in.Level.Kind != Count && m.countsIn(in.Level)
	if alone && !e.durable {
		m.replyLocal(in, done, e.value)
		return
	}
	if alone {
		reply := Reply{ID: in.ID, Outcome: done, Value: e.value, Answered: 1, Required: 1, Total: m.total(in.Level)}
		m.store(e, waiter{kind: waitsReply, reply: reply})
		return
	}
	r := m.openRound(in, writing, peers)
	r.durable, r.value, r.found = e.durable, e.value, done
	if e.durable {
		r.storing = true
		m.store(e, waiter{kind: waitsRound, nr: r.nr})
	}
	if !whole {
		r.delta = m.encodeDelta(r.nr, e, pos, delta)
	}
	m.ask(r, r.needed)
	for i := range r.targets[:r.needed] {
		m.markDelivered(pos, r.targets[i].node)
	}
	m.check(r)
}

// encodeDelta returns the message with the last change of an entry, whose position in the log is
// pos.
func (m *Machine) encodeDelta(nr uint64, e *entry, pos uint64, delta []byte) []byte {
	if len(e.pruning) > 0 {
		return AppendMessage(nil, Delta{nr, []Item{{Key: e.key, From: e.version, To: e.version, Delta: delta, Pruned: e.pruned()}}})
	}
	b := appendDeltaHead(make([]byte, 0, itemSize(e.key, delta)+deltaHead), nr, 1)
	head := len(b)
	b = appendItem(b, e.key, e.version, e.version, delta)
	if c := m.deltas.at(pos); c != nil {
		c.item = b[head:]
	}
	return b
}
