// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/transport"
)

const (
	// maxTurn is the maximum number of requests or packets in one step of the machine.
	maxTurn = 256
	// shareAt is the number of waiting requests from which on further requests for other nodes run
	// in the loop, so that they share packets. A request of a few callers is faster without the
	// switch to the loop.
	shareAt = 8
	// housekeeping is the interval of updating the machine's wall clock and of reporting reads
	// outside of the loop.
	housekeeping = time.Second
)

func (r *Replicator) now() time.Duration { return time.Since(r.start) }

// run is the loop. When it returns, the replicator has ended. See runInline for an idle loop.
func (r *Replicator) run() {
	defer r.finish()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var spare waiting
	for !r.ended.Load() {
		fired := false
		select {
		case <-r.inbox.ready:
		case <-timer.C:
			fired = true
		}
		if r.waiting.Load() >= shareAt {
			// Callers whose requests were answered may have further requests. All requests of one
			// turn for a node share a packet.
			runtime.Gosched()
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
	if in := r.inbox; r.ended.Load() || in.members.Load() != nil || in.packets.Len()+in.items.Len() > 0 {
		return false
	}
	defer r.recoverTurn()
	c.state.Store(taken)
	r.count.Requests++
	r.inline, r.single[0] = c, c.in
	r.applyEffects(r.machine.Step(r.now(), replication.Batch{Inputs: r.single[:]}))
	clear(r.single[:])
	if r.inline = nil; !c.answered {
		r.pending[c.id] = c
		r.waiting.Store(int64(len(r.pending)))
	}
	if r.ended.Load() || r.next() < r.armed {
		r.inbox.ready.Set()
	}
	r.turnCompleted = true
	return true
}

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

// handleBulk processes one bulk packet. Urgent input precedes the next bulk packet.
func (r *Replicator) handleBulk() {
	p, found, more := r.inbox.takeBulk()
	if !found {
		return
	}
	r.count.Packets++
	r.applyEffects(r.machine.Step(r.now(), replication.Batch{Packets: []replication.Packet{p}}))
	if more {
		r.inbox.ready.Set()
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
		if c := r.inline; c != nil && c.id == reply.ID {
			c.reply, c.answered = *reply, true
		} else if c := r.pending[reply.ID]; c != nil {
			delete(r.pending, reply.ID)
			c.answer <- *reply
		}
	}
	r.waiting.Store(int64(len(r.pending)))
	r.publish(e.Events)
	if e.Stopped {
		r.end(r.nodeEnded("the node is no longer a member of its cluster"))
		r.ended.Store(true)
	}
	r.machine.Reuse(e)
}

// send sends a packet. A packet that cannot be sent is lost; the protocol tolerates the loss.
func (r *Replicator) send(s *replication.Send) {
	lane := transport.Data
	if s.Bulk {
		lane = transport.Bulk
	}
	if err := r.node.Transport().Send(s.To, lane, kind, s.Payload); err != nil {
		r.count.Unsent++
		r.logThrottled(slog.LevelWarn, "packet not sent", slog.String("to", s.To.String()), slog.Any("error", err))
	}
}

// recoverTurn ends the replicator if a turn did not complete.
func (r *Replicator) recoverTurn() {
	p := recover()
	if r.turnCompleted {
		r.turnCompleted = false
		return
	}
	if c := r.inline; c != nil {
		r.inline, r.pending[c.id] = nil, c // finish answers it
	}
	r.log.ErrorContext(r.base, "replicator panicked", slog.String("panic", panics.Text(p)), slog.String("stack", string(debug.Stack())))
	r.end(fmt.Errorf("replicator panicked: %s", panics.Text(p)))
	r.ended.Store(true)
	r.inbox.ready.Set()
}

// finish ends all parts of the replicator and waits until they have ended.
func (r *Replicator) finish() {
	r.router.remove(r)
	for _, it := range r.inbox.close() {
		if it.call != nil && it.call.state.CompareAndSwap(queued, taken) {
			it.call.answer <- replication.Reply{Outcome: replication.Stopped}
		}
	}
	for _, c := range r.pending { // the order does not matter
		c.answer <- replication.Reply{Outcome: replication.Stopped}
	}
	r.endSubscriptions()
	if r.writer != nil {
		r.closeErr = r.writer.close()
	}
	r.cancel()
	r.mu.Lock()
	r.backgroundClosed = true
	r.mu.Unlock()
	r.background.Wait()
	r.removeHooks()
	close(r.done)
}

// maxWaiting is the maximum size of the waiting packets in bytes, and maxWaitingCount their maximum
// number. Bulk packets and other packets are counted separately. At a limit, the handler of the
// transport waits. This wait also delays the sender on that lane.
const (
	maxWaiting      = 16 << 20
	maxWaitingCount = 8192
	// maxWaitingItems is the number of waiting items at which further requests are refused. If the
	// function of an update never returns, requests would otherwise accumulate although their
	// callers no longer wait.
	maxWaitingItems = 65_536
)

// item is input of the loop other than packets: a request, another input of the machine, or a
// function to call.
type item struct {
	call *call
	in   replication.Input
	do   func()
}

type inbox struct {
	ready   loop.Signal // set when a field below receives input
	members atomic.Pointer[replication.Members]
	items   *loop.Mailbox[item]
	packets *loop.Mailbox[replication.Packet]
	bulk    *loop.Mailbox[replication.Packet]
}

// waiting is all waiting input except bulk packets.
type waiting struct {
	members *replication.Members
	packets []replication.Packet
	items   []item
}

func newInbox(account *loop.Account) *inbox {
	ready, packets := loop.NewSignal(), loop.Limit{Count: maxWaitingCount, Bytes: maxWaiting, Account: account}
	return &inbox{
		ready:   ready,
		items:   loop.NewMailbox[item](ready, loop.Limit{Count: maxWaitingItems}),
		packets: loop.NewMailbox[replication.Packet](ready, packets),
		bulk:    loop.NewMailbox[replication.Packet](ready, packets),
	}
}

// take returns all waiting input except bulk packets. It reuses the memory of spare.
func (b *inbox) take(spare waiting) waiting {
	return waiting{b.members.Swap(nil), b.packets.Take(spare.packets), b.items.Take(spare.items)}
}

// takeBulk returns the oldest bulk packet, and whether there are more.
func (b *inbox) takeBulk() (p replication.Packet, found, more bool) {
	return b.bulk.TakeOne(func(p replication.Packet) (class, bytes int) { return 0, len(p.Payload) })
}

// close closes the inbox and returns the items that the loop has not taken.
func (b *inbox) close() []item {
	b.packets.Close()
	b.bulk.Close()
	return b.items.Close()
}
