// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/journal"
)

// batch is the work of one goroutine of a Writer.
type batch struct {
	requests requests // in order; includes those that are answered without being sent
	count    int      // of requests
	bytes    int
	withheld int // requests that are answered without being sent
	inAppend bool
	writes   []journal.Write // reused
	ids      []string        // the IDs of the batch in Writer.busy; reused
	rooms    []Owner         // owners whose Room is called; reused
	done     chan struct{}   // closed when the goroutine ends
}

// busyID is a persistence ID of a call in flight.
type busyID struct {
	by   *batch
	wait requests
}

// start starts a goroutine that sends batches. The returned channel is closed when the goroutine
// ends. w.mu is held.
func (w *Writer) start() <-chan struct{} {
	if len(w.active) == 0 {
		select {
		case <-w.stopped: // a late request after the end
			w.stopped = make(chan struct{})
		default:
		}
	}
	c := &batch{done: make(chan struct{})}
	w.active = append(w.active, c)
	go w.run(c)
	return c.done
}

func (w *Writer) run(c *batch) {
	again := true
	defer func() {
		if again { // OnCommit called runtime.Goexit
			go w.run(c)
		}
	}()
	w.mu.Lock()
	for w.release(c); w.next(c); w.release(c) {
		w.mu.Unlock()
		for i, owner := range c.rooms {
			c.rooms[i] = nil
			owner.Room()
		}
		c.rooms = c.rooms[:0]
		w.send(c)
		w.mu.Lock()
	}
	again = false
	close(c.done)
	w.active = slices.DeleteFunc(w.active, func(other *batch) bool { return other == c })
	if len(w.active) == 0 {
		close(w.stopped)
	}
	w.mu.Unlock()
}

// next waits until c has work. It returns false if the goroutine must end. w.mu is held.
func (w *Writer) next(c *batch) bool {
	for {
		w.take(c)
		if c.count == 0 && w.queued == 0 {
			// The queue is empty, so owners that were granted room and have not submitted are slow
			// or will not submit.
			w.waiting.granted = 0
		}
		w.grant(c)
		if c.count > 0 || len(c.rooms) > 0 {
			if w.queue.first != nil {
				w.wakeIdle()
			}
			w.begin(c)
			return true
		}
		if w.closed {
			return false // the call that holds a busy ID handles the requests that wait for it
		}
		w.idle++
		if w.idle == len(w.active) && !w.waking {
			w.state.Store(idle)
		}
		w.wake.Wait()
		for w.idle == 0 { // Close has woken all goroutines during a Commit
			w.wake.Wait()
		}
		w.idle--
		w.waking = false
		// Let running goroutines submit first: a batch costs as much as a single write. This takes
		// no time if no other goroutine is runnable.
		w.mu.Unlock()
		runtime.Gosched()
		w.mu.Lock()
	}
}

func (w *Writer) wakeIdle() {
	if w.idle > 0 && !w.waking {
		w.waking = true
		if !w.closed {
			w.state.Store(busy)
		}
		w.wake.Signal()
	}
}

// Commit appends the request of a Leave to s on this goroutine and calls Written. If others have submitted
// requests since the Leave, a goroutine of the Writer takes all of them. The same happens if the caller
// may not wait for the journal. Commit does nothing if the request that waits belongs to another Stream.
func (w *Writer) Commit(s *Stream, mayWait bool) {
	if mayWait {
		runtime.Gosched() // as in next
	}
	w.mu.Lock()
	switch {
	case w.state.Load() != left || w.queue.first.Stream != s:
		w.mu.Unlock()
		return
	case !mayWait:
		w.wakeIdle()
		w.mu.Unlock()
		return
	}
	c := &w.commit
	w.state.Store(busy)
	w.idle--
	w.take(c)
	w.begin(c)
	w.mu.Unlock()
	defer func() { // also if user code calls runtime.Goexit
		w.mu.Lock()
		defer w.mu.Unlock()
		w.release(c)
		w.idle++
		switch {
		case w.closed:
			w.wake.Broadcast()
		case w.queue.first != nil || w.waiting.any():
			w.wakeIdle()
		case w.idle == len(w.active) && !w.waking:
			w.state.Store(idle)
		}
	}()
	w.send(c)
}

// begin counts a batch whose requests will be sent. w.mu is held.
func (w *Writer) begin(c *batch) {
	if c.count > c.withheld {
		c.inAppend = true
		w.sending++
	}
}

// take moves the next requests from the queue to c. w.mu is held.
func (w *Writer) take(c *batch) {
	if !w.trackIDs && w.unchecked == 0 && w.queued <= w.cfg.MaxBatchWrites && w.bytes <= w.cfg.MaxBatchBytes {
		// In the usual case take moves the whole list without touching the requests, so other
		// goroutines wait only briefly for the mutex.
		c.requests, c.count, c.bytes = w.queue, w.queued, w.bytes
		w.queue, w.queued, w.bytes = requests{}, 0, 0
		return
	}
	for c.count < w.cfg.MaxBatchWrites {
		r := w.queue.first
		if r == nil || c.bytes+r.size > w.cfg.MaxBatchBytes {
			return
		}
		w.queue.pop()
		w.unchecked = max(0, w.unchecked-1)
		if w.trackIDs && !w.claim(c, r) {
			continue
		}
		w.queued--
		w.bytes -= r.size
		w.decide(r)
		if r.err != nil {
			c.withheld++
		} else {
			c.bytes += r.size
		}
		c.requests.push(r)
		c.count++
	}
}

// claim marks the ID of r as busy for c. If another call holds the ID, r joins the wait list of the
// ID.
func (w *Writer) claim(c *batch, r *Request) bool {
	id := r.Write.ID
	held, busy := w.busy[id]
	if !busy {
		w.busy[id] = busyID{by: c}
		c.ids = append(c.ids, id)
	} else if held.by != c {
		held.wait.push(r)
		w.busy[id] = held
		return false
	}
	return true
}

// decide sets whether a request that leaves the queue is sent.
func (w *Writer) decide(r *Request) {
	s := r.Stream
	switch {
	case w.aborted || errors.Is(r.err, journal.ErrClosed):
		r.err = errWriterClosed
	case r.epoch != s.epoch || s.state >= skipping:
		r.err = journal.ErrSkipped
	case r.err != nil:
		s.state = skipping
	}
}

// grant selects the owners whose Room is called. w.mu is held.
func (w *Writer) grant(c *batch) {
	bytes := w.bytes
	fits := func(p waitingOwner) bool {
		ahead := w.queued + w.waiting.granted
		return w.closed || ahead == 0 || ahead < w.cfg.MaxQueuedWrites && bytes+p.size <= w.cfg.MaxQueuedBytes
	}
	for {
		p, ok := w.waiting.take(fits)
		if !ok {
			return
		}
		w.waiting.granted++
		bytes += p.size
		p.stream.granted = true
		c.rooms = append(c.rooms, p.owner)
	}
}

// release ends a call: the requests that waited for its IDs move to the front of the queue. w.mu is
// held.
func (w *Writer) release(c *batch) {
	for _, id := range c.ids {
		w.queue.prepend(w.busy[id].wait)
		delete(w.busy, id)
	}
	clear(c.ids)
	clear(c.writes)
	c.ids, c.writes = c.ids[:0], c.writes[:0]
	c.count, c.bytes, c.withheld = 0, 0, 0
}

func (w *Writer) send(c *batch) {
	var info journal.CommitInfo
	var slots []error
	if c.inAppend {
		events := 0
		for r := c.requests.first; r != nil; r = r.next {
			if r.err == nil {
				c.writes = append(c.writes, r.Write)
				events += len(r.Write.Events)
			}
		}
		info = journal.CommitInfo{Writes: len(c.writes), Events: events, Bytes: c.bytes}
		slots = w.append(w.ctx, c.writes, &info)
	}
	w.mu.Lock()
	sent := c.inAppend
	if sent {
		c.inAppend = false
		w.sending--
	}
	if slots != nil || c.withheld > 0 {
		w.settle(c, slots)
	}
	w.mu.Unlock()
	defer func() { // also if OnCommit calls runtime.Goexit
		rest := c.requests
		c.requests = requests{}
		answer(rest)
	}()
	if sent && w.cfg.OnCommit != nil {
		w.cfg.OnCommit(info)
	}
}

// answer calls Written for the requests of a batch.
func answer(rest requests) {
	defer func() {
		if rest.first != nil { // Written called runtime.Goexit
			answer(rest)
		}
	}()
	for r := rest.first; r != nil; r = rest.first {
		rest.pop()
		err := r.err
		r.next, r.err = nil, nil
		r.Owner.Written(r, err)
	}
}

// appendNow appends a request to an immediate journal, unless it has an error, and calls Written. The
// caller owns the stream, so no lock is needed: callers that wait for one after the other would cost
// more than the append.
func (w *Writer) appendNow(r *Request, size int, err error) {
	sent := false
	defer func() { // also if OnCommit calls runtime.Goexit
		if err != nil {
			r.Stream.state = failed
		}
		r.Owner.Written(r, err)
	}()
	switch {
	case w.state.Load() == ended:
		err = errWriterClosed
	case r.Stream.state == failed:
		err = journal.ErrSkipped
	default:
		sent = err == nil
	}
	if sent {
		info := journal.CommitInfo{Writes: 1, Events: len(r.Write.Events), Bytes: size}
		if slots := w.append(context.Background(), unsafe.Slice(&r.Write, 1), &info); slots != nil { //nolint:gosec // a slice of this one write, without a copy
			err = slots[0]
		}
		if w.cfg.OnCommit != nil {
			w.cfg.OnCommit(info)
		}
	}
}

// append calls the journal and returns one slot per write, or nil if all are stored.
func (w *Writer) append(ctx context.Context, writes []journal.Write, info *journal.CommitInfo) []error {
	var start time.Time
	if w.cfg.OnCommit != nil {
		start = time.Now()
	}
	var slots []error
	// A panic of the journal is an unknown outcome of each write.
	if p := panics.Call(func() { slots = w.journal.Append(ctx, writes) }); p != nil {
		slots = slices.Repeat([]error{fmt.Errorf("%w: %w", journal.ErrContract, p)}, len(writes))
	}
	if w.cfg.OnCommit != nil {
		info.Duration = time.Since(start)
	}
	if slots != nil && len(slots) != len(writes) {
		err := fmt.Errorf("%w: Append of %d writes returned %d slots", journal.ErrContract, len(writes), len(slots))
		slots = slices.Repeat([]error{err}, len(writes))
	}
	for _, err := range slots {
		if err != nil {
			info.Failed++
		}
	}
	if info.Failed == 0 {
		return nil
	}
	return slots
}

// settle sets the outcome of each request and marks the streams that failed. w.mu is held.
func (w *Writer) settle(c *batch, slots []error) {
	for r := c.requests.first; r != nil; r = r.next {
		s := r.Stream
		live := r.epoch == s.epoch
		behind := live && s.state == failed // an earlier write of this call failed
		switch {
		case r.err != nil: // withheld
			if behind && !errors.Is(r.err, journal.ErrClosed) {
				r.err = journal.ErrSkipped
			}
		case slots != nil:
			r.err, slots = slots[0], slots[1:]
			if r.err == nil && behind {
				r.err = fmt.Errorf("%w: Append stored a write of %q after an earlier one failed", journal.ErrContract, r.Write.ID)
			}
		}
		if r.err != nil && live {
			s.state = failed
		}
	}
	w.unchecked = w.queued
}
