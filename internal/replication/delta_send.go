// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"time"

	"github.com/refold-io/refold/identity"
)

const (
	// smallCluster is the number of nodes up to which changes are sent to all nodes at once.
	smallCluster = 10
	// maxPush is the maximum size of a value without a delta that is sent unrequested, in bytes.
	maxPush = 64 << 10
	// pushTo is the number of nodes that Flush sends larger values to.
	pushTo = 2
	// maxChangesPerSend is the maximum number of changes sent to a node at a time in a small
	// cluster. The rest follows after sendChangesPause, so that requests do not wait for long.
	maxChangesPerSend = 256
	sendChangesPause  = time.Millisecond
)

// sliceInterval is the time between two slices of the nodes in a large cluster.
func (m *Machine) sliceInterval() time.Duration {
	return max(m.cfg.GossipInterval/5, m.cfg.DeltaInterval)
}

func (m *Machine) nextPeers() []identity.Node {
	nodes := m.members.reachable
	n := len(nodes)
	if n+1 <= smallCluster {
		return nodes
	}
	size := min(max(n/5+1, 2), min(n, 10))
	turn := make([]identity.Node, 0, size)
	for i := range size {
		turn = append(turn, nodes[(m.deltas.nextPeer+i)%n])
	}
	m.deltas.nextPeer = (m.deltas.nextPeer + size) % n
	return turn
}

type packed struct {
	kind Kind
	data []byte
}

// propagate sends the changes in the log to the nodes that do not have them.
func (m *Machine) propagate() {
	d := &m.deltas
	m.timers[timerDelta] = Never
	type span struct{ from, upto, bit uint64 }
	built := map[span][]packed{} // by range and mask, so that nodes in the same state share messages
	more := false
	for _, n := range m.nextPeers() {
		f := d.followers[n]
		if f.sent >= d.end || len(d.log) == 0 {
			f.sent = d.end
			continue
		}
		r := span{max(f.sent, d.log[0].pos-1), d.end, f.mask & d.delivered}
		if len(m.members.gossip)+1 <= smallCluster && r.upto-r.from > maxChangesPerSend {
			r.upto, more = r.from+maxChangesPerSend, true
		}
		messages, found := built[r]
		if !found {
			messages = m.buildMessages(r.from, r.upto, r.bit)
			built[r] = messages
		}
		for _, p := range messages {
			m.sendEncoded(n, false, p.kind, p.data)
		}
		f.sent = r.upto
		d.lastSent = max(d.lastSent, r.upto)
	}
	d.lastFlush = m.now
	m.trimLog()
	if d.pushLargeToo && !more { // all other changes are sent first
		d.pushLargeToo = false
		m.pushLarge()
	}
	switch {
	case more:
		m.setTimerBy(timerDelta, m.now+sendChangesPause)
	case len(d.log) > 0:
		m.setTimerBy(timerDelta, m.now+m.sliceInterval())
	}
}

// buildMessages encodes the changes after position from up to position upto, except those that
// writes have delivered to the node with the given mask.
func (m *Machine) buildMessages(from, upto, bit uint64) []packed {
	d := &m.deltas
	b := batch{most: m.cfg.MaxBatch}
	for i := from + 1 - d.log[0].pos; i < uint64(len(d.log)) && d.log[i].pos <= upto; i++ {
		c := &d.log[i]
		if c.e.removed || c.nextPos != 0 && c.nextPos <= upto { // the last change of a key includes the earlier ones
			continue
		}
		if c.prevPos > from {
			joined, any := m.joinChain(c, from, bit)
			if any {
				m.pack(&b, &joined)
			}
		} else if c.delivered&bit == 0 {
			m.pack(&b, c)
		}
	}
	return b.end()
}

// joinChain merges a change with the earlier changes of the same key after position from. Changes
// at both ends that the node with the mask already has are left out; those in between stay, because
// deltas must have no gaps. It returns false if no change is left.
func (m *Machine) joinChain(c *change, from, bit uint64) (joined change, any bool) {
	d := &m.deltas
	chain := []*change{c}
	for p := d.at(c.prevPos); p != nil && p.pos > from; p = d.at(p.prevPos) {
		chain = append(chain, p)
	}
	for len(chain) > 0 && chain[0].delivered&bit != 0 {
		chain = chain[1:]
	}
	for n := len(chain); n > 0 && chain[n-1].delivered&bit != 0; n-- {
		chain = chain[:n-1]
	}
	if len(chain) == 0 {
		return change{}, false
	}
	joined = *chain[len(chain)-1]
	for i := len(chain) - 2; i >= 0; i-- {
		joined.join(chain[i].to, chain[i].delta, chain[i].whole, m.cfg.MaxDeltaOps)
	}
	return joined, true
}

// batch collects changes into messages of up to most bytes.
type batch struct {
	most   int
	out    []packed
	items  pile[[]byte] // encoded items
	pruned pile[Item]   // items that refer to nodes
	states pile[Entry]
}

// pile is the content of the current message of one kind.
type pile[T any] struct {
	list []T
	size int
}

// add adds an element of a size. It calls end first if the message becomes too large.
func (p *pile[T]) add(v T, size, most int, end func()) {
	if p.size+size > most {
		end()
	}
	p.list = append(p.list, v)
	p.size += size
}

func (m *Machine) pack(b *batch, c *change) {
	item := c.item
	whole := c.whole || c.e.deleted
	if !whole && (item == nil || len(c.e.pruning) > 0) {
		delta, err := c.delta.AppendBinary(m.deltaBuf[:0])
		switch {
		case err != nil:
			whole = true
		case len(c.e.pruning) > 0:
			m.deltaBuf = delta[:0]
			i := Item{Key: c.e.key, From: c.from, To: c.to, Delta: append([]byte(nil), delta...), Pruned: c.e.pruned()}
			b.pruned.add(i, len(i.Key)+len(delta)+24+2*len(i.Pruned), b.most, b.endPruned)
			return
		default:
			m.deltaBuf = delta[:0]
			item = appendItem(make([]byte, 0, itemSize(c.e.key, delta)), c.e.key, c.from, c.to, delta)
		}
	}
	if whole {
		m.packWhole(b, c.e)
		return
	}
	b.items.add(item, len(item), b.most, b.endItems)
}

// packWhole adds a whole value, unless it is too large to send unrequested.
func (m *Machine) packWhole(b *batch, e *entry) {
	m.count.DeltasAsStates++
	if e.size > maxPush {
		m.deltas.deferLarge(e)
		return
	}
	w, err := m.encodeEntry(e)
	if err != nil || len(w.Value) > maxPush {
		m.deltas.deferLarge(e)
		return
	}
	b.states.add(w, entrySize(&w), b.most, b.endStates)
}

// deferLarge records a value that is too large to send unrequested. Gossip or Flush sends it.
func (d *deltaState) deferLarge(e *entry) {
	if !e.large {
		e.large = true
		d.large = append(d.large, e)
	}
}

// clearLarge forgets the large values, because another node has the same data.
func (d *deltaState) clearLarge() {
	for _, e := range d.large {
		e.large = false
	}
	clear(d.large)
	d.large = d.large[:0]
}

// pushLarge sends the large values to two nodes, because this node may be about to leave.
func (m *Machine) pushLarge() {
	nodes := m.order(Level{Kind: All}, false, nil)
	if len(nodes) == 0 {
		return
	}
	for _, e := range m.deltas.large {
		w, err := m.encodeEntry(e)
		if e.removed || err != nil {
			continue
		}
		for _, n := range nodes[:min(len(nodes), pushTo)] {
			m.send(n, true, Gossip{false, []Entry{w}})
		}
	}
	m.deltas.clearLarge()
}

func (b *batch) endItems() {
	if len(b.items.list) > 0 {
		data := appendDeltaHead(make([]byte, 0, b.items.size+deltaHead), 0, len(b.items.list))
		for _, item := range b.items.list {
			data = append(data, item...)
		}
		b.out = append(b.out, packed{KindDelta, data})
		b.items = pile[[]byte]{list: b.items.list[:0]}
	}
}

func (b *batch) endPruned() {
	if len(b.pruned.list) > 0 {
		b.out = append(b.out, packed{KindDelta, AppendMessage(nil, Delta{0, b.pruned.list})})
		b.pruned = pile[Item]{}
	}
}

func (b *batch) endStates() {
	if len(b.states.list) > 0 {
		b.out = append(b.out, packed{KindGossip, AppendMessage(nil, Gossip{false, b.states.list})})
		b.states = pile[Entry]{}
	}
}

func (b *batch) end() []packed {
	b.endItems()
	b.endPruned()
	b.endStates()
	return b.out
}
