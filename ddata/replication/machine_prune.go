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

// pruningState is what the machine knows of nodes that have left.
type pruningState struct {
	removed map[identity.Node]time.Duration // since when, by the clock
	clock   time.Duration                   // stands still while some node can't be reached
	last    time.Duration                   // when the clock was advanced
}

// advance advances the clock of pruning.
func (m *Machine) advance() {
	p := &m.pruning
	if m.allReachable() {
		p.clock += m.now - p.last
	}
	p.last = m.now
}

func (m *Machine) allReachable() bool { return len(m.members.reachable) == len(m.members.gossip) }

// prune is one step of forgetting nodes that have left: what they have changed is
// moved to the leader, once all nodes have said that they know.
func (m *Machine) prune() {
	if m.loading || !m.allReachable() {
		return
	}
	if m.members.leader == m.self {
		m.findRemoved()
		m.initiate()
	}
	m.perform()
	m.clearMarkers()
}

// each calls f for all entries with a value, in order.
func (m *Machine) each(f func(e *entry)) {
	for i := range m.buckets {
		for _, e := range m.buckets[i] {
			if !e.deleted {
				f(e)
			}
		}
	}
}

// findRemoved finds nodes that have left before this one came, by what they have
// changed.
func (m *Machine) findRemoved() {
	m.each(func(e *entry) {
		for _, n := range e.value.ModifiedBy() {
			if _, found := m.pruning.removed[n]; !found && !m.isAlive(n) {
				m.pruning.removed[n] = m.pruning.clock
			}
		}
	})
}

// due returns the nodes that have been away for long enough, for some keys at least.
func (m *Machine) due() []identity.Node {
	var due []identity.Node
	for _, n := range slices.SortedFunc(maps.Keys(m.pruning.removed), identity.Node.Compare) {
		if m.pruning.clock-m.pruning.removed[n] > min(m.cfg.PruneAfter, m.cfg.DurablePruneAfter) {
			due = append(due, n)
		}
	}
	return due
}

// initiate says that this node is going to take over what others have left.
func (m *Machine) initiate() {
	for _, n := range m.due() {
		keys, away := 0, m.pruning.clock-m.pruning.removed[n]
		m.each(func(e *entry) {
			k := e.marker(n)
			if e.durable && away <= m.cfg.DurablePruneAfter || !e.durable && away <= m.cfg.PruneAfter || !e.value.NeedsPruning(n) || k != nil && (k.Performed || k.Owner == m.self) {
				return
			}
			keys++
			m.mark(e, Marker{Removed: n, Owner: m.self})
		})
		if keys > 0 {
			m.count.Initiated += uint64(keys)
			m.note(Note{Kind: NotePruning, Node: n, N: keys})
		}
	}
}

// mark puts a marker into an entry. The list that was there stays as it is.
func (m *Machine) mark(e *entry, k Marker) {
	m.spoil(e)
	i, found := findMarker(e.pruning, k.Removed)
	e.pruning = slices.Clone(e.pruning)
	if found {
		e.pruning[i] = k
	} else {
		e.pruning = slices.Insert(e.pruning, i, k)
	}
	e.dropVersions()
}

// perform takes over what was initiated by this node and was seen by all.
func (m *Machine) perform() {
	pruned := map[identity.Node]int{}
	m.each(func(e *entry) {
		changed := false
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
			m.mark(e, Marker{Removed: k.Removed, Performed: true, Obsolete: m.wall() + millis(ttl)})
			pruned[k.Removed]++
			m.count.Pruned++
			changed = true
		}
		if changed {
			m.keep(e)
		}
	})
	for _, n := range slices.SortedFunc(maps.Keys(pruned), identity.Node.Compare) {
		m.note(Note{Kind: NotePruned, Node: n, N: pruned[n]})
	}
}

// seenByAll reports whether all nodes that hold the data have seen a marker.
func (m *Machine) seenByAll(seen []identity.Node) bool {
	return !slices.ContainsFunc(m.members.gossip, func(n identity.Node) bool { return !contains(seen, n) })
}

// clearMarkers forgets what is obsolete, and nodes of which nothing is left.
func (m *Machine) clearMarkers() {
	wall := m.wall()
	left := map[identity.Node]bool{}
	m.each(func(e *entry) {
		obsolete := func(k Marker) bool { return k.Performed && k.Obsolete <= wall }
		if slices.ContainsFunc(e.pruning, obsolete) {
			m.spoil(e)
			e.pruning = slices.DeleteFunc(slices.Clone(e.pruning), obsolete)
			m.count.Cleared++
			m.keep(e)
		}
		for _, k := range e.pruning {
			left[k.Removed] = true
		}
		for _, n := range e.value.ModifiedBy() {
			left[n] = true
		}
	})
	for _, n := range m.due() {
		if !left[n] {
			delete(m.pruning.removed, n)
		}
	}
	if len(m.pruning.removed) > MaxNodes {
		m.dropRemoved()
	}
}

// dropRemoved forgets the half of the nodes that have left last: they are found
// again by what they have changed.
func (m *Machine) dropRemoved() {
	nodes := slices.SortedFunc(maps.Keys(m.pruning.removed), func(a, b identity.Node) int {
		return cmp.Or(cmp.Compare(m.pruning.removed[a], m.pruning.removed[b]), a.Compare(b))
	})
	for _, n := range nodes[len(nodes)/2:] {
		delete(m.pruning.removed, n)
	}
}
