// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/loop"
)

// budgeted gives the packages of this module access to the budget of the node.
type budgeted = loop.Budgeted

// Transport sends and receives messages for one incarnation of a node. Its methods are safe for
// concurrent use.
type Transport struct {
	budgeted

	carrier Carrier
	cfg     Config
	log     *slog.Logger
	start   time.Time
	self    identity.Node

	handlers atomic.Pointer[handlers]
	requests loop.Pending[request]
	unused   sync.Pool // of channels for results
	events   *loop.Mailbox[Event]
	down     atomic.Pointer[error] // why the carrier is disconnected
	counters shellCounters
	throttle loop.Throttle[link.Reason]

	// mu guards the machine and the inboxes. It is held for short computations only.
	mu            sync.Mutex
	machine       *link.Machine
	inboxes       map[inboxKey]*inbox // in use
	unusedInboxes []*inbox
	flushed       [Lanes][]chan struct{} // closed when the lane has nothing left to send
	closed        bool
	admin         admin

	wake       [Lanes]loop.Signal // the lane may have something to send
	creditWait loop.Signal        // a link may wait for credit

	base    context.Context //nolint:containedctx // the parent of all handlers' contexts, canceled by Close
	cancel  context.CancelCauseFunc
	pool    pool
	running sync.WaitGroup
	closing sync.Once
	failed  error // result of Close
}

// Open starts a transport on a carrier and takes over the carrier: Close closes it. The error
// matches ErrInvalid or is the carrier's error. After an error the carrier is closed.
func Open(carrier Carrier, cfg Config) (*Transport, error) {
	cfg = cfg.withDefaults()
	machine, err := cfg.machine(carrier.Self(), carrier.MaxFrame())
	if err != nil {
		return nil, errors.Join(err, carrier.Close())
	}
	t := &Transport{
		budgeted:   loop.WithBudget(loop.NewBudget(cfg.MemoryBudget)),
		carrier:    carrier,
		cfg:        cfg,
		log:        cfg.Logger.With(slog.String("node", carrier.Self().String())),
		start:      time.Now(),
		self:       carrier.Self(),
		events:     loop.NewMailbox[Event](loop.NewSignal(), loop.Limit{Count: maxEvents}),
		machine:    machine,
		inboxes:    make(map[inboxKey]*inbox),
		creditWait: loop.NewSignal(),
	}
	t.base, t.cancel = context.WithCancelCause(context.Background())
	t.handlers.Store(new(handlers))
	t.requests.Limit = cfg.MaxRequests
	t.unused.New = func() any { return make(chan result, 1) }
	t.pool.init()
	for lane := range t.wake {
		t.wake[lane] = loop.NewSignal()
	}
	if err := carrier.Start(receiver{t}); err != nil {
		t.cancel(ErrClosed)
		return nil, errors.Join(fmt.Errorf("transport: start carrier of %v: %w", t.self, err), carrier.Close())
	}
	for lane := range Lane(Lanes) {
		t.running.Go(func() { t.runLane(lane) })
	}
	t.running.Go(t.runTimer)
	t.running.Go(t.runEvents)
	return t, nil
}

// Self returns the local incarnation.
func (t *Transport) Self() identity.Node { return t.self }

// MaxMessage returns the size of the largest payload, in bytes.
func (t *Transport) MaxMessage() int { return t.cfg.MaxMessage }

// Connected returns nil, or an error that matches ErrDisconnected and holds the reason.
func (t *Transport) Connected() error {
	if err := t.down.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrDisconnected, *err)
	}
	return nil
}

// Quarantine ends all traffic with an incarnation, in both directions and permanently. Unhandled
// messages of the incarnation are dropped, and requests to it fail with ErrQuarantined. Unless
// quiet is set, the transport sends the incarnation a notice when it continues to send, at most one
// per second.
func (t *Transport) Quarantine(node identity.Node, quiet bool) {
	t.mu.Lock()
	t.machine.Quarantine(node, quiet)
	quarantined := t.machine.IsQuarantined(node)
	if quarantined {
		t.discardInboxes(node)
	}
	t.mu.Unlock()
	if quarantined {
		t.failRequests(node, ErrQuarantined)
	}
}

// Forget discards the state of an incarnation that is gone. Requests to it fail with ErrForgotten.
func (t *Transport) Forget(node identity.Node) {
	t.mu.Lock()
	t.machine.Forget(node)
	t.mu.Unlock()
	t.failRequests(node, ErrForgotten)
}

// Flush waits until all messages that were sent before and have credit have left the process.
func (t *Transport) Flush(ctx context.Context) error {
	var done [Lanes]chan struct{}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	for lane := range t.flushed {
		done[lane] = make(chan struct{})
		t.flushed[lane] = append(t.flushed[lane], done[lane])
		t.wake[lane].Set()
	}
	t.mu.Unlock()
	for lane := range done {
		select {
		case <-done[lane]:
		case <-ctx.Done():
			return fmt.Errorf("transport: flush: %w", context.Cause(ctx))
		case <-t.base.Done():
			return ErrClosed
		}
	}
	if f, ok := t.carrier.(Flusher); ok {
		return f.Flush(ctx)
	}
	return nil
}

// Close ends the transport and its carrier. Requests fail with ErrClosed, queued and unhandled
// messages are dropped, and the contexts of handlers are canceled. Close waits up to 10 s for
// running handlers, so a handler must not call it; if handlers are still running then, it returns
// an error.
func (t *Transport) Close() error {
	t.closing.Do(func() {
		t.mu.Lock()
		t.closed = true
		t.mu.Unlock()
		t.cancel(ErrClosed)
		if err := t.carrier.Close(); err != nil {
			t.failed = fmt.Errorf("transport: close carrier of %v: %w", t.self, err)
		}
		t.requests.Close()
		t.failRequests(identity.Node{}, ErrClosed)
		if !t.waitStopped(closeWait) {
			t.failed = errors.Join(t.failed, fmt.Errorf("transport: close %v: handlers are still running %v after their contexts were canceled", t.self, closeWait))
		}
	})
	return t.failed
}

func (t *Transport) now() time.Duration { return time.Since(t.start) }

// closeWait is how long Close waits for handlers.
const closeWait = 10 * time.Second

// waitStopped waits until all goroutines have ended and reports whether they did so in time.
func (t *Transport) waitStopped(most time.Duration) bool {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.running.Wait()
		t.pool.wait()
	}()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}
