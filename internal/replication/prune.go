// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

type pruningState struct {
	removed map[identity.Node]time.Duration // time of removal of each node, measured by clock
	clock   time.Duration                   // does not advance while a node is unreachable
	last    time.Duration                   // time of the last update of clock
	pass    *pruningPass                    // nil if no pass is running
}

// pruningPass is a scan of all entries, in several steps.
type pruningPass struct {
	bucket int    // the next bucket to scan
	after  string // the last scanned key in that bucket
	begun  map[identity.Node]int
	moved  map[identity.Node]int
	left   map[identity.Node]bool // nodes with history or a marker in some entry
}

func (m *Machine) advancePruningClock() {
	p := &m.pruning
	if m.allReachable() {
		p.clock += m.now - p.last
	}
	p.last = m.now
}

func (m *Machine) allReachable() bool { return len(m.members.reachable) == len(m.members.gossip) }

// prune scans some entries for history of removed nodes. The leader takes over that history once
// all nodes have seen its marker. A scan takes several steps, because requests wait during a step.
func (m *Machine) prune() {
	p := &m.pruning
	over := m.loading || !m.allReachable()
	if !over {
		if p.pass == nil {
			p.pass = &pruningPass{begun: map[identity.Node]int{}, moved: map[identity.Node]int{}, left: map[identity.Node]bool{}}
		}
		if !m.pruneSome(p.pass) {
			m.setTimer(timerPrune, stepPause)
			return
		}
		m.forgetRemoved(p.pass.left)
	}
	if p.pass != nil {
		m.notePruned(NotePruning, p.pass.begun)
		m.notePruned(NotePruned, p.pass.moved)
		p.pass = nil
	}
	m.setTimer(timerPrune, m.cfg.PruneInterval)
}

func (m *Machine) notePruned(kind NoteKind, keys map[identity.Node]int) {
	for _, n := range slices.SortedFunc(maps.Keys(keys), identity.Node.Compare) {
		m.note(Note{Kind: kind, Node: n, N: keys[n]})
	}
}

// pruneSome scans some entries in order, and reports whether the scan is complete.
func (m *Machine) pruneSome(x *pruningPass) bool {
	const weight = 256 // bytes of a value that count as one entry: in a map, each value has its own history
	looked := 0
	for ; x.bucket < buckets; x.bucket++ {
		for _, e := range entriesAfter(m.buckets[x.bucket], x.after) {
			if looked >= maxScanned {
				return false
			}
			looked += 1 + e.size/weight
			x.after = e.key
			if !e.deleted {
				looked += m.pruneEntry(x, e)
			}
		}
		x.after = ""
	}
	return true
}

// pruneEntry prunes one entry. It returns the cost as an approximate number of entries to scan.
func (m *Machine) pruneEntry(x *pruningPass, e *entry) (effort int) {
	const change = 8
	before := m.count.Initiated + m.count.Pruned
	// A node that has only removed elements leaves no history and gets no marker.
	e.versions = slices.DeleteFunc(e.versions, func(v Version) bool { return !m.isAlive(v.Node) })
	nodes := e.value.ModifiedBy()
	if m.members.leader == m.self {
		for _, n := range nodes {
			m.initiate(x, e, n)
		}
	}
	if len(e.pruning) > 0 {
		if m.perform(x, e) {
			nodes = e.value.ModifiedBy()
		}
		m.clearMarkers(e)
	}
	for i := range e.pruning {
		x.left[e.pruning[i].Removed] = true
	}
	for _, n := range nodes {
		x.left[n] = true
	}
	return len(nodes) + len(e.pruning) + change*int(m.count.Initiated+m.count.Pruned-before) //nolint:gosec // a few per node
}

// initiate adds a marker once node n has been removed for long enough. The marker announces that
// this node will take over the history of n. A node that was removed before this node joined is
// discovered by its history.
func (m *Machine) initiate(x *pruningPass, e *entry, n identity.Node) {
	p := &m.pruning
	since, found := p.removed[n]
	if !found {
		if !m.isAlive(n) {
			p.removed[n] = p.clock
		}
		return
	}
	after := m.cfg.PruneAfter
	if e.durable {
		after = m.cfg.DurablePruneAfter
	}
	if k := e.marker(n); p.clock-since <= after || k != nil && (k.Performed || k.Owner == m.self) {
		return
	}
	x.begun[n]++
	m.count.Initiated++
	m.setMarker(e, Marker{Removed: n, Owner: m.self})
}

// setMarker sets a marker of an entry. It does not modify the previous list.
func (m *Machine) setMarker(e *entry, k Marker) {
	m.markDirty(e)
	i, found := findMarker(e.pruning, k.Removed)
	e.pruning = slices.Clone(e.pruning)
	if found {
		e.pruning[i] = k
	} else {
		e.pruning = slices.Insert(e.pruning, i, k)
	}
	e.dropVersions()
}

// perform takes over the history of each marker that this node owns and that all nodes have seen.
// It reports whether the value has changed.
func (m *Machine) perform(x *pruningPass, e *entry) (changed bool) {
	for _, k := range e.pruning {
		if k.Performed || k.Owner != m.self || !m.seenByAll(k.Seen) {
			continue
		}
		v, err := e.value.Prune(m.actor, k.Removed)
		if err != nil {
			m.note(Note{Kind: NoteRefused, Node: k.Removed, Key: e.key, Err: err})
			continue
		}
		ttl := m.cfg.MarkerTTL
		if e.durable {
			ttl = m.cfg.DurableMarkerTTL
		}
		m.set(e, v)
		e.size = 0
		m.setMarker(e, Marker{Removed: k.Removed, Performed: true, Obsolete: m.wall() + millis(ttl)})
		x.moved[k.Removed]++
		m.count.Pruned++
		changed = true
	}
	if changed {
		m.storeSoon(e)
	}
	return changed
}

// seenByAll reports whether all nodes that hold the data are in seen.
func (m *Machine) seenByAll(seen []identity.Node) bool {
	return !slices.ContainsFunc(m.members.gossip, func(n identity.Node) bool { return !contains(seen, n) })
}

func (m *Machine) clearMarkers(e *entry) {
	wall := m.wall()
	obsolete := func(k Marker) bool { return k.Performed && k.Obsolete <= wall }
	if slices.ContainsFunc(e.pruning, obsolete) {
		m.markDirty(e)
		e.pruning = slices.DeleteFunc(slices.Clone(e.pruning), obsolete)
		m.count.Cleared++
		m.storeSoon(e)
	}
}

// forgetRemoved discards removed nodes without history. If history remains, a later scan discovers
// the node again.
func (m *Machine) forgetRemoved(left map[identity.Node]bool) {
	p := &m.pruning
	maps.DeleteFunc(p.removed, func(n identity.Node, since time.Duration) bool {
		return !left[n] && p.clock-since > min(m.cfg.PruneAfter, m.cfg.DurablePruneAfter)
	})
	if len(p.removed) > MaxNodes {
		m.dropRemoved()
	}
}

// dropRemoved discards the more recently removed half of the nodes. A later scan discovers them
// again by their history.
func (m *Machine) dropRemoved() {
	nodes := slices.SortedFunc(maps.Keys(m.pruning.removed), func(a, b identity.Node) int {
		return cmp.Or(cmp.Compare(m.pruning.removed[a], m.pruning.removed[b]), a.Compare(b))
	})
	for _, n := range nodes[len(nodes)/2:] {
		delete(m.pruning.removed, n)
	}
}
