// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

const (
	// quiet is after which time without changes the next one is sent at once.
	quiet = 50 * time.Millisecond
	// small is up to how many nodes all are told of changes at the same time.
	small = 10
	// maxPush is the largest value that is sent without being asked for, where there
	// is no delta, in bytes.
	maxPush = 64 << 10
)

// deltaState is what changed here and was not sent to all others yet.
type deltaState struct {
	log        []change
	end        uint64                   // the position of the last change
	most       uint64                   // the highest position that was sent to anybody
	sent       map[identity.Node]uint64 // up to which position
	next       int                      // where the next slice of the nodes begins
	now        bool                     // what waits is sent at the end of the step
	lastChange time.Duration
	lastFlush  time.Duration
	asked      map[string]time.Duration // keys that were asked for, since the last gossip
}

// change is some changes of a key by this node, one after the other.
type change struct {
	e        *entry
	pos      uint64
	from, to uint64 // the versions
	delta    crdt.Delta
	whole    bool // the whole value is to be sent
}

// join makes later changes of the same key a part of it.
func (c *change) join(to uint64, delta crdt.Delta, whole bool, maxOps int) {
	c.to = to
	if c.whole = c.whole || whole; !c.whole {
		merged, err := c.delta.Merge(delta)
		c.delta = merged
		c.whole = err != nil || merged.Ops() >= maxOps
	}
	if c.whole {
		c.delta = crdt.Delta{}
	}
}

// log takes a change to be sent and returns its position, 0 if there is nobody to
// send it to. It may join an earlier one of the key that was not sent to anybody yet.
func (m *Machine) log(e *entry, delta crdt.Delta, whole, join bool) uint64 {
	d := &m.deltas
	if len(m.members.gossip) == 0 {
		d.end++
		clear(d.log)
		d.log = d.log[:0]
		return 0
	}
	if n := len(d.log); join && n > 0 && e.pos > d.most && e.pos >= d.log[0].pos {
		c := &d.log[e.pos-d.log[0].pos]
		c.join(e.version, delta, whole, m.cfg.MaxDeltaOps)
		m.logged()
		return c.pos
	}
	d.end++
	c := change{e: e, pos: d.end, from: e.version, to: e.version, whole: whole}
	if !whole {
		c.delta = delta
	}
	if len(d.log) >= m.cfg.MaxLog {
		n := max(1, m.cfg.MaxLog/10)
		m.count.DeltasDropped += uint64(n)
		d.log = slices.Delete(d.log, 0, n)
	}
	d.log = append(d.log, c)
	e.pos = c.pos
	m.logged()
	return c.pos
}

// logged says when the changes in the log are to be sent.
func (m *Machine) logged() {
	d := &m.deltas
	switch {
	case len(m.members.gossip)+1 > small:
		m.soon(timerDelta, max(m.now, d.lastFlush+m.sliceInterval()))
	case m.now-d.lastChange >= quiet:
		d.now = true
	default:
		m.soon(timerDelta, max(m.now, d.lastFlush+m.cfg.DeltaInterval))
	}
	d.lastChange = m.now
}

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

// propagate sends what has changed to those who don't have it.
func (m *Machine) propagate() {
	d := &m.deltas
	m.timers[timerDelta] = Never
	built := map[uint64][]Message{} // by what was sent before
	for _, n := range m.slice() {
		from := d.sent[n]
		if from >= d.end || len(d.log) == 0 {
			d.sent[n] = d.end
			continue
		}
		messages, found := built[from]
		if !found {
			messages = m.build(from)
			built[from] = messages
		}
		for _, msg := range messages {
			m.send(n, false, msg)
		}
		d.sent[n] = d.end
		d.most = d.end
	}
	d.lastFlush = m.now
	least := d.end
	for _, n := range m.members.reachable {
		least = min(least, d.sent[n])
	}
	i, _ := slices.BinarySearchFunc(d.log, least+1, func(c change, pos uint64) int {
		if c.pos < pos {
			return -1
		}
		return 1
	})
	d.log = slices.Delete(d.log, 0, i)
	if len(d.log) > 0 {
		m.soon(timerDelta, m.now+m.sliceInterval())
	}
}

// build returns what tells of the changes behind a position.
func (m *Machine) build(behind uint64) []Message {
	var groups []change
	index := map[*entry]int{}
	for _, c := range m.deltas.log {
		if c.pos <= behind || c.e.gone {
			continue
		}
		if i, found := index[c.e]; found {
			groups[i].join(c.to, c.delta, c.whole, m.cfg.MaxDeltaOps)
			continue
		}
		index[c.e] = len(groups)
		groups = append(groups, c)
	}
	return m.messages(groups)
}

func (m *Machine) messages(groups []change) []Message {
	var out []Message
	var items []Item
	var states []Entry
	size, stateSize := 0, 0
	for _, g := range groups {
		var encoded []byte
		whole := g.whole || g.e.deleted
		if !whole {
			var err error
			encoded, err = g.delta.AppendBinary(nil)
			whole = err != nil
		}
		if whole {
			m.count.DeltasAsStates++
			if g.e.size > maxPush {
				continue // it is found by gossip
			}
			w, err := m.wire(g.e)
			if err != nil || len(w.Value) > maxPush {
				continue
			}
			if n := entrySize(&w); stateSize+n > m.cfg.MaxBatch && len(states) > 0 {
				out = append(out, Gossip{false, states})
				states, stateSize = nil, 0
			}
			states = append(states, w)
			stateSize += entrySize(&w)
			continue
		}
		n := len(g.e.key) + len(encoded) + 24 + 2*len(g.e.pruning)
		if size+n > m.cfg.MaxBatch && len(items) > 0 {
			out = append(out, Delta{0, items})
			items, size = nil, 0
		}
		items = append(items, Item{g.e.key, g.from, g.to, encoded, g.e.pruned()})
		size += n
	}
	if len(items) > 0 {
		out = append(out, Delta{0, items})
	}
	if len(states) > 0 {
		out = append(out, Gossip{false, states})
	}
	return out
}

// receiveDelta merges changes of another node.
func (m *Machine) receiveDelta(from identity.Node, in Delta) {
	for i := range in.Items {
		if e := m.keys[in.Items[i].Key]; e != nil && e.marker(from) != nil {
			m.count.Dropped[DropPruned]++
			return
		}
	}
	var missing []string
	var last *entry // the last one to be stored, which tells when all are
	verdict := Merged
	for i := range in.Items {
		item := &in.Items[i]
		d, err := m.applyDelta(from, item)
		switch {
		case err != nil:
			m.refused(from, item.Key, err)
			verdict = max(verdict, Refused)
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
	e := m.keys[item.Key]
	switch {
	case m.cfg.DisableDeltas:
		return applied{gap: true}, nil
	case e != nil && e.deleted:
		m.count.DeltasKnown++
		return applied{e: e}, nil
	}
	delta, err := m.types.DecodeDelta(item.Delta)
	if err != nil {
		return applied{}, fmt.Errorf("replication: decode a delta of %q: %w", item.Key, err)
	}
	have := uint64(0)
	var pruning []Marker
	value := delta.Zero()
	if e != nil {
		have, value, pruning = e.have(from), e.value, e.pruning
	}
	causal := delta.NeedsCausal()
	switch {
	case lacks(e, item.Pruned):
		// What was moved is counted at its new owner, and here still at its old one.
		return applied{gap: true}, nil
	case causal && e != nil && item.To <= have:
		m.count.DeltasKnown++
		return applied{e: e}, nil
	case causal && item.From > have+1:
		return applied{gap: true}, nil
	case causal && value.Behind(delta):
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
