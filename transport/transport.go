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
)

// Transport sends and receives messages for one incarnation of a node. Its
// methods are safe for concurrent use.
type Transport struct {
	carrier Carrier
	cfg     Config
	log     *slog.Logger
	start   time.Time
	self    identity.Node

	handlers atomic.Pointer[handlers]
	calls    calls
	events   *events
	down     atomic.Pointer[error] // why the carrier is disconnected
	loose    loose                 // counters of the shell

	// mu guards the machine and the inboxes. Nothing slow happens under it.
	mu      sync.Mutex
	machine *link.Machine
	inboxes map[inboxKey]*inbox
	named   int                         // bytes in those for what came to the bare name
	flushed [link.Lanes][]chan struct{} // closed when a lane has nothing to send
	closed  bool
	admin   admin

	wake    [link.Lanes]chan struct{} // a lane may have something to send
	stalled chan struct{}             // a link may be waiting for credit

	base    context.Context //nolint:containedctx // of all handlers, ended by Close
	cancel  context.CancelCauseFunc
	pool    pool
	running sync.WaitGroup
	closing sync.Once
	failed  error // of Close
}

// Open starts a transport on a carrier, which it takes over: Close closes it. An
// error matches ErrInvalid or is the carrier's, which is then closed.
func Open(carrier Carrier, cfg Config) (*Transport, error) {
	cfg = cfg.withDefaults()
	machine, err := cfg.machine(carrier.Self(), carrier.MaxFrame())
	if err != nil {
		return nil, errors.Join(err, carrier.Close())
	}
	t := &Transport{
		carrier: carrier,
		cfg:     cfg,
		log:     cfg.Logger.With(slog.String("node", carrier.Self().String())),
		start:   time.Now(),
		self:    carrier.Self(),
		events:  newEvents(cfg.OnEvent),
		machine: machine,
		inboxes: make(map[inboxKey]*inbox),
		stalled: make(chan struct{}, 1),
	}
	t.base, t.cancel = context.WithCancelCause(context.Background())
	t.handlers.Store(new(handlers))
	t.calls.limit = cfg.MaxRequests
	t.pool.init()
	for lane := range t.wake {
		t.wake[lane] = make(chan struct{}, 1)
	}
	if err := carrier.Start(receiver{t}); err != nil {
		t.cancel(ErrClosed)
		return nil, errors.Join(fmt.Errorf("transport: start the carrier of %v: %w", t.self, err), carrier.Close())
	}
	for lane := range Lane(link.Lanes) {
		t.running.Go(func() { t.runLane(lane) })
	}
	t.running.Go(t.runClock)
	t.running.Go(func() { t.events.run(t.base.Done()) })
	return t, nil
}

// Self returns the incarnation that the transport speaks for.
func (t *Transport) Self() identity.Node { return t.self }

// MaxMessage returns the size of the largest payload, in bytes.
func (t *Transport) MaxMessage() int { return t.cfg.MaxMessage }

// Connected returns nil, or why the carrier is not connected.
func (t *Transport) Connected() error {
	if err := t.down.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrDisconnected, *err)
	}
	return nil
}

// Quarantine ends all traffic with an incarnation, both ways and for good. Its
// messages are dropped, also those that are waiting for a handler; requests to
// it fail with ErrQuarantined. Unless quiet is set, it gets a notice when it goes
// on sending, at most one each second.
func (t *Transport) Quarantine(node identity.Node, quiet bool) {
	t.mu.Lock()
	t.machine.Quarantine(node, quiet)
	quarantined := t.machine.IsQuarantined(node)
	if quarantined {
		t.bury(node)
	}
	t.mu.Unlock()
	if quarantined {
		t.calls.failPeer(node, ErrQuarantined)
	}
}

// Forget drops all that is known about an incarnation that is gone. Requests to
// it fail with ErrForgotten.
func (t *Transport) Forget(node identity.Node) {
	t.mu.Lock()
	t.machine.Forget(node)
	t.mu.Unlock()
	t.calls.failPeer(node, ErrForgotten)
}

// Flush waits until all that was sent before, and has credit, has left the
// process.
func (t *Transport) Flush(ctx context.Context) error {
	var done [link.Lanes]chan struct{}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	for lane := range t.flushed {
		done[lane] = make(chan struct{})
		t.flushed[lane] = append(t.flushed[lane], done[lane])
		signal(t.wake[lane])
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

// Close ends the transport and its carrier: requests fail with ErrClosed, what
// waits to be sent or handled is dropped, the contexts of handlers end. It
// returns when all handlers have returned, so it must not be called by one; after 10 s it
// waits no more for those that do not care about their context, and the error says so.
func (t *Transport) Close() error {
	t.closing.Do(func() {
		t.mu.Lock()
		t.closed = true
		t.mu.Unlock()
		t.cancel(ErrClosed)
		if err := t.carrier.Close(); err != nil {
			t.failed = fmt.Errorf("transport: close the carrier of %v: %w", t.self, err)
		}
		t.calls.close()
		if !t.await(closeWait) {
			t.failed = errors.Join(t.failed, fmt.Errorf("transport: close %v: handlers have not returned %v after their contexts ended", t.self, closeWait))
		}
	})
	return t.failed
}

// now is the time of the machine.
func (t *Transport) now() time.Duration { return time.Since(t.start) }

// closeWait is how long Close waits for handlers.
const closeWait = 10 * time.Second

// await waits until all that runs has ended, and reports whether it has in time.
func (t *Transport) await(most time.Duration) bool {
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
