// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"time"

	"github.com/refold-io/refold/identity"
)

const (
	// small is up to how many nodes all are told of changes at the same time.
	small = 10
	// maxPush is the largest value that is sent without being asked for, where there
	// is no delta, in bytes.
	maxPush = 64 << 10
	// pushTo is how many nodes Flush sends such values to.
	pushTo = 2
	// maxTold is up to how many changes a node is told at a time where all nodes are told at the same time. More follow
	// toldPause later: they take a while here and there, and requests should not have to wait for that.
	maxTold   = 256
	toldPause = time.Millisecond
)

// sliceInterval is how often a slice of the nodes is told in a large cluster.
func (m *Machine) sliceInterval() time.Duration {
	return max(m.cfg.GossipInterval/5, m.cfg.DeltaInterval)
}

// slice returns the nodes whose turn it is.
func (m *Machine) slice() []identity.Node {
	nodes := m.members.reachable
	n := len(nodes)
	if n+1 <= small {
		return nodes
	}
	size := min(max(n/5+1, 2), min(n, 10))
	turn := make([]identity.Node, 0, size)
	for i := range size {
		turn = append(turn, nodes[(m.deltas.next+i)%n])
	}
	m.deltas.next = (m.deltas.next + size) % n
	return turn
}

// packed is an encoded message.
type packed struct {
	kind Kind
	data []byte
}

// propagate sends what has changed to those who don't have it.
func (m *Machine) propagate() {
	d := &m.deltas
	m.timers[timerDelta] = Never
	type span struct{ from, upto, bit uint64 }
	built := map[span][]packed{} // by what was sent before
	more := false
	for _, n := range m.slice() {
		f := d.followers[n]
		if f.sent >= d.end || len(d.log) == 0 {
			f.sent = d.end
			continue
		}
		r := span{max(f.sent, d.log[0].pos-1), d.end, f.bit & d.told}
		if len(m.members.gossip)+1 <= small && r.upto-r.from > maxTold {
			r.upto, more = r.from+maxTold, true
		}
		messages, found := built[r]
		if !found {
			messages = m.build(r.from, r.upto, r.bit)
			built[r] = messages
		}
		for _, p := range messages {
			m.sendEncoded(n, false, p.kind, p.data)
		}
		f.sent = r.upto
		d.most = max(d.most, r.upto)
	}
	d.lastFlush = m.now
	m.trim()
	if d.flush && !more { // what is too large for that is known when all the rest is sent
		d.flush = false
		m.pushLarge()
	}
	switch {
	case more:
		m.soon(timerDelta, m.now+toldPause)
	case len(d.log) > 0:
		m.soon(timerDelta, m.now+m.sliceInterval())
	}
}

// build returns what tells of the changes behind a position up to another one, but for those of which writes have told
// the node that a bit stands for.
func (m *Machine) build(from, upto, bit uint64) []packed {
	d := &m.deltas
	var b batch
	for i := from + 1 - d.log[0].pos; i < uint64(len(d.log)) && d.log[i].pos <= upto; i++ {
		c := &d.log[i]
		if c.e.gone || c.next != 0 && c.next <= upto { // the last one of a key stands for all of them
			continue
		}
		if c.prev > from {
			joined, any := m.joined(c, from, bit)
			if any {
				m.pack(&b, &joined)
			}
		} else if c.told&bit == 0 {
			m.pack(&b, c)
		}
	}
	return b.end()
}

// joined returns a change together with those of the same key before it, down to a position. The first and the last ones
// are left out if the node knows them; in between, numbers must have no gaps. It is false if nothing is left.
func (m *Machine) joined(c *change, from, bit uint64) (joined change, any bool) {
	d := &m.deltas
	chain := []*change{c}
	for p := d.at(c.prev); p != nil && p.pos > from; p = d.at(p.prev) {
		chain = append(chain, p)
	}
	for len(chain) > 0 && chain[0].told&bit != 0 {
		chain = chain[1:]
	}
	for n := len(chain); n > 0 && chain[n-1].told&bit != 0; n-- {
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

// batch gathers changes in messages.
type batch struct {
	out    []packed
	items  [][]byte // of one message, encoded
	size   int
	pruned []Item // that name nodes, also of one message
	more   int    // the size of those
	states []Entry
	whole  int // the size of those
}

// pack adds a change.
func (m *Machine) pack(b *batch, c *change) {
	item := c.item
	whole := c.whole || c.e.deleted
	if !whole && (item == nil || len(c.e.pruning) > 0) {
		delta, err := c.delta.AppendBinary(m.small[:0])
		switch {
		case err != nil:
			whole = true
		case len(c.e.pruning) > 0:
			m.small = delta[:0]
			m.packPruned(b, Item{Key: c.e.key, From: c.from, To: c.to, Delta: append([]byte(nil), delta...), Pruned: c.e.pruned()})
			return
		default:
			m.small = delta[:0]
			item = appendItem(make([]byte, 0, itemSize(c.e.key, delta)), c.e.key, c.from, c.to, delta)
		}
	}
	if whole {
		m.packWhole(b, c.e)
		return
	}
	if b.size+len(item) > m.cfg.MaxBatch {
		b.endItems()
	}
	b.items = append(b.items, item)
	b.size += len(item)
}

// packPruned adds a change of a value of which history was moved.
func (m *Machine) packPruned(b *batch, i Item) {
	n := len(i.Key) + len(i.Delta) + 24 + 2*len(i.Pruned)
	if b.more+n > m.cfg.MaxBatch {
		b.endPruned()
	}
	b.pruned = append(b.pruned, i)
	b.more += n
}

// packWhole adds a whole value, unless it is so large that it is left to gossip, or to Flush.
func (m *Machine) packWhole(b *batch, e *entry) {
	m.count.DeltasAsStates++
	if e.size > maxPush {
		m.deltas.leave(e)
		return
	}
	w, err := m.wire(e)
	if err != nil || len(w.Value) > maxPush {
		m.deltas.leave(e)
		return
	}
	n := entrySize(&w)
	if b.whole+n > m.cfg.MaxBatch {
		b.endStates()
	}
	b.states = append(b.states, w)
	b.whole += n
}

// leave remembers a value that is too large to be sent without being asked for.
func (d *deltaState) leave(e *entry) {
	if !e.large {
		e.large = true
		d.large = append(d.large, e)
	}
}

// known forgets them, as another node has all that this one has.
func (d *deltaState) known() {
	for _, e := range d.large {
		e.large = false
	}
	clear(d.large)
	d.large = d.large[:0]
}

// pushLarge sends the values that were left to gossip to two nodes: this one may be about to go.
func (m *Machine) pushLarge() {
	nodes := m.order(Level{Kind: All}, false, nil)
	if len(nodes) == 0 {
		return
	}
	for _, e := range m.deltas.large {
		w, err := m.wire(e)
		if e.gone || err != nil {
			continue
		}
		for _, n := range nodes[:min(len(nodes), pushTo)] {
			m.send(n, true, Gossip{false, []Entry{w}})
		}
	}
	m.deltas.known()
}

func (b *batch) endItems() {
	if len(b.items) > 0 {
		data := appendDeltaHead(make([]byte, 0, b.size+deltaHead), 0, len(b.items))
		for _, item := range b.items {
			data = append(data, item...)
		}
		b.out = append(b.out, packed{KindDelta, data})
		b.items, b.size = b.items[:0], 0
	}
}

func (b *batch) endPruned() {
	if len(b.pruned) > 0 {
		b.out = append(b.out, packed{KindDelta, AppendMessage(nil, Delta{0, b.pruned})})
		b.pruned, b.more = nil, 0
	}
}

func (b *batch) endStates() {
	if len(b.states) > 0 {
		b.out = append(b.out, packed{KindGossip, AppendMessage(nil, Gossip{false, b.states})})
		b.states, b.whole = nil, 0
	}
}

// end returns the messages.
func (b *batch) end() []packed {
	b.endItems()
	b.endPruned()
	b.endStates()
	return b.out
}
