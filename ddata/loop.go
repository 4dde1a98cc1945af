// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"fmt"
	"log/slog"
	"runtime/debug"
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
	for !r.over.Load() {
		fired := false
		select {
		case <-r.inbox.news:
		case <-timer.C:
			fired = true
		}
		r.take(func() {
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
func (r *Replicator) next() time.Duration { return min(r.machine.Next(), r.house) }

// take calls f with the turn. If f panics, or is left by a function of a user, the replicator ends: what it knew can't be
// trusted any more.
func (r *Replicator) take(f func()) {
	r.turn <- struct{}{}
	defer r.give()
	defer r.failed()
	f()
	r.sound = true
}

func (r *Replicator) give() { <-r.turn }

// direct handles a request at once if the loop has nothing to do: to wake it up takes longer than most requests do. It is
// false if the loop has to handle it.
func (r *Replicator) direct(c *call) bool {
	select {
	case r.turn <- struct{}{}:
		defer r.give()
	default:
		return false
	}
	if r.over.Load() || !r.inbox.idle() {
		return false
	}
	defer r.failed()
	b := replica.Batch{Inputs: r.single[:0]}
	r.item(&item{call: c}, &b)
	r.perform(r.machine.Step(r.now(), b))
	clear(r.single[:])
	if r.over.Load() || r.next() < r.armed {
		r.inbox.wake()
	}
	r.sound = true
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
				r.perform(r.machine.Step(r.now(), b))
				b = replica.Batch{}
			}
			r.item(&items[i], &b)
		}
		r.perform(r.machine.Step(r.now(), b))
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
	r.perform(r.machine.Step(r.now(), replica.Batch{Packets: []replica.Packet{p}}))
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
		r.perform(r.machine.Tick(now))
	}
	if now >= r.house {
		r.house = now + housekeeping
		b := replica.Batch{Inputs: []replication.Input{replication.SetClock{Time: time.Now().Round(0)}}}
		if keys := r.touched.take(); len(keys) > 0 {
			b.Inputs = append(b.Inputs, replication.Touch{Keys: keys})
		}
		r.perform(r.machine.Step(now, b))
	}
}

// perform carries out what the machine wants done, in order.
func (r *Replicator) perform(e replica.Effects) {
	for i := range e.Notes {
		r.note(&e.Notes[i])
	}
	if len(e.Store) > 0 {
		r.disk.add(e.Store)
	}
	r.values.publish(e.Values) // who is told that this node has them may look at once
	for i := range e.Send {
		r.send(&e.Send[i])
	}
	r.replicas.Store(int64(r.machine.Protocol().ReplicaCount()))
	r.tellAwaits()
	for i := range e.Replies {
		reply := &e.Replies[i]
		if c := r.pending[reply.ID]; c != nil {
			delete(r.pending, reply.ID)
			c.answer <- *reply
		}
	}
	r.subs.tell(e.Events, r.types)
	if e.Stopped {
		r.end(r.removed())
		r.over.Store(true)
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
func (r *Replicator) failed() {
	p := recover()
	if r.sound {
		r.sound = false
		return
	}
	r.log.ErrorContext(r.base, "the replicator has failed", slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
	r.end(fmt.Errorf("it has failed: %v", p))
	r.over.Store(true)
	r.inbox.wake()
}

// finish ends all that belongs to the replicator, and waits for it.
func (r *Replicator) finish() {
	r.board.remove(r)
	for _, it := range r.inbox.close().items {
		if it.call != nil && it.call.state.CompareAndSwap(queued, taken) {
			it.call.answer <- replication.Reply{Outcome: replication.Stopped}
		}
	}
	for _, c := range r.pending { // each has a channel of its own
		c.answer <- replication.Reply{Outcome: replication.Stopped}
	}
	r.subs.close()
	if r.disk != nil {
		r.badEnds = r.disk.close()
	}
	r.cancel()
	r.watch.Wait()
	r.removeHooks()
	close(r.done)
}
