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

// quiet is after which time without changes the next one is sent at once.
const quiet = 50 * time.Millisecond

// deltaState is what changed here and was not sent to all others yet.
type deltaState struct {
	log        []change // their positions have no gaps
	end        uint64   // the position of the last change
	most       uint64   // the highest position that was sent to anybody but with a write
	followers  map[identity.Node]*follower
	told       uint64   // those that writes have told of something in the log
	next       int      // where the next slice of the nodes begins
	now        bool     // what waits is sent at the end of the step
	flush      bool     // and what is too large for that as well
	large      []*entry // which is these
	lastChange time.Duration
	lastFlush  time.Duration
	asked      map[string]time.Duration // keys that were asked for, since the last gossip
}

// follower is a node that is told of changes.
type follower struct {
	sent uint64 // up to which position it was told
	bit  uint64 // stands for it in change.told, 0 if there are more nodes than bits
}

// change is some changes of a key by this node, one after the other.
type change struct {
	e          *entry
	pos        uint64
	prev, next uint64 // the positions of those of the same key before and behind it in the log, 0 if there are none
	from, to   uint64 // the versions
	delta      crdt.Delta
	item       []byte // the delta as a message holds it, nil if that is to be found out
	whole      bool   // the whole value is to be sent
	told       uint64 // the followers that a write has told
}

// join makes later changes of the same key a part of it.
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

// follow makes a node be told of changes from now on. What was before it gets in other ways.
func (d *deltaState) follow(n identity.Node) {
	if d.followers[n] != nil {
		return
	}
	used := uint64(0)
	for _, f := range d.followers { // the order does not matter
		used |= f.bit
	}
	f := &follower{sent: d.end}
	if free := bits.TrailingZeros64(^used); free < 64 {
		f.bit = 1 << free
	}
	d.followers[n] = f
}

// at returns the change at a position, nil if it is not in the log.
func (d *deltaState) at(pos uint64) *change {
	if n := len(d.log); n == 0 || pos < d.log[0].pos || pos > d.log[n-1].pos {
		return nil
	}
	return &d.log[pos-d.log[0].pos]
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
	last := d.at(e.pos)
	if join && last != nil && last.pos > d.most && last.told == 0 {
		last.join(e.version, delta, whole, m.cfg.MaxDeltaOps)
		m.logged()
		return last.pos
	}
	d.end++
	c := change{e: e, pos: d.end, from: e.version, to: e.version, whole: whole}
	if !whole {
		c.delta = delta
	}
	if last != nil {
		c.prev, last.next = last.pos, c.pos
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

// tell remembers that a write tells a node of a change. It gets an answer or, in the second wave, the whole value.
func (m *Machine) tell(pos uint64, n identity.Node) {
	c, f := m.deltas.at(pos), m.deltas.followers[n]
	if c == nil || f == nil || f.bit == 0 {
		return
	}
	c.told |= f.bit
	m.deltas.told |= f.bit
	if f.sent == pos-1 {
		f.sent = pos
	}
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

// trim forgets the changes that all others were told of.
func (m *Machine) trim() {
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
		d.told = 0
	}
}
