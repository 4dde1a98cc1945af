// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/node/replica"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/transport"
)

const (
	// maxTurn is how many requests or packets are handled before what follows from them is sent and answered.
	maxTurn = 256
	// housekeeping is how often the clock is looked at, and what was read past the loop is told.
	housekeeping = time.Second
)

// now is the time of the machine.
func (r *Replicator) now() time.Duration { return time.Since(r.start) }

// run handles what comes, but for what callers do themselves. When it is over, all else of the replicator ends.
func (r *Replicator) run() {
	defer r.finish()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var spare waiting
	for !r.ended.Load() {
		fired := false
		select {
		case <-r.inbox.news:
		case <-timer.C:
			fired = true
		}
		r.withTurn(func() {
			r.count.Turns++
			spare = r.inbox.take(spare)
			r.handle(&spare)
			r.handleBulk()
			r.tickIfDue()
			// A timer that fires too early does no harm.
			if next := r.next(); next < r.armed || fired {
				timer.Reset(max(0, next-r.now()))
				r.armed = next
			}
		})
	}
}

// next is when there is something to do.
func (r *Replicator) next() time.Duration { return min(r.machine.Next(), r.housekeepingDue) }

// take calls f with the turn. If f panics, or is left by a function of a user, the replicator ends: what it knew can't be
// trusted any more.
func (r *Replicator) withTurn(f func()) {
	r.turn <- struct{}{}
	defer r.releaseTurn()
	defer r.recoverTurn()
	f()
	r.turnCompleted = true
}

func (r *Replicator) releaseTurn() { <-r.turn }

// direct handles a request at once if the loop has nothing to do: to wake it up takes longer than most requests do. It is
// false if the loop has to handle it.
func (r *Replicator) runInline(c *call) bool {
	select {
	case r.turn <- struct{}{}:
		defer r.releaseTurn()
	default:
		return false
	}
	if r.ended.Load() || !r.inbox.idle() {
		return false
	}
	defer r.recoverTurn()
	b := replica.Batch{Inputs: r.single[:0]}
	r.item(&item{call: c}, &b)
	r.applyEffects(r.machine.Step(r.now(), b))
	clear(r.single[:])
	if r.ended.Load() || r.next() < r.armed {
		r.inbox.wake()
	}
	r.turnCompleted = true
	return true
}

// handle handles what has come.
func (r *Replicator) handle(w *waiting) {
	packets, items := w.packets, w.items
	for w.members != nil || len(packets)+len(items) > 0 {
		n, k := min(len(packets), maxTurn), min(len(items), maxTurn)
		b := replica.Batch{Members: w.members, Packets: packets[:n]}
		r.count.Packets += uint64(n)
		for i := range items[:k] {
			if items[i].do != nil && len(b.Inputs) > 0 { // what came before it comes first
				r.applyEffects(r.machine.Step(r.now(), b))
				b = replica.Batch{}
			}
			r.item(&items[i], &b)
		}
		r.applyEffects(r.machine.Step(r.now(), b))
		w.members, packets, items = nil, packets[n:], items[k:]
	}
}

// handleBulk handles one packet of bulk: what comes meanwhile and can't wait is next.
func (r *Replicator) handleBulk() {
	p, found, more := r.inbox.takeBulk()
	if !found {
		return
	}
	r.count.Packets++
	r.applyEffects(r.machine.Step(r.now(), replica.Batch{Packets: []replica.Packet{p}}))
	if more {
		r.inbox.wake()
	}
}

// item adds something to a batch, or does it.
func (r *Replicator) item(it *item, b *replica.Batch) {
	switch {
	case it.do != nil:
		it.do()
	case it.call == nil:
		b.Inputs = append(b.Inputs, it.in)
	case it.call.state.CompareAndSwap(queued, taken):
		r.count.Requests++
		r.pending[it.call.id] = it.call
		b.Inputs = append(b.Inputs, it.call.in)
	}
}

func (r *Replicator) tickIfDue() {
	now := r.now()
	if now >= r.machine.Next() {
		r.applyEffects(r.machine.Tick(now))
	}
	if now >= r.housekeepingDue {
		r.housekeepingDue = now + housekeeping
		b := replica.Batch{Inputs: []replication.Input{replication.SetClock{Time: time.Now().Round(0)}}}
		if keys := r.reads.take(); len(keys) > 0 {
			b.Inputs = append(b.Inputs, replication.Touch{Keys: keys})
		}
		r.applyEffects(r.machine.Step(now, b))
	}
}

// perform carries out what the machine wants done, in order.
func (r *Replicator) applyEffects(e replica.Effects) {
	for i := range e.Notes {
		r.logNote(&e.Notes[i])
	}
	if len(e.Store) > 0 {
		r.writer.add(e.Store)
	}
	r.values.publish(e.Values) // who is told that this node has them may look at once
	for i := range e.Send {
		r.send(&e.Send[i])
	}
	r.replicas.Store(int64(r.machine.Protocol().ReplicaCount()))
	r.notifyWaiters()
	for i := range e.Replies {
		reply := &e.Replies[i]
		if c := r.pending[reply.ID]; c != nil {
			delete(r.pending, reply.ID)
			c.answer <- *reply
		}
	}
	r.subs.publish(e.Events, r.types)
	if e.Stopped {
		r.end(r.removed())
		r.ended.Store(true)
	}
	r.machine.Reuse(e)
}

// send sends a packet. What can't be sent is lost, which the protocol can cope with.
func (r *Replicator) send(s *replica.Send) {
	lane := transport.Data
	if s.Bulk {
		lane = transport.Bulk
	}
	if err := r.node.Transport().Send(s.To, lane, kind, s.Payload); err != nil {
		r.count.Unsent++
		r.lines.write(r, lineUnsent, slog.LevelWarn, "messages can't be sent", slog.String("to", s.To.String()), slog.Any("error", err))
	}
}

// stored tells the loop what became of some records.
func (r *Replicator) stored(s replication.Stored) { r.inbox.add(item{in: s}) }

// failed ends the replicator if the turn has not come to its end.
func (r *Replicator) recoverTurn() {
	p := recover()
	if r.turnCompleted {
		r.turnCompleted = false
		return
	}
	r.log.ErrorContext(r.base, "the replicator has failed", slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
	r.end(fmt.Errorf("it has failed: %v", p))
	r.ended.Store(true)
	r.inbox.wake()
}

// finish ends all that belongs to the replicator, and waits for it.
func (r *Replicator) finish() {
	r.router.remove(r)
	for _, it := range r.inbox.close().items {
		if it.call != nil && it.call.state.CompareAndSwap(queued, taken) {
			it.call.answer <- replication.Reply{Outcome: replication.Stopped}
		}
	}
	for _, c := range r.pending { // each has a channel of its own
		c.answer <- replication.Reply{Outcome: replication.Stopped}
	}
	r.subs.close()
	if r.writer != nil {
		r.closeErr = r.writer.close()
	}
	r.cancel()
	r.background.Wait()
	r.removeHooks()
	close(r.done)
}

// maxWaiting is how many bytes of messages may wait for the loop, maxWaitingCount how many packets, each for those that are bulk and for
// all others. The handler of one more waits, and so does what its sender sends on that lane.
const (
	maxWaiting      = 16 << 20
	maxWaitingCount = 8192
	// maxWaitingItems is how many items may wait for the loop before requests are refused: if a function of a user never returns, nobody takes
	// away what waits, though those who have asked give up.
	maxWaitingItems = 65_536
)

// item is something for the loop: a request, another input, or something to be done.
type item struct {
	call *call
	in   replication.Input
	do   func()
}

// inbox is what waits for the loop.
type inbox struct {
	news chan struct{}

	mu      sync.Mutex
	members *replication.Members
	items   []item
	urgent  queue
	bulk    queue
	closed  bool
}

// queue is the packets that wait, in the order in which they came.
type queue struct {
	packets []replica.Packet
	bytes   int
	room    chan struct{} // closed when there is room, if somebody waits
}

// waiting is what the loop handles at once: all that has come since it has looked, but for bulk.
type waiting struct {
	members *replication.Members
	packets []replica.Packet
	items   []item
}

func newInbox() *inbox { return &inbox{news: make(chan struct{}, 1)} }

// add adds something, unless the loop has ended.
func (b *inbox) add(it item) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.items = append(b.items, it)
	b.mu.Unlock()
	b.wake()
	return true
}

// ask adds a request, unless the loop has ended. It is crowded if too much waits already.
func (b *inbox) ask(c *call) (ok, crowded bool) {
	b.mu.Lock()
	if ok, crowded = !b.closed, len(b.items) >= maxWaitingItems; !ok || crowded {
		b.mu.Unlock()
		return ok, crowded
	}
	b.items = append(b.items, item{call: c})
	b.mu.Unlock()
	b.wake()
	return true, false
}

// idle reports whether nothing waits but bulk.
func (b *inbox) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.closed && b.members == nil && len(b.urgent.packets)+len(b.items) == 0
}

// see replaces who is in the cluster.
func (b *inbox) setMembers(m *replication.Members) {
	b.mu.Lock()
	b.members = m
	b.mu.Unlock()
	b.wake()
}

// receive adds a packet. It waits while there is no room.
func (b *inbox) receive(ctx context.Context, p replica.Packet, bulk bool) {
	q := &b.urgent
	if bulk {
		q = &b.bulk
	}
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return
		}
		room := q.add(p)
		b.mu.Unlock()
		if room == nil {
			b.wake()
			return
		}
		select {
		case <-room:
		case <-ctx.Done():
			return
		}
	}
}

// add adds a packet, or returns what tells when there is room for it.
func (q *queue) add(p replica.Packet) (room <-chan struct{}) {
	if q.bytes > 0 && (q.bytes+len(p.Payload) > maxWaiting || len(q.packets) >= maxWaitingCount) {
		if q.room == nil {
			q.room = make(chan struct{})
		}
		return q.room
	}
	q.bytes += len(p.Payload)
	q.packets = append(q.packets, p)
	return nil
}

// makeRoom says that there is room for as many bytes more.
func (q *queue) makeRoom(bytes int) {
	q.bytes -= bytes
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// take returns all that waits, but for bulk. What it was given before is used again.
func (b *inbox) take(spare waiting) waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := waiting{b.members, b.urgent.packets, b.items}
	b.members, b.urgent.packets, b.items = nil, reuse(spare.packets), reuse(spare.items)
	b.urgent.makeRoom(b.urgent.bytes)
	return w
}

// takeBulk returns the packet of bulk that has waited longest, and whether there are more.
func (b *inbox) takeBulk() (p replica.Packet, found, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := &b.bulk
	if len(q.packets) == 0 {
		return p, false, false
	}
	p, q.packets[0] = q.packets[0], replica.Packet{}
	if q.packets = q.packets[1:]; len(q.packets) == 0 {
		q.packets = nil
	}
	q.makeRoom(len(p.Payload))
	return p, true, len(q.packets) > 0
}

// reuse returns a slice without elements that takes the memory of one that is no longer needed.
func reuse[E any](s []E) []E {
	if cap(s) > maxWaitingCount {
		return nil
	}
	clear(s)
	return s[:0]
}

// close ends it, and returns what the loop has not taken.
func (b *inbox) close() waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	w := waiting{items: b.items}
	b.members, b.items = nil, nil
	for _, q := range []*queue{&b.urgent, &b.bulk} {
		q.packets = nil
		q.makeRoom(q.bytes)
	}
	return w
}

func (b *inbox) wake() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}
