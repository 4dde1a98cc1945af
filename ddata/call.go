// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/replication"
)

const (
	// maxMargin is how long before its context the protocol gives a request up, at most: then the error says how
	// many have answered.
	maxMargin = 10 * time.Millisecond
	// grace is how long the answer of a loop that is late is waited for.
	grace = 100 * time.Millisecond
)

// call is a request that somebody waits for.
type call struct {
	in     replication.Input
	update replication.Update // which that points to, if it is one
	id     uint64
	answer chan replication.Reply // has room for the one that comes
	state  atomic.Uint32
}

// The states of a call.
const (
	queued uint32 = iota
	taken         // the loop has begun
	left          // whoever has asked is gone, before it has
)

// calls are those that are not in use.
type calls struct {
	last   atomic.Uint64
	unused sync.Pool
}

func (c *calls) get() *call {
	o, ok := c.unused.Get().(*call)
	if !ok {
		o = &call{answer: make(chan replication.Reply, 1)}
	}
	o.state.Store(queued)
	o.id = c.last.Add(1)
	return o
}

// put takes a call that was answered.
func (c *calls) put(o *call) {
	o.in, o.update = nil, replication.Update{}
	c.unused.Put(o)
}

// timeout returns how long the protocol may take, 0 if the context does not say.
func timeout(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(deadline)
	return max(1, left-min(left/20, maxMargin))
}

// ask lets the loop handle a request and waits for the answer, or for the end of ctx.
func (r *Replicator) ask(ctx context.Context, op string, request replication.Request, input func(*call, replication.Request) replication.Input) (replication.Reply, error) {
	if ctx.Err() != nil {
		return replication.Reply{}, &Error{Op: op, Key: request.Key, Reason: ErrCanceled, Cause: causeOf(ctx)}
	}
	c := r.calls.get()
	request.ID, request.Timeout = c.id, timeout(ctx)
	c.in = input(c, request)
	if !r.direct(c) {
		switch ok, crowded := r.inbox.ask(c); {
		case !ok:
			return replication.Reply{}, r.stopped(op, request.Key)
		case crowded:
			return replication.Reply{}, &Error{Op: op, Key: request.Key, Reason: ErrBusy, Cause: r.held(fmt.Errorf("%d wait", maxWaitingItems))}
		}
	}
	var reply replication.Reply
	select {
	case reply = <-c.answer:
	default:
		var ok bool
		local := request.Level.Kind == replication.Local
		disk := local && r.Durable(request.Key)
		if reply, ok = r.wait(ctx, c, local, disk); !ok {
			return reply, r.gaveUp(ctx, op, request.Key, c, disk)
		}
	}
	r.calls.put(c)
	return reply, r.outcome(op, request.Key, &reply)
}

// wait waits for the answer of a call, false if there is none. Who has no deadline waits for Config.Timeout until the loop begins with it: it
// never does if this is in a function that is given to Update. So does who waits for the disk only.
func (r *Replicator) wait(ctx context.Context, c *call, local, disk bool) (replication.Reply, bool) {
	var patience <-chan time.Time
	if _, limited := ctx.Deadline(); !limited && (disk || c.state.Load() == queued) {
		timer := time.NewTimer(r.cfg.Timeout)
		defer timer.Stop()
		patience = timer.C
	}
	for {
		select {
		case reply := <-c.answer:
			return reply, true
		case <-ctx.Done():
			return c.late(ctx, local)
		case <-patience:
			if !c.state.CompareAndSwap(queued, left) && !disk {
				patience = nil // the protocol limits what has begun
				continue
			}
			return replication.Reply{}, false
		}
	}
}

// late returns the answer of a call whose context has ended, if there is one. The protocol has given it
// up a little before, so the answer is on its way.
func (c *call) late(ctx context.Context, local bool) (replication.Reply, bool) {
	if c.state.CompareAndSwap(queued, left) {
		return replication.Reply{}, false
	}
	if local || ctx.Err() != context.DeadlineExceeded {
		select {
		case reply := <-c.answer:
			return reply, true
		default:
			return replication.Reply{}, false
		}
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case reply := <-c.answer:
		return reply, true
	case <-timer.C:
		return replication.Reply{}, false
	}
}

// gaveUp is the error of a request that was not answered before its context ended.
func (r *Replicator) gaveUp(ctx context.Context, op, key string, c *call, disk bool) error {
	e := &Error{Op: op, Key: key, Reason: ErrQuorum, Cause: causeOf(ctx)}
	switch {
	case c.state.Load() == left && e.Cause == nil:
		e.Reason, e.Cause = ErrCanceled, r.held(fmt.Errorf("it did not begin within %v: %w", r.cfg.Timeout, context.DeadlineExceeded))
	case c.state.Load() == left:
		e.Reason, e.Cause = ErrCanceled, r.held(e.Cause)
	case errors.Is(ctx.Err(), context.Canceled):
		e.Reason = ErrGivenUp
	case disk:
		e.Reason = ErrStore
		e.Cause = r.held(fmt.Errorf("the disk has not answered in time: %w", cmp.Or(e.Cause, context.DeadlineExceeded)))
	}
	return e
}

// causeOf returns why a context has ended, nil if it has not. It matches the error of the context.
func causeOf(ctx context.Context) error {
	why, err := context.Cause(ctx), ctx.Err()
	if err == nil || errors.Is(why, err) {
		return why
	}
	return fmt.Errorf("%w: %w", err, why)
}

// call lets the loop call f and waits for that. F must not block. After an error it is not called any more.
func (r *Replicator) call(ctx context.Context, f func()) error {
	var state atomic.Uint32
	done := make(chan struct{})
	if !r.inbox.add(item{do: func() {
		if state.CompareAndSwap(queued, taken) {
			defer close(done)
			f()
		}
	}}) {
		return fmt.Errorf("%w: %w", ErrStopped, r.cause())
	}
	var err error
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		err = causeOf(ctx)
	case <-r.done:
		err = r.Err()
	}
	if !state.CompareAndSwap(queued, left) { // it has begun
		<-done
		return nil
	}
	return r.held(err)
}

// stopped is the error of what is asked of a replicator that has ended.
func (r *Replicator) stopped(op, key string) error {
	return &Error{Op: op, Key: key, Reason: ErrStopped, Cause: r.cause()}
}
