// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"slices"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// maxFullScans is the maximum number of operations in a delta that visit all elements of a value.
const maxFullScans = 32

func (m *Machine) receiveDelta(from identity.Node, in Delta) {
	m.lastAwaited = m.now // for this node or others; existing nodes are asked before new ones
	for i := range in.Items {
		e := m.keys[in.Items[i].Key]
		if e != nil && e.marker(from) != nil {
			m.count.Dropped[DropPruned]++
			return
		}
		if m.isDuplicate(from, e) {
			return
		}
		in.Items[i].entry = e
	}
	var missing []string
	var last *entry // the last one to be stored; its result stands for all
	verdict := Merged
	for i := range in.Items {
		item := &in.Items[i]
		d, err := m.applyDelta(from, item)
		switch {
		case err != nil:
			verdict = max(verdict, m.noteRefused(from, item.Key, err))
		case d.gap:
			m.count.DeltasGap++
			missing = append(missing, item.Key)
			verdict = max(verdict, Gap)
		case d.e.durable && (d.changed || in.Nr != 0):
			if last != nil {
				m.storeSoon(last)
			}
			last = d.e
		}
	}
	switch {
	case last == nil:
		m.ack(from, in.Nr, verdict)
	case verdict == Merged:
		m.storeQueued() // acknowledged when the last record is stored
		m.storeFor(last, from, in.Nr)
	default:
		m.storeSoon(last)
		m.ack(from, in.Nr, verdict)
	}
	if in.Nr == 0 {
		m.want(from, missing)
	}
}

type deltaResult struct {
	e       *entry
	changed bool
	gap     bool // earlier changes are missing
}

func (m *Machine) applyDelta(from identity.Node, item *Item) (deltaResult, error) {
	e := item.entry
	if e == nil {
		e = m.keys[item.Key] // an earlier item may have created it
	}
	switch {
	case m.cfg.DisableDeltas:
		return deltaResult{gap: true}, nil
	case e != nil && e.deleted:
		m.count.DeltasKnown++
		return deltaResult{e: e}, nil
	case e != nil && e.causal && item.To <= e.versionOf(from) && !lacksPruning(e, item.Pruned) && e.value.TakesDelta(item.Delta):
		m.count.DeltasKnown++ // regardless of its content
		return deltaResult{e: e}, nil
	}
	delta, err := m.types.DecodeDelta(item.Delta)
	if err != nil {
		return deltaResult{}, fmt.Errorf("decode a delta of %q: %w", item.Key, err)
	}
	if delta.FullScans() > maxFullScans {
		return deltaResult{gap: true}, nil // merging the whole value is a single operation
	}
	have := uint64(0)
	var pruning []Marker
	var value crdt.Value
	if e != nil {
		have, value, pruning = e.versionOf(from), e.value, e.pruning
	} else {
		value = delta.Zero()
	}
	causal := delta.NeedsCausal()
	switch {
	case lacksPruning(e, item.Pruned):
		// The new owner counts the moved history, and this node still counts it for its old owner.
		return deltaResult{gap: true}, nil
	case causal && item.From > have+1:
		return deltaResult{gap: true}, nil
	case causal && value.NeedsFullState(delta):
		// The delta removes additions of a third node that have not arrived here yet. They would
		// arrive later and stay.
		return deltaResult{gap: true}, nil
	}
	next, err := value.MergeDelta(delta)
	if err == nil {
		next, err = cleanUp(next, pruning)
	}
	if err != nil {
		return deltaResult{}, mergeError(item.Key, err)
	}
	if e == nil {
		if e, err = m.create(item.Key); err != nil {
			return deltaResult{}, err
		}
	}
	m.count.DeltasApplied++
	a := deltaResult{e: e, changed: next != e.value}
	if a.changed {
		m.set(e, next)
		e.size += len(item.Delta)
		e.changedAt = max(1, m.now)
	}
	if causal {
		e.raiseVersion(from, item.To)
	}
	return a, nil
}

// lacksPruning reports whether an entry still has history that was moved elsewhere.
func lacksPruning(e *entry, pruned []identity.Node) bool {
	return slices.ContainsFunc(pruned, func(n identity.Node) bool {
		if e == nil {
			return true
		}
		k := e.marker(n)
		return k == nil || !k.Performed
	})
}

// want requests keys with missing changes from a node, each at most once between two rounds of
// gossip.
func (m *Machine) want(from identity.Node, keys []string) {
	keys = slices.DeleteFunc(keys, func(key string) bool {
		_, asked := m.deltas.requested[key]
		m.deltas.requested[key] = m.now
		return asked
	})
	if len(keys) > 0 {
		m.send(from, true, Want{keys})
	}
}
