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
	pass    *pruningPass                    // nil while there is none
}

// pruningPass is one look at all entries, some at a time.
type pruningPass struct {
	bucket int    // which is looked at next,
	after  string // in there behind this key
	begun  map[identity.Node]int
	moved  map[identity.Node]int
	left   map[identity.Node]bool // nodes of which some entry has history, or a marker
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

// prune is one round of forgetting nodes that have left: what they have changed is moved to the leader, once all nodes have said that they
// know. It looks at some of the entries at a time, as requests wait meanwhile.
func (m *Machine) prune() {
	p := &m.pruning
	over := m.loading || !m.allReachable()
	if !over {
		if p.pass == nil {
			p.pass = &pruningPass{begun: map[identity.Node]int{}, moved: map[identity.Node]int{}, left: map[identity.Node]bool{}}
		}
		if !m.pruneSome(p.pass) {
			m.again(timerPrune, refreshPause)
			return
		}
		m.forgetRemoved(p.pass.left)
	}
	if p.pass != nil {
		m.notePruned(NotePruning, p.pass.begun)
		m.notePruned(NotePruned, p.pass.moved)
		p.pass = nil
	}
	m.again(timerPrune, m.cfg.PruneInterval)
}

func (m *Machine) notePruned(kind NoteKind, keys map[identity.Node]int) {
	for _, n := range slices.SortedFunc(maps.Keys(keys), identity.Node.Compare) {
		m.note(Note{Kind: kind, Node: n, N: keys[n]})
	}
}

// pruneSome looks at some entries, in order, and reports whether those were the last ones.
func (m *Machine) pruneSome(x *pruningPass) bool {
	const weight = 256 // bytes of a value that take as long as an entry: in a map, each value has history of its own
	looked := 0
	for ; x.bucket < buckets; x.bucket++ {
		b := m.buckets[x.bucket]
		i, found := findEntry(b, x.after)
		if found {
			i++
		}
		for _, e := range b[i:] {
			if looked >= maxLooked {
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

// pruneEntry does all that is to be done with one entry. It returns about how many entries it would take as long to look at.
func (m *Machine) pruneEntry(x *pruningPass, e *entry) (effort int) {
	const change = 8
	before := m.count.Initiated + m.count.Pruned
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
	return len(nodes) + len(e.pruning) + change*int(m.count.Initiated+m.count.Pruned-before) //nolint:gosec // some for each node
}

// initiate says that this node is going to take over what another one has left, once that has been away for long enough. Who had left before
// this one came is found by what it has changed.
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
	m.mark(e, Marker{Removed: n, Owner: m.self})
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

// perform takes over what was initiated by this node and was seen by all. It reports whether that has changed the value.
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
		m.mark(e, Marker{Removed: k.Removed, Performed: true, Obsolete: m.wall() + millis(ttl)})
		x.moved[k.Removed]++
		m.count.Pruned++
		changed = true
	}
	if changed {
		m.keep(e)
	}
	return changed
}

// seenByAll reports whether all nodes that hold the data have seen a marker.
func (m *Machine) seenByAll(seen []identity.Node) bool {
	return !slices.ContainsFunc(m.members.gossip, func(n identity.Node) bool { return !contains(seen, n) })
}

// clearMarkers forgets those of an entry that are obsolete.
func (m *Machine) clearMarkers(e *entry) {
	wall := m.wall()
	obsolete := func(k Marker) bool { return k.Performed && k.Obsolete <= wall }
	if slices.ContainsFunc(e.pruning, obsolete) {
		m.spoil(e)
		e.pruning = slices.DeleteFunc(slices.Clone(e.pruning), obsolete)
		m.count.Cleared++
		m.keep(e)
	}
}

// forgetRemoved forgets nodes of which nothing is left. Should there be something nevertheless, they are found again by it.
func (m *Machine) forgetRemoved(left map[identity.Node]bool) {
	p := &m.pruning
	maps.DeleteFunc(p.removed, func(n identity.Node, since time.Duration) bool {
		return !left[n] && p.clock-since > min(m.cfg.PruneAfter, m.cfg.DurablePruneAfter)
	})
	if len(p.removed) > MaxNodes {
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
