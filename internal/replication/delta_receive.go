// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"slices"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// maxSweeps is up to how many steps of a delta may go through all of a value.
const maxSweeps = 32

// receiveDelta merges changes of another node.
func (m *Machine) receiveDelta(from identity.Node, in Delta) {
	m.asked = m.now // for this one or for others: those that are not new are asked first
	for i := range in.Items {
		e := m.keys[in.Items[i].Key]
		if e != nil && e.marker(from) != nil {
			m.count.Dropped[DropPruned]++
			return
		}
		if m.twice(from, e) {
			return
		}
		in.Items[i].entry = e
	}
	var missing []string
	var last *entry // the last one to be stored, which tells when all are
	verdict := Merged
	for i := range in.Items {
		item := &in.Items[i]
		d, err := m.applyDelta(from, item)
		switch {
		case err != nil:
			verdict = max(verdict, m.refused(from, item.Key, err))
		case d.gap:
			m.count.DeltasGap++
			missing = append(missing, item.Key)
			verdict = max(verdict, Gap)
		case d.e.durable && (d.changed || in.Nr != 0):
			if last != nil {
				m.keep(last)
			}
			last = d.e
		}
	}
	switch {
	case last == nil:
		m.ack(from, in.Nr, verdict)
	case verdict == Merged:
		m.storeKept() // the one that is answered for is the last
		m.storeFor(last, from, in.Nr)
	default:
		m.keep(last)
		m.ack(from, in.Nr, verdict)
	}
	if in.Nr == 0 {
		m.want(from, missing)
	}
}

// applied is what became of a delta.
type applied struct {
	e       *entry
	changed bool
	gap     bool // something is missing before it
}

// applyDelta merges changes of one key.
func (m *Machine) applyDelta(from identity.Node, item *Item) (applied, error) {
	e := item.entry
	if e == nil {
		e = m.keys[item.Key] // an item before this one may have made it
	}
	switch {
	case m.cfg.DisableDeltas:
		return applied{gap: true}, nil
	case e != nil && e.deleted:
		m.count.DeltasKnown++
		return applied{e: e}, nil
	case e != nil && e.causal && item.To <= e.have(from) && !lacks(e, item.Pruned) && e.value.TakesDelta(item.Delta):
		m.count.DeltasKnown++ // whatever else it says
		return applied{e: e}, nil
	}
	delta, err := m.types.DecodeDelta(item.Delta)
	if err != nil {
		return applied{}, fmt.Errorf("replication: decode a delta of %q: %w", item.Key, err)
	}
	if delta.FullScans() > maxSweeps {
		return applied{gap: true}, nil // the whole value is merged in one go
	}
	have := uint64(0)
	var pruning []Marker
	var value crdt.Value
	if e != nil {
		have, value, pruning = e.have(from), e.value, e.pruning
	} else {
		value = delta.Zero()
	}
	causal := delta.NeedsCausal()
	switch {
	case lacks(e, item.Pruned):
		// What was moved is counted at its new owner, and here still at its old one.
		return applied{gap: true}, nil
	case causal && item.From > have+1:
		return applied{gap: true}, nil
	case causal && value.NeedsFullState(delta):
		// It removes what is still on its way here from somebody else, and would come and stay.
		return applied{gap: true}, nil
	}
	next, err := value.MergeDelta(delta)
	if err == nil {
		next, err = cleaned(next, pruning)
	}
	if err != nil {
		return applied{}, mergeError(item.Key, err)
	}
	if e == nil {
		if e, err = m.create(item.Key); err != nil {
			return applied{}, err
		}
	}
	m.count.DeltasApplied++
	a := applied{e: e, changed: next != e.value}
	if a.changed {
		m.set(e, next)
		e.size += len(item.Delta)
		e.told = max(1, m.now)
	}
	if causal {
		e.raise(from, item.To)
	}
	return a, nil
}

// lacks reports whether an entry still has history that was moved elsewhere.
func lacks(e *entry, pruned []identity.Node) bool {
	return slices.ContainsFunc(pruned, func(n identity.Node) bool {
		if e == nil {
			return true
		}
		k := e.marker(n)
		return k == nil || !k.Performed
	})
}

// want asks a node for keys of which something is missing, each once between two
// rounds of gossip.
func (m *Machine) want(from identity.Node, keys []string) {
	keys = slices.DeleteFunc(keys, func(key string) bool {
		_, asked := m.deltas.asked[key]
		m.deltas.asked[key] = m.now
		return asked
	})
	if len(keys) > 0 {
		m.send(from, true, Want{keys})
	}
}
