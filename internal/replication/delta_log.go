// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
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

// addFollower starts sending changes to a node. It receives earlier changes by gossip.
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
// If join is set, the change may be merged into an earlier one of the key that was not sent to any
// node.
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

// markDelivered records that a write delivers a change to a node. The node either acknowledges it
// or receives the whole value in the second wave.
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
