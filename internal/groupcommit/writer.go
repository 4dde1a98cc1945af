// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/refold-io/refold/journal"
)

// errWriterClosed answers what a closed Writer did not send.
var errWriterClosed = fmt.Errorf("%w: %w: writer", journal.ErrNotSent, journal.ErrClosed)

// Writer sends the writes of many persistence IDs to a journal in groups: what
// arrived while the last Append was in flight goes out as one. There are no
// timers, so a lone write goes out at once.
//
// The writes of one Stream are sent in order of submission, and no two calls in
// flight hold the same persistence ID. There are at most as many calls in flight
// as the journal says it profits from (Parallel), each on a goroutine of its own.
//
// When a write of a Stream ends in any error, those behind it would name a wrong
// expected number. They are answered ErrSkipped without being sent, and so is
// all that is submitted to the Stream until Reset. Other streams do not notice,
// unless they write to the same ID: then the journal itself may skip what stands
// behind the failure in the same call.
//
// All methods are safe for concurrent use.
type Writer struct {
	journal journal.Journal
	cfg     journal.WriterConfig
	cancel  context.CancelFunc // of the contexts of all calls

	mu     sync.Mutex
	queue  requests
	queued int // accepted and not sent: in the queue, or in a wait list of busy
	bytes  int // their size
	// suspect is how many requests at the front of the queue must be looked at
	// before they are sent, because a stream has failed.
	unchecked int
	// tracking says that busy holds the IDs of the calls in flight: when there
	// may be several, or when Close no longer waits for one.
	trackIDs bool
	busy     map[string]busyID
	waiting  waitingOwners

	wake    sync.Cond // for idle goroutines
	idle    int
	waking  bool     // one was signalled and has not run yet
	active  []*batch // one of each goroutine
	sending int      // how many of them are in an Append

	closed  bool          // what is submitted is not sent
	aborted bool          // what is queued isn't either
	stopped chan struct{} // closed when no goroutine is left
}

// NewWriter returns a Writer over j and starts its goroutines. The caller closes
// it before the journal.
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
		journal: j, cfg: withDefaults(cfg), cancel: cancel,
		trackIDs: calls > 1, busy: make(map[string]busyID), stopped: make(chan struct{}),
	}
	w.wake.L = &w.mu
	w.mu.Lock()
	defer w.mu.Unlock()
	for range calls {
		w.start(ctx)
	}
	return w, nil
}

// Submit hands a request over. It never waits for the journal. True means that
// the request is accepted and will be answered by Written. False means that
// there is no room: the request was not taken, and its owner's Room is called
// when there is.
//
// While owners wait for room, only those that were told of it get in, so that
// nobody overtakes them.
//
// A write that can't be sent as it is (too large, without events, numbered
// wrongly) is accepted and answered with a *RejectedError. After Close every
// request is accepted and answered with an error that matches ErrNotSent and
// ErrClosed.
func (w *Writer) Submit(r *Request) bool {
	size, err := measure(&r.Write, w.cfg.MaxBatchBytes)
	if err != nil {
		size = 0 // it carries nothing
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
	w.wakeIdle()
	if w.closed && w.sending == len(w.active) && (w.aborted || w.sending == 0) {
		w.start(context.Background()) // it only answers
	}
	return true
}

// admit reports whether there is room for r and parks its owner if not.
func (w *Writer) admit(r *Request, size int) bool {
	s := r.Stream
	roomed := s.granted
	s.granted = false
	if roomed {
		w.waiting.granted = max(0, w.waiting.granted-1)
	}
	if w.closed || w.queued == 0 {
		return true
	}
	full := w.queued >= w.cfg.MaxQueuedWrites || w.bytes+size > w.cfg.MaxQueuedBytes
	if !roomed {
		full = full || w.waiting.any() || w.queued+w.waiting.granted >= w.cfg.MaxQueuedWrites
	}
	if full {
		w.waiting.add(waitingOwner{owner: r.Owner, stream: s, size: size}, roomed)
	}
	return !full
}

// Reset ends the skipping that began when a write of s failed: requests
// submitted from now on are sent again. Those submitted before stay skipped. It
// does nothing if no request of s was answered with an error.
func (w *Writer) Reset(s *Stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.state == failed {
		s.state = flowing
		s.epoch++
	}
}

// Close refuses new requests, sends those that were accepted, and waits for the
// calls in flight. When ctx ends first, the calls in flight are canceled, what
// was not sent is answered with an error that matches ErrNotSent and ErrClosed,
// and Close returns an error that matches the cause of ctx. A call that does not
// heed its context may then still be in flight; its requests, and those that
// stand behind them, are answered when it returns. Another Close waits for that.
//
// It does not close the journal.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.wake.Broadcast()
	stopped := w.stopped
	w.mu.Unlock()
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-stopped: // both at once: it is drained
		return nil
	default:
	}
	<-w.abort(ctx)
	return fmt.Errorf("journal: close writer: %w", context.Cause(ctx))
}

// abort ends the sending. The channel is closed once what can be answered is.
func (w *Writer) abort(ctx context.Context) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.aborted = true
	w.cancel()
	w.wake.Broadcast()
	if w.sending == 0 {
		return w.stopped // the goroutines won't be long
	}
	if !w.trackIDs {
		w.trackIDs = true
		for _, c := range w.active {
			w.track(c)
		}
	}
	return w.start(ctx)
}

// maxAppendBytes is the upper bound and the default of WriterConfig.MaxBatchBytes.
const maxAppendBytes = 64 << 20

func withDefaults(c journal.WriterConfig) journal.WriterConfig {
	def := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	def(&c.MaxQueuedWrites, 16_384)
	def(&c.MaxQueuedBytes, 128<<20)
	def(&c.MaxBatchWrites, 1_024)
	def(&c.MaxBatchBytes, maxAppendBytes)
	return c
}

func validate(c journal.WriterConfig) error {
	var errs []error
	check := func(name string, value int) {
		if value < 0 {
			errs = append(errs, fmt.Errorf("%w: journal.WriterConfig.%s is %d, it can't be negative", journal.ErrInvalid, name, value))
		}
	}
	check("MaxQueuedWrites", c.MaxQueuedWrites)
	check("MaxQueuedBytes", c.MaxQueuedBytes)
	check("MaxBatchWrites", c.MaxBatchWrites)
	check("MaxBatchBytes", c.MaxBatchBytes)
	if c.MaxBatchBytes > maxAppendBytes {
		errs = append(errs, fmt.Errorf("%w: journal.WriterConfig.MaxBatchBytes is %d, at most %d are allowed", journal.ErrInvalid, c.MaxBatchBytes, maxAppendBytes))
	}
	return errors.Join(errs...)
}
