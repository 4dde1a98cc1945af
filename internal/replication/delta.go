// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// quietPeriod is the time without changes after which the next change is sent at once.
const quietPeriod = 50 * time.Millisecond

// deltaState is the log of changes of this node that some other nodes have not received yet.
type deltaState struct {
	log          []change // positions have no gaps
	end          uint64   // the position of the last change
	lastSent     uint64   // the highest position that was sent outside of writes
	followers    map[identity.Node]*follower
	delivered    uint64   // mask of the followers that received a change in the log with a write
	nextPeer     int      // index of the next peer to send to
	sendNow      bool     // the log is sent at the end of the step
	pushLargeToo bool     // values in large are sent as well
	large        []*entry // changed entries that are too large to send unrequested
	lastChange   time.Duration
	lastFlush    time.Duration
	requested    map[string]time.Duration // keys that were requested since the last gossip
}

type follower struct {
	sent uint64 // position up to which changes were sent
	mask uint64 // bit of the node in change.delivered, 0 if there are more nodes than bits
}

// change is one or more consecutive changes of a key by this node.
type change struct {
	e                *entry
	pos              uint64
	prevPos, nextPos uint64 // positions of the neighbouring changes of the same key in the log, 0 if none
	from, to         uint64 // the versions
	delta            crdt.Delta
	item             []byte // the delta as encoded in a message, nil if not encoded yet
	whole            bool   // the whole value is to be sent
	delivered        uint64 // mask of the followers that received the change with a write
}

func (c *change) join(to uint64, delta crdt.Delta, whole bool, maxOps int) {
	c.to, c.item = to, nil
	if c.whole = c.whole || whole; !c.whole {
		merged, err := c.delta.Merge(delta)
		c.delta = merged
		c.whole = err != nil || merged.Ops() >= maxOps
	}
	if c.whole {
		c.delta = crdt.Delta{}
	}
}

// addFollower starts sending changes to a node. The node receives earlier changes by gossip.
func (d *deltaState) addFollower(n identity.Node) {
	if d.followers[n] != nil {
		return
	}
	used := uint64(0)
	for _, f := range d.followers { // the order does not matter
		used |= f.mask
	}
	f := &follower{sent: d.end}
	if free := bits.TrailingZeros64(^used); free < 64 {
		f.mask = 1 << free
	}
	d.followers[n] = f
}

func (d *deltaState) at(pos uint64) *change {
	if n := len(d.log); n == 0 || pos < d.log[0].pos || pos > d.log[n-1].pos {
		return nil
	}
	return &d.log[pos-d.log[0].pos]
}

// logChange appends a change to the log and returns its position, or 0 if there is no other node.
// If join is set, the change may be merged into an earlier change of the key that was not sent to
// any node.
func (m *Machine) logChange(e *entry, delta crdt.Delta, whole, join bool) uint64 {
	d := &m.deltas
	if len(m.members.gossip) == 0 {
		d.end++
		clear(d.log)
		d.log = d.log[:0]
		return 0
	}
	last := d.at(e.pos)
	if join && last != nil && last.pos > d.lastSent && last.delivered == 0 {
		last.join(e.version, delta, whole, m.cfg.MaxDeltaOps)
		m.scheduleDeltas()
		return last.pos
	}
	d.end++
	c := change{e: e, pos: d.end, from: e.version, to: e.version, whole: whole}
	if !whole {
		c.delta = delta
	}
	if last != nil {
		c.prevPos, last.nextPos = last.pos, c.pos
	}
	if len(d.log) >= m.cfg.MaxLog {
		n := max(1, m.cfg.MaxLog/10)
		m.count.DeltasDropped += uint64(n)
		d.log = slices.Delete(d.log, 0, n)
	}
	d.log = append(d.log, c)
	e.pos = c.pos
	m.scheduleDeltas()
	return c.pos
}

// markDelivered records that a write delivers a change to a node. The node either acknowledges the write or receives the whole value in the second wave.
func (m *Machine) markDelivered(pos uint64, n identity.Node) {
	c, f := m.deltas.at(pos), m.deltas.followers[n]
	if c == nil || f == nil || f.mask == 0 {
		return
	}
	c.delivered |= f.mask
	m.deltas.delivered |= f.mask
	if f.sent == pos-1 {
		f.sent = pos
	}
}

func (m *Machine) scheduleDeltas() {
	d := &m.deltas
	switch {
	case len(m.members.gossip)+1 > smallCluster:
		m.setTimerBy(timerDelta, max(m.now, d.lastFlush+m.sliceInterval()))
	case m.now-d.lastChange >= quietPeriod:
		d.sendNow = true
	default:
		m.setTimerBy(timerDelta, max(m.now, d.lastFlush+m.cfg.DeltaInterval))
	}
	d.lastChange = m.now
}

// trimLog removes the changes that all reachable nodes have received.
func (m *Machine) trimLog() {
	d := &m.deltas
	least := d.end
	for _, n := range m.members.reachable {
		least = min(least, d.followers[n].sent)
	}
	if len(d.log) == 0 || least < d.log[0].pos {
		return
	}
	n := int(min(least-d.log[0].pos+1, uint64(len(d.log)))) //nolint:gosec // at most the length
	if d.log = slices.Delete(d.log, 0, n); len(d.log) == 0 {
		d.delivered = 0
	}
}

const (
	// smallCluster is the number of nodes up to which changes are sent to all nodes at once.
	smallCluster = 10
	// maxPush is the maximum size of a value without a delta that is sent unrequested, in bytes.
	maxPush = 64 << 10
	// pushTo is the number of nodes to which Flush sends larger values.
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
	built := map[span][]packed{} // messages by range and mask, so that nodes in the same state share them
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
	if more {
		m.setTimerBy(timerDelta, m.now+sendChangesPause)
	} else if len(d.log) > 0 {
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
// at both ends are left out if the node with the mask already has them. Changes in between stay,
// because deltas must have no gaps. It returns false if no change is left.
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

// add adds an element of the given size. It calls end first if the message becomes too large.
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
	if e.size <= maxPush {
		if w, err := m.encodeEntry(e); err == nil && len(w.Value) <= maxPush {
			b.states.add(w, entrySize(&w), b.most, b.endStates)
			return
		}
	}
	m.deltas.deferLarge(e)
}

// deferLarge records a value that is too large to send unrequested. Gossip or Flush sends it.
func (d *deltaState) deferLarge(e *entry) {
	if !e.large {
		e.large = true
		d.large = append(d.large, e)
	}
}

// clearLarge discards the list of large values, because another node has the same data.
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

// maxFullScans is the maximum number of operations in a delta that visit all elements of a value.
const maxFullScans = 32

func (m *Machine) receiveDelta(from identity.Node, in Delta) {
	m.lastAwaited = m.now // requests are running, possibly without this node: peers send requests to a new node last
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
	var last *entry // the last entry to be stored: its result is the result of all
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
		m.count.DeltasKnown++ // a delta with a known number is not decoded
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
		// The sender counts the moved history for its new owner, and this node still counts it for
		// the old owner.
		return deltaResult{gap: true}, nil
	case causal && item.From > have+1:
		return deltaResult{gap: true}, nil
	case causal && value.NeedsFullState(delta):
		// The delta removes additions of a third node that have not arrived here yet. If the delta were applied now, those additions would arrive later and stay.
		return deltaResult{gap: true}, nil
	}
	next, err := value.MergeDelta(delta)
	if err == nil {
		next, err = cleanUp(next, pruning)
	}
	if err != nil {
		return deltaResult{}, mergeError(item.Key, err)
	}
	if e, err = m.ensure(item.Key); err != nil {
		return deltaResult{}, err
	}
	m.count.DeltasApplied++
	m.touch(e) // a change on another node is a use
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

// lacksPruning reports whether an entry still has history that was moved to another node.
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
