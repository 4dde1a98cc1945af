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

	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/transport"
)

const (
	// maxTurn is the maximum number of requests or packets in one step of the machine.
	maxTurn = 256
	// housekeeping is the interval of updating the machine's wall clock and of reporting reads
	// outside of the loop.
	housekeeping = time.Second
)

// now returns the monotonic time of the machine.
func (r *Replicator) now() time.Duration { return time.Since(r.start) }

// run is the loop. Callers may also run requests in its place, see runInline. When it returns, the
// replicator has ended.
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
			// A timer that fires too early is harmless.
			if next := r.next(); next < r.armed || fired {
				timer.Reset(max(0, next-r.now()))
				r.armed = next
			}
		})
	}
}

// next returns the time of the next scheduled work.
func (r *Replicator) next() time.Duration { return min(r.machine.Next(), r.housekeepingDue) }

// withTurn calls f with the turn. If f panics or exits its goroutine, the replicator ends, because
// its state may be inconsistent.
func (r *Replicator) withTurn(f func()) {
	r.turn <- struct{}{}
	defer r.releaseTurn()
	defer r.recoverTurn()
	f()
	r.turnCompleted = true
}

func (r *Replicator) releaseTurn() { <-r.turn }

// runInline runs a request on the caller's goroutine if the loop is idle, which is faster than
// waking up the loop. It returns false if the loop has to run the request.
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
	b := replication.Batch{Inputs: r.single[:0]}
	r.item(&item{call: c}, &b)
	r.applyEffects(r.machine.Step(r.now(), b))
	clear(r.single[:])
	if r.ended.Load() || r.next() < r.armed {
		r.inbox.wake()
	}
	r.turnCompleted = true
	return true
}

// handle processes input.
func (r *Replicator) handle(w *waiting) {
	packets, items := w.packets, w.items
	for w.members != nil || len(packets)+len(items) > 0 {
		n, k := min(len(packets), maxTurn), min(len(items), maxTurn)
		b := replication.Batch{Members: w.members, Packets: packets[:n]}
		r.count.Packets += uint64(n)
		for i := range items[:k] {
			if items[i].do != nil && len(b.Inputs) > 0 { // preserve the order
				r.applyEffects(r.machine.Step(r.now(), b))
				b = replication.Batch{}
			}
			r.item(&items[i], &b)
		}
		r.applyEffects(r.machine.Step(r.now(), b))
		w.members, packets, items = nil, packets[n:], items[k:]
	}
}

// handleBulk processes one bulk packet. Urgent input that arrives in between is processed before
// the next one.
func (r *Replicator) handleBulk() {
	p, found, more := r.inbox.takeBulk()
	if !found {
		return
	}
	r.count.Packets++
	r.applyEffects(r.machine.Step(r.now(), replication.Batch{Packets: []replication.Packet{p}}))
	if more {
		r.inbox.wake()
	}
}

// item adds an item to a batch, or executes it.
func (r *Replicator) item(it *item, b *replication.Batch) {
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
		b := replication.Batch{Inputs: []replication.Input{replication.SetClock{Time: time.Now().Round(0)}}}
		if keys := r.reads.take(); len(keys) > 0 {
			b.Inputs = append(b.Inputs, replication.Touch{Keys: keys})
		}
		r.applyEffects(r.machine.Step(now, b))
	}
}

// applyEffects performs the effects of the machine in order.
func (r *Replicator) applyEffects(e replication.Effects) {
	for i := range e.Notes {
		r.logNote(&e.Notes[i])
	}
	if len(e.Store) > 0 {
		r.writer.add(e.Store)
	}
	r.values.publish(e.Values) // before the messages and replies that acknowledge the values
	for i := range e.Send {
		r.send(&e.Send[i])
	}
	r.replicas.Store(int64(r.machine.ReplicaCount()))
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

// send sends a packet. A packet that cannot be sent is lost; the protocol tolerates that.
func (r *Replicator) send(s *replication.Send) {
	lane := transport.Data
	if s.Bulk {
		lane = transport.Bulk
	}
	if err := r.node.Transport().Send(s.To, lane, kind, s.Payload); err != nil {
		r.count.Unsent++
		r.logThrottled(logUnsent, slog.LevelWarn, "packet not sent", slog.String("to", s.To.String()), slog.Any("error", err))
	}
}

// stored passes the result of a write to the loop.
func (r *Replicator) stored(s replication.Stored) { r.inbox.add(item{in: s}) }

// recoverTurn ends the replicator if a turn did not complete.
func (r *Replicator) recoverTurn() {
	p := recover()
	if r.turnCompleted {
		r.turnCompleted = false
		return
	}
	r.log.ErrorContext(r.base, "replicator panicked", slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
	r.end(fmt.Errorf("replicator panicked: %v", p))
	r.ended.Store(true)
	r.inbox.wake()
}

// finish ends everything that belongs to the replicator and waits for it.
func (r *Replicator) finish() {
	r.router.remove(r)
	for _, it := range r.inbox.close().items {
		if it.call != nil && it.call.state.CompareAndSwap(queued, taken) {
			it.call.answer <- replication.Reply{Outcome: replication.Stopped}
		}
	}
	for _, c := range r.pending { // the order does not matter
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

// maxWaiting is the maximum size of the waiting packets in bytes, maxWaitingCount their maximum
// number, each separately for bulk packets and for others. At the limit, the transport's handler
// waits, and with it the sender on that lane.
const (
	maxWaiting      = 16 << 20
	maxWaitingCount = 8192
	// maxWaitingItems is the number of waiting items from which on requests are refused. If the
	// function of an update never returns, requests would otherwise accumulate although their
	// callers have given up.
	maxWaitingItems = 65_536
)

// item is input of the loop other than packets: a request, another input of the machine, or a
// function to call.
type item struct {
	call *call
	in   replication.Input
	do   func()
}

// inbox holds the input of the loop.
type inbox struct {
	news chan struct{}

	mu      sync.Mutex
	members *replication.Members
	items   []item
	urgent  queue
	bulk    queue
	closed  bool
}

// queue is a bounded queue of packets in order of arrival.
type queue struct {
	packets []replication.Packet
	bytes   int
	room    chan struct{} // closed when there is room; nil if no sender waits
}

// waiting is all waiting input except bulk packets.
type waiting struct {
	members *replication.Members
	packets []replication.Packet
	items   []item
}

func newInbox() *inbox { return &inbox{news: make(chan struct{}, 1)} }

// add adds an item. It returns false if the loop has ended.
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

// ask adds a request. ok is false if the loop has ended, crowded is true if too many items wait.
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

// idle reports whether no input waits except bulk packets.
func (b *inbox) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.closed && b.members == nil && len(b.urgent.packets)+len(b.items) == 0
}

// setMembers replaces the members of the cluster.
func (b *inbox) setMembers(m *replication.Members) {
	b.mu.Lock()
	b.members = m
	b.mu.Unlock()
	b.wake()
}

// receive adds a packet. It blocks while there is no room.
func (b *inbox) receive(ctx context.Context, p replication.Packet, bulk bool) {
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

// add adds a packet. If there is no room, it returns a channel that is closed when there is.
func (q *queue) add(p replication.Packet) (room <-chan struct{}) {
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

// makeRoom frees bytes of the queue.
func (q *queue) makeRoom(bytes int) {
	q.bytes -= bytes
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// take returns all waiting input except bulk packets. It reuses the memory of spare.
func (b *inbox) take(spare waiting) waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := waiting{b.members, b.urgent.packets, b.items}
	b.members, b.urgent.packets, b.items = nil, reuse(spare.packets), reuse(spare.items)
	b.urgent.makeRoom(b.urgent.bytes)
	return w
}

// takeBulk returns the oldest bulk packet, and whether there are more.
func (b *inbox) takeBulk() (p replication.Packet, found, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := &b.bulk
	if len(q.packets) == 0 {
		return p, false, false
	}
	p, q.packets[0] = q.packets[0], replication.Packet{}
	if q.packets = q.packets[1:]; len(q.packets) == 0 {
		q.packets = nil
	}
	q.makeRoom(len(p.Payload))
	return p, true, len(q.packets) > 0
}

// reuse returns an empty slice with the memory of s.
func reuse[E any](s []E) []E {
	if cap(s) > maxWaitingCount {
		return nil
	}
	clear(s)
	return s[:0]
}

// close closes the inbox and returns the items that the loop has not taken.
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
