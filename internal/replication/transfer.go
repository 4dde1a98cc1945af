// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

const (
	pullPeers  = 3
	pullAtOnce = 4           // requests to one peer
	pullRetry  = time.Second // after which one is repeated, elsewhere if there is another peer
	pullTries  = 10
	// While somebody waits for this node or others are told of changes, and pullCalm longer than it takes to hear of one, it asks for as many
	// things at a time as there are peers, and rests then as long as that took, or maxPullRest: what requests wait for are the processors of
	// this node and of those.
	pullCalm    = 100 * time.Millisecond
	maxPullRest = 5 * time.Millisecond
)

// pullState is how a new node gets the data.
type pullState struct {
	started bool
	done    bool
	peers   []identity.Node
	parts   []part
	next    int           // the part that has its turn
	rest    time.Duration // until when nothing is asked for
	last    uint64        // the number of the last request
	entries int
}

// part is some buckets that are pulled from one peer.
type part struct {
	from, to uint16
	after    string
	peer     int
	nr       uint64 // of the open request, 0 if there is none
	due      time.Duration
	tries    int
	done     bool
}

// startPull begins to pull if the node is new: disjoint parts from a few nodes that
// are older.
func (m *Machine) startPull() {
	p := &m.pull
	s := &m.members
	if p.started || m.loading || s.status == membership.Joining || !s.member {
		return
	}
	var older []identity.Node
	for _, o := range s.eligible {
		if !o.unreachable && (s.status == membership.WeaklyUp || o.upNumber < s.upNumber) {
			older = append(older, o.node)
		}
	}
	switch {
	case len(older) == 0 && s.status == membership.WeaklyUp:
		return // somebody will come into sight
	case len(older) == 0:
		p.started, p.done = true, true // it is the first
		return
	}
	m.rand.Shuffle(len(older), func(i, j int) { older[i], older[j] = older[j], older[i] })
	p.started = true
	p.peers = older[:min(len(older), pullPeers)]
	m.note(Note{Kind: NotePulling, N: len(p.peers)})
	n := len(p.peers)
	for i := range n * pullAtOnce {
		from, to := buckets*i/(n*pullAtOnce), buckets*(i+1)/(n*pullAtOnce)
		p.parts = append(p.parts, part{from: uint16(from), to: uint16(to), peer: i / pullAtOnce, due: Never}) //nolint:gosec // at most buckets
	}
	m.pullMore()
}

// fills reports whether a node gets the data from here, as far as this one knows.
func (m *Machine) fills(n identity.Node) bool {
	at, found := m.filled[n]
	return found && m.now-at < pullRetry
}

// pulling reports whether the node still gets the data from others, or is about to: most of what a comparison would find comes anyway.
func (m *Machine) pulling() bool {
	return m.members.status == membership.Joining || m.pull.started && !m.pull.done
}

// awaited reports whether somebody has waited for this node lately, or for those that this one gets the data from: then changes come from there.
func (m *Machine) awaited() bool { return m.now-m.asked < m.sliceInterval()+pullCalm }

// pullMore opens requests where there is room for more.
func (m *Machine) pullMore() {
	p := &m.pull
	open, all := make([]int, len(p.peers)), 0
	for i := range p.parts {
		if p.parts[i].nr != 0 {
			open[p.parts[i].peer]++
			all++
		}
	}
	most := pullAtOnce * len(p.peers)
	if m.awaited() {
		most = len(p.peers)
	}
	left := false
	next := Never
	for range p.parts {
		i := p.next % len(p.parts)
		p.next++
		t := &p.parts[i]
		if t.done {
			continue
		}
		left = true
		if t.nr == 0 && open[t.peer] < pullAtOnce && all < most {
			if m.now < p.rest {
				next = min(next, p.rest)
				continue
			}
			open[t.peer]++
			all++
			p.last++
			t.nr, t.due = p.last, m.now+pullRetry
			m.send(p.peers[t.peer], true, Pull{t.nr, t.from, t.to, t.after})
		}
		if t.nr != 0 {
			next = min(next, t.due)
		}
	}
	p.next++
	m.timers[timerPull] = next
	if !left {
		p.done, p.parts = true, nil
		m.note(Note{Kind: NotePulled, N: p.entries})
		m.exchange.with = p.peers[0]
		m.soon(timerCompare, m.now)
	}
}

// pullDue repeats what was not answered. What is never answered is found by
// gossip.
func (m *Machine) pullDue() {
	p := &m.pull
	for i := range p.parts {
		t := &p.parts[i]
		if t.done || t.nr == 0 || t.due > m.now {
			continue
		}
		t.nr, t.due = 0, Never
		t.tries++
		t.peer = (t.peer + 1) % len(p.peers)
		t.done = t.tries >= pullTries
	}
	m.pullMore()
}

// pullBatch is up to how many bytes of entries a node that is new is sent in one message.
func (m *Machine) pullBatch() int {
	if m.awaited() {
		return m.bulkBatch()
	}
	return min(maxQuietBulk, m.cfg.MaxBatch)
}

func (m *Machine) receivePull(from identity.Node, in Pull) {
	maps.DeleteFunc(m.filled, func(n identity.Node, _ time.Duration) bool { return !m.fills(n) })
	m.filled[from] = m.now
	out, values := m.chunk(in)
	m.send(from, true, out)
	m.entries = reuse(out.Entries)
	if cap(values) <= maxScratch {
		m.scratch = values[:0]
	}
}

// chunk returns some of what a node asks for, with the memory in which the values are.
func (m *Machine) chunk(in Pull) (out Chunk, values []byte) {
	out.Nr, out.Entries, values = in.Nr, m.entries, m.scratch[:0]
	size, most := 0, m.pullBatch()
	for b := in.From; b < in.To; b++ {
		entries := m.buckets[b]
		if b == in.From && in.After != "" {
			i, found := findEntry(entries, in.After)
			if found {
				i++
			}
			entries = entries[i:]
		}
		for _, e := range entries {
			if m.isExpired(e.key, e.used) {
				continue
			}
			w, and, err := m.wireAfter(e, values)
			if err != nil || len(w.Value) > MaxMessage-overhead {
				continue
			}
			n := entrySize(&w)
			if size > 0 && size+n > most {
				return out, values
			}
			out.Entries, values = append(out.Entries, w), and
			out.Bucket, out.After = b, e.key
			size += n
		}
	}
	out.Done = true
	return out, values
}

func (m *Machine) receiveChunk(from identity.Node, in Chunk) {
	p := &m.pull
	i := slices.IndexFunc(p.parts, func(t part) bool { return t.nr == in.Nr && t.nr != 0 })
	if i < 0 || p.peers[p.parts[i].peer] != from {
		m.count.Dropped[DropLate]++
		return
	}
	t := &p.parts[i]
	for k := range in.Entries {
		if m.twice(from, m.keys[in.Entries[k].Key]) {
			break
		}
		a, err := m.absorb(&in.Entries[k])
		if err != nil {
			m.refused(from, in.Entries[k].Key, err)
			continue
		}
		if a.changed {
			m.keep(a.e)
		}
		p.entries++
	}
	if m.awaited() {
		p.rest = m.now + min(m.now-t.due+pullRetry, maxPullRest)
	}
	t.nr, t.due, t.tries = 0, Never, 0
	ahead := in.Bucket > t.from || in.Bucket == t.from && in.After > t.after
	switch {
	case in.Done || in.Bucket >= t.to || !ahead:
		t.done = true
	default:
		t.from, t.after = in.Bucket, in.After
	}
	m.pullMore()
}

const (
	// maxAssemblies is how many messages that come in parts are put together at a time.
	maxAssemblies = 4
	// assemblyTTL is after which time the parts of one are given up.
	assemblyTTL = 30 * time.Second
	// partOverhead is what a part takes beyond its data.
	partOverhead = 64
)

// assembly is a message that comes in parts.
type assembly struct {
	from  identity.Node
	nr    uint64
	since time.Duration
	parts uint64 // that have come
	data  []byte
}

// split sends a message in parts, because it is larger than a message may be: nodes
// have added to a value at the same time.
func (m *Machine) split(to identity.Node, bulk bool, data []byte) {
	size := m.cfg.MaxMessage - partOverhead
	count := uint64((len(data) + size - 1) / size) //nolint:gosec // not negative
	m.parts++
	nr := m.parts
	i := uint64(0)
	for piece := range slices.Chunk(data, size) {
		m.send(to, bulk, Part{Nr: nr, Index: i, Count: count, Data: piece})
		i++
	}
}

// receivePart puts a message together. What comes in another order is dropped: a
// lane keeps it.
func (m *Machine) receivePart(from identity.Node, in Part) {
	i := slices.IndexFunc(m.assemblies, func(a *assembly) bool { return a.from == from && a.nr == in.Nr })
	switch {
	case in.Index == 0 && i < 0:
		if len(m.assemblies) >= maxAssemblies {
			m.assemblies = slices.Delete(m.assemblies, 0, 1)
			m.count.Dropped[DropParts]++
		}
		i = len(m.assemblies)
		m.assemblies = append(m.assemblies, &assembly{from: from, nr: in.Nr, since: m.now})
	case i < 0:
		m.count.Dropped[DropParts]++
		return
	}
	a := m.assemblies[i]
	if in.Index != a.parts || len(a.data)+len(in.Data) > MaxMessage {
		m.assemblies = slices.Delete(m.assemblies, i, i+1)
		m.count.Dropped[DropParts]++
		return
	}
	a.data = append(a.data, in.Data...)
	if a.parts++; a.parts < in.Count {
		return
	}
	m.assemblies = slices.Delete(m.assemblies, i, i+1)
	m.receiveData(from, a.data, true)
}

// dropParts gives up messages whose parts do not come.
func (m *Machine) dropParts() {
	m.assemblies = slices.DeleteFunc(m.assemblies, func(a *assembly) bool { return m.now-a.since > assemblyTTL })
}
