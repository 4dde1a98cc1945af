// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// update changes a key here, and then elsewhere.
func (m *Machine) update(in *Update) {
	if !m.admit(in.Request) {
		return
	}
	e := m.keys[in.Key]
	if e != nil && e.deleted {
		m.touch(e)
		m.local(in.Request, Deleted, crdt.Value{})
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
		if encoded, err = delta.AppendBinary(m.small[:0]); err == nil {
			m.small = encoded[:0]
			size, err = m.fits(in.Key, current, next, size, len(encoded))
		}
		if err != nil {
			m.fail(in.Request, err)
			return
		}
	}
	whole := same || delta.IsZero() || m.cfg.DisableDeltas
	if e == nil {
		// The others have nothing that a delta could change.
		whole = true
		if e, err = m.create(in.Key); err != nil {
			m.fail(in.Request, err)
			return
		}
	}
	pos := uint64(0)
	if !same {
		if e.version == 0 {
			whole = whole || m.base > 0
			e.version = m.base
		}
		e.version++
		m.set(e, next)
		e.size, e.told = size, max(1, m.now)
		pos = m.log(e, delta, whole, in.Level.Kind == Local)
		if len(m.deltas.log) > m.cfg.MaxLog/2 && len(m.members.gossip) < small {
			m.deltas.now = true // before some have to be dropped
		}
	}
	m.touch(e)
	m.spread(in.Request, e, pos, encoded, whole, Done)
}

// modify calls the user's function and merges what it returns.
func (m *Machine) modify(in *Update, current crdt.Value, pruning []Marker) (next crdt.Value, delta crdt.Delta, err error) {
	m.actor.Advance(m.wallTime())
	changed, err := call(in.Modify, current)
	switch {
	case err != nil:
		return current, delta, err
	case changed.IsZero():
		return current, delta, fmt.Errorf("%w: no value for %q", ErrInvalid, in.Key)
	}
	if delta = changed.Delta(); !delta.ModifiedOnlyBy(m.self) {
		return current, crdt.Delta{}, fmt.Errorf("%w: %q", ErrForeign, in.Key)
	}
	if current.IsZero() {
		next = changed.ResetDelta()
	} else {
		if !delta.IsZero() && !changed.DeltaIsComplete(current) {
			delta = crdt.Delta{} // it was merged with something, of which the delta says nothing
		}
		if next, err = current.Merge(changed); err != nil {
			return current, delta, mergeError(in.Key, err)
		}
	}
	if next, err = cleaned(next, pruning); err != nil {
		return current, delta, fmt.Errorf("replication: clean %q: %w", in.Key, err)
	}
	return next, delta, nil
}

func call(modify func(crdt.Value) (crdt.Value, error), current crdt.Value) (v crdt.Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{r}
		}
	}()
	return modify(current)
}

// fits returns at least what the encoded value takes, and an error if that is more
// than allowed and more than before. A value is encoded only if it may be too large.
func (m *Machine) fits(key string, current, next crdt.Value, size, grown int) (int, error) {
	most := m.cfg.MaxEntry
	if size > 0 && grown > 0 && !next.HasCustomType() && size+grown <= most-most/8 {
		return size + grown, nil
	}
	b, err := next.AppendBinary(m.scratch[:0])
	if err != nil {
		return 0, fmt.Errorf("replication: encode %q: %w", key, err)
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

// delete deletes a key here, and then elsewhere.
func (m *Machine) delete(in Delete) {
	if !m.admit(in.Request) {
		return
	}
	e := m.keys[in.Key]
	if e != nil && e.deleted {
		// The others and the disk need not have heard of it: what was deleted before may have failed there.
		m.touch(e)
		m.spread(in.Request, e, 0, nil, true, Deleted)
		return
	}
	if e == nil {
		var err error
		if e, err = m.create(in.Key); err != nil {
			m.fail(in.Request, err)
			return
		}
	}
	m.bury(e)
	if e.version == 0 {
		e.version = m.base
	}
	m.touch(e)
	pos := m.log(e, crdt.Delta{}, true, in.Level.Kind == Local)
	m.spread(in.Request, e, pos, nil, true, Done)
}

// spread stores what has changed, if it is durable, and sends it to as many others
// as the request says. Then it answers done.
func (m *Machine) spread(in Request, e *entry, pos uint64, delta []byte, whole bool, done Outcome) {
	var peers []identity.Node
	if in.Level.Kind != Local {
		var stable *entry
		if !whole && e.causal {
			stable = e
		}
		peers = m.order(in.Level, in.PreferOldest, stable)
	}
	alone := len(peers) == 0 && in.Level.Kind != Count && m.counts(in.Level)
	if alone && !e.durable {
		m.local(in, done, e.value)
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
		r.delta = m.deltaOf(r.nr, e, pos, delta)
	}
	m.ask(r, r.needed)
	for i := range r.targets[:r.needed] {
		m.tell(pos, r.targets[i].node)
	}
	m.check(r)
}

// deltaOf returns the message with the delta of the last change of an entry, which has a position in the log.
func (m *Machine) deltaOf(nr uint64, e *entry, pos uint64, delta []byte) []byte {
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
