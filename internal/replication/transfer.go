// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

const (
	pullPeers  = 3
	pullAtOnce = 4           // requests to one peer
	pullRetry  = time.Second // time until an unanswered request is repeated, if possible to another peer
	pullTries  = 10
	// While other nodes or users wait for this node, and for pullCalm afterwards, this node has
	// only one open request per peer. After each chunk it pauses for the duration of that chunk,
	// but at most maxPullRest. The reason is that a pull competes with requests for the processors
	// of this node and of its peers.
	pullCalm    = 100 * time.Millisecond
	maxPullRest = 5 * time.Millisecond
)

type pullState struct {
	started bool
	done    bool
	peers   []identity.Node
	parts   []part
	next    int           // index of the next part
	rest    time.Duration // time until which no request is sent
	last    uint64        // number of the last request
	entries int
}

// part is a range of buckets that is pulled from one peer.
type part struct {
	from, to uint16
	after    string
	peer     int
	nr       uint64 // number of the open request, 0 if there is none
	due      time.Duration
	tries    int
	done     bool
}

// startPull starts fetching the data if the node is new. It fetches disjoint parts from a few older nodes.
func (m *Machine) startPull() {
	p := &m.pull
	s := &m.members
	if p.started || m.loading || s.status == identity.Joining || !s.member {
		return
	}
	var older []identity.Node
	hidden := false
	for _, o := range s.eligible {
		switch {
		case s.status != identity.WeaklyUp && o.upNumber >= s.upNumber:
		case o.unreachable:
			hidden = true
		default:
			older = append(older, o.node)
		}
	}
	switch {
	case len(older) == 0 && (hidden || s.status == identity.WeaklyUp):
		return // an older node becomes reachable or visible later, or is removed
	case len(older) == 0:
		p.started, p.done = true, true // this is the first node
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

// isPullingFromHere reports whether a new node is fetching data from this node.
func (m *Machine) isPullingFromHere(n identity.Node) bool {
	at, found := m.pullers[n]
	return found && m.now-at < pullRetry
}

// pulling reports whether the node fetches the data from others, or is about to do so. In this
// state a comparison would mostly find data that the pull fetches anyway.
func (m *Machine) pulling() bool {
	return m.members.status == identity.Joining || m.pull.started && !m.pull.done
}

// isAwaited reports whether requests have recently waited for this node.
func (m *Machine) isAwaited() bool { return m.now-m.lastAwaited < m.sliceInterval()+pullCalm }

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
	if m.isAwaited() {
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
		m.setTimerBy(timerCompare, m.now)
	}
}

// pullDue repeats unanswered requests. If a request is never answered, gossip finds its data.
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

// pullBatch returns the maximum size of the entries in a chunk.
func (m *Machine) pullBatch() int {
	if m.isAwaited() {
		return m.bulkBatch()
	}
	return min(maxQuietBulk, m.cfg.MaxBatch)
}

func (m *Machine) receivePull(from identity.Node, in Pull) {
	maps.DeleteFunc(m.pullers, func(n identity.Node, _ time.Duration) bool { return !m.isPullingFromHere(n) })
	m.pullers[from] = m.now
	out, values := m.chunk(in)
	m.send(from, true, out)
	m.entries = reuse(out.Entries)
	if cap(values) <= maxScratch {
		m.valueBuf = values[:0]
	}
}

// chunk returns the next entries for a Pull, and the buffer that holds their values.
func (m *Machine) chunk(in Pull) (out Chunk, values []byte) {
	out.Nr, out.Entries, values = in.Nr, m.entries, m.valueBuf[:0]
	size, most := 0, m.pullBatch()
	for b := in.From; b < in.To; b++ {
		entries := m.buckets[b]
		if b == in.From {
			entries = entriesAfter(entries, in.After)
		}
		for _, e := range entries {
			if m.isExpired(e.key, e.used) {
				continue
			}
			w, and, err := m.appendEntry(e, values)
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
		if m.isDuplicate(from, m.keys[in.Entries[k].Key]) {
			break
		}
		a, err := m.absorb(&in.Entries[k])
		if err != nil {
			m.noteRefused(from, in.Entries[k].Key, err)
			continue
		}
		if a.changed {
			m.storeSoon(a.e)
		}
		p.entries++
	}
	if m.isAwaited() {
		p.rest = m.now + min(m.now-t.due+pullRetry, maxPullRest)
	}
	t.nr, t.due, t.tries = 0, Never, 0
	ahead := in.Bucket > t.from || in.Bucket == t.from && in.After > t.after
	if in.Done || in.Bucket >= t.to || !ahead {
		t.done = true
	} else {
		t.from, t.after = in.Bucket, in.After
	}
	m.pullMore()
}

const (
	// maxAssemblies is the maximum number of messages of one sender that are assembled at a time.
	// Config.MaxParts limits those of all senders.
	maxAssemblies = 4
	// assemblyTTL is the time after which an incomplete message is dropped.
	assemblyTTL = 30 * time.Second
	// partOverhead is the maximum size of a Part without its data.
	partOverhead = 64
)

type assembly struct {
	from  identity.Node
	nr    uint64
	since time.Duration
	parts uint64 // number of received parts
	data  []byte
}

// split sends a message in parts. Values can exceed the maximum message size after concurrent
// changes.
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

// receivePart adds a part to its message. It drops parts out of order, which are not expected
// because a lane preserves order.
func (m *Machine) receivePart(from identity.Node, in Part) {
	i := slices.IndexFunc(m.assemblies, func(a *assembly) bool { return a.from == from && a.nr == in.Nr })
	if in.Index == 0 && i < 0 {
		m.limitAssemblies(from)
		i = len(m.assemblies)
		m.assemblies = append(m.assemblies, &assembly{from: from, nr: in.Nr, since: m.now})
	} else if i < 0 {
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
		m.limitParts(a)
		return
	}
	m.assemblies = slices.Delete(m.assemblies, i, i+1)
	m.receiveData(from, a.data, true)
}

// limitAssemblies drops the oldest incomplete message of a sender if the sender has as many as it may
// have. The messages of other senders stay: a node that reads from all others receives their parts in
// any order.
func (m *Machine) limitAssemblies(from identity.Node) {
	n := 0
	for _, a := range m.assemblies {
		if a.from == from {
			n++
		}
	}
	if n >= maxAssemblies {
		i := slices.IndexFunc(m.assemblies, func(a *assembly) bool { return a.from == from })
		m.assemblies = slices.Delete(m.assemblies, i, i+1)
		m.count.Dropped[DropParts]++
	}
}

// limitParts drops the oldest incomplete messages, except the latest one, while they exceed MaxParts.
func (m *Machine) limitParts(latest *assembly) {
	sum := 0
	for _, a := range m.assemblies {
		sum += cap(a.data)
	}
	m.assemblies = slices.DeleteFunc(m.assemblies, func(a *assembly) bool {
		drop := sum > m.cfg.MaxParts && a != latest
		if drop {
			sum -= cap(a.data)
			m.count.Dropped[DropParts]++
		}
		return drop
	})
}
