// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package groupcommit batches the writes of many persistence IDs into few calls of
// journal.Journal.Append.
//
// A Writer collects the requests that arrive while an Append is in flight and sends them as one
// batch. Each request belongs to a Stream, which orders the writes of one persistence ID and stops
// after a failure, and to an Owner, which receives the outcome:
//
//	writer, err := groupcommit.New(j, journal.WriterConfig{})
//	writer.Submit(&groupcommit.Request{Write: write, Stream: &stream, Owner: owner})
//	// owner.Written is called with the outcome
//
// The Writer answers each request exactly once, in order of submission for each Stream. It never
// retries a write. After a failed write of a Stream, it sends no later write of that Stream.
package groupcommit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/journal"
)

// errWriterClosed is the outcome of requests that a closed Writer did not send.
var errWriterClosed = fmt.Errorf("%w: %w: writer", journal.ErrNotSent, journal.ErrClosed)

// Writer sends the writes of many persistence IDs to a journal in batches: the requests that arrive
// while an Append is in flight form the next batch. There are no timers, so a single write is sent
// at once.
//
// The writes of one Stream are sent in order of submission, and no two calls in flight contain the
// same persistence ID. The number of concurrent calls is limited by the journal (journal.Parallel);
// each call has its own goroutine.
//
// When a write of a Stream fails, the expected sequence numbers of its later writes are wrong.
// These writes are answered with ErrSkipped without being sent. The same holds for all further
// requests of the Stream until Reset. Other streams are not affected unless they write to the same
// ID. The journal itself may skip the writes of such a stream in the same call.
//
// A goroutine that may wait for the journal calls Leave and then Commit for its Stream. While no other
// request is there, Commit appends on this goroutine, which saves two changes of goroutines. Such an
// append counts as one of the concurrent calls.
//
// With a journal.Immediate, a Writer has no goroutine and no queue: Submit appends the write and
// calls Written before it returns. Then the caller orders the calls of Submit and Reset for a Stream,
// and Close does not wait for a Submit in another goroutine.
//
// All methods are safe for concurrent use.
type Writer struct {
	journal journal.Journal
	cfg     journal.WriterConfig
	ctx     context.Context //nolint:containedctx // of all calls
	cancel  context.CancelFunc

	mu     sync.Mutex
	queue  requests
	queued int // accepted and not sent: in the queue, or in a wait list of busy
	bytes  int // total size of the queued requests
	// unchecked is the number of requests at the front of the queue that must be checked before
	// they are sent, because a stream has failed.
	unchecked int
	// trackIDs is set if busy contains the IDs of the calls in flight. It is set if the journal
	// allows several concurrent calls, and after Close has stopped waiting for a call.
	trackIDs bool
	busy     map[string]busyID
	waiting  waitingOwners

	wake    sync.Cond // for idle goroutines
	idle    int       // idle goroutines that may run: one less than those that wait during a Commit
	waking  bool      // an idle goroutine was signaled and has not run yet
	active  []*batch  // one per goroutine
	commit  batch     // of Commit
	sending int       // number of batches in an Append

	state     atomic.Uint32 // a state; written with mu locked
	immediate bool          // Submit appends

	closed  bool          // new requests are not sent
	aborted bool          // queued requests are not sent either
	stopped chan struct{} // closed when no goroutine is left
}

// The states of a Writer.
const (
	busy  uint32 = iota // a goroutine runs, or Commit
	idle                // no goroutine runs, and no request waits
	left                // no goroutine runs, and one request waits for Commit
	ended               // Close was called
)

// New returns a Writer over j and starts its goroutines. The caller closes it before the journal.
func New(j journal.Journal, cfg journal.WriterConfig) (*Writer, error) {
	if j == nil {
		return nil, fmt.Errorf("%w: NewWriter needs a journal", journal.ErrInvalid)
	}
	if err := validate(cfg); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	calls := 1
	if p, ok := journal.As[journal.Parallel](j); ok {
		calls = max(1, p.MaxAppends())
	}
	w := &Writer{
		journal: j, cfg: withDefaults(cfg), ctx: ctx, cancel: cancel,
		trackIDs: calls > 1, busy: make(map[string]busyID), stopped: make(chan struct{}),
	}
	if w.immediate = journal.IsImmediate(j); w.immediate {
		cancel()
		close(w.stopped)
		w.state.Store(idle)
		return w, nil
	}
	w.wake.L = &w.mu
	w.mu.Lock()
	defer w.mu.Unlock()
	for range calls {
		w.start()
	}
	return w, nil
}

// Submit passes a request to the Writer. It never waits for the journal. If it returns true, the
// request is accepted and its outcome is passed to Written. If it returns false, the queue is full:
// the request was not accepted, and its owner's Room is called once there is room.
//
// While owners wait for room, only owners whose Room was called are admitted, so no request
// overtakes them.
//
// A request that cannot be sent (too large, without events, wrongly numbered) is accepted and
// answered with a *RejectedError. After Close every request is accepted and answered with an error
// that matches ErrNotSent and ErrClosed.
func (w *Writer) Submit(r *Request) bool { return w.submit(r, false) }

// Leave is Submit by a goroutine that calls Commit afterwards if Left is true.
func (w *Writer) Leave(r *Request) bool { return w.submit(r, true) }

// Left reports whether a request waits for Commit. It takes no lock.
func (w *Writer) Left() bool { return w.state.Load() == left }

func (w *Writer) submit(r *Request, leave bool) bool {
	size, err := measure(&r.Write, w.cfg.MaxBatchBytes)
	if err != nil {
		size = 0 // the request is never sent, so it takes no room
	}
	if w.immediate {
		w.appendNow(r, size, err)
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := r.Stream
	if !w.admit(r, size) {
		return false
	}
	if w.closed {
		err = errWriterClosed
	}
	r.size, r.epoch, r.err = size, s.epoch, err
	w.queue.push(r)
	w.queued++
	w.bytes += size
	if err != nil && s.state == flowing {
		s.state = willFail
	}
	if s.state != flowing {
		w.unchecked = w.queued
	}
	if leave && w.state.Load() == idle {
		w.state.Store(left)
		return true
	}
	w.wakeIdle()
	if w.closed && w.sending == len(w.active) && (w.aborted || w.sending == 0) {
		w.start() // the goroutine only answers requests
	}
	return true
}

// admit reports whether there is room for r. If there is none, it adds the owner of r to the
// waiting owners.
func (w *Writer) admit(r *Request, size int) bool {
	s := r.Stream
	granted := s.granted
	s.granted = false
	if granted {
		w.waiting.granted = max(0, w.waiting.granted-1)
	}
	if w.closed || w.queued == 0 {
		return true
	}
	full := w.queued >= w.cfg.MaxQueuedWrites || w.bytes+size > w.cfg.MaxQueuedBytes
	if !granted {
		full = full || w.waiting.any() || w.queued+w.waiting.granted >= w.cfg.MaxQueuedWrites
	}
	if full {
		w.waiting.add(waitingOwner{owner: r.Owner, stream: s, size: size}, granted)
	}
	return !full
}

// Immediate reports whether Submit appends.
func (w *Writer) Immediate() bool { return w.immediate }

// Idle reports whether no request waits or is in an Append. It takes no lock, so the answer may be
// outdated. After Close it is false.
func (w *Writer) Idle() bool { return w.state.Load() == idle }

// Reset resumes a Stream after a failed write: requests submitted from now on are sent again.
// Requests submitted before Reset stay skipped. Reset does nothing if no request of s was answered
// with an error.
func (w *Writer) Reset(s *Stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.state == failed {
		s.state = flowing
		s.epoch++
	}
}

// Close stops accepting requests, sends the accepted ones, and waits for the calls in flight. When
// ctx ends first, Close cancels the calls in flight, answers unsent requests with an error that
// matches ErrNotSent and ErrClosed, and returns an error that matches the cause of ctx. A call that
// ignores its context may then still be in flight. Its requests, and the requests that wait for the
// same IDs, are answered when the call returns. Another Close waits for this call.
//
// Close does not close the journal.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.state.Store(ended)
	w.wake.Broadcast()
	stopped := w.stopped
	w.mu.Unlock()
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-stopped: // both channels were ready
		return nil
	default:
	}
	<-w.abort()
	return fmt.Errorf("journal: close writer: %w", context.Cause(ctx))
}

// abort stops sending. The returned channel is closed when all requests that are not in flight are
// answered.
func (w *Writer) abort() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.aborted = true
	w.cancel()
	w.wake.Broadcast()
	if w.sending == 0 {
		return w.stopped // the goroutines end soon
	}
	if !w.trackIDs {
		w.trackIDs = true
		for _, c := range append(w.active, &w.commit) {
			for r := c.requests.first; r != nil; r = r.next {
				w.claim(c, r)
			}
		}
	}
	return w.start()
}

// maxAppendBytes is the upper bound and the default of WriterConfig.MaxBatchBytes.
const maxAppendBytes = 64 << 20

func withDefaults(c journal.WriterConfig) journal.WriterConfig {
	c.MaxQueuedWrites = cmp.Or(c.MaxQueuedWrites, 16_384)
	c.MaxQueuedBytes = cmp.Or(c.MaxQueuedBytes, 128<<20)
	c.MaxBatchWrites = cmp.Or(c.MaxBatchWrites, 1_024)
	c.MaxBatchBytes = cmp.Or(c.MaxBatchBytes, maxAppendBytes)
	return c
}

func validate(c journal.WriterConfig) error {
	var errs []error
	check := func(name string, value, limit int) {
		if value < 0 || value > limit {
			errs = append(errs, fmt.Errorf("%w: journal.WriterConfig.%s is %d, want 0 to %d", journal.ErrInvalid, name, value, limit))
		}
	}
	check("MaxQueuedWrites", c.MaxQueuedWrites, math.MaxInt)
	check("MaxQueuedBytes", c.MaxQueuedBytes, math.MaxInt)
	check("MaxBatchWrites", c.MaxBatchWrites, math.MaxInt)
	check("MaxBatchBytes", c.MaxBatchBytes, maxAppendBytes)
	return errors.Join(errs...)
}
