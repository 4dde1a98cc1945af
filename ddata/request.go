// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/replication"
)

const (
	// maxMargin is the maximum time by which the protocol times out before the context of a
	// request, so that the error reports how many nodes have answered.
	maxMargin = 10 * time.Millisecond
	// grace is how long a caller waits for a late answer of the loop.
	grace = 100 * time.Millisecond
)

// call is a request whose caller waits.
type call struct {
	in     replication.Input
	update replication.Update // the value that in points to, if it is an update
	id     uint64
	answer chan replication.Reply // capacity 1
	state  atomic.Uint32

	// reply is the answer of a request that was answered on the goroutine of its caller. Only this
	// goroutine uses the fields.
	reply    replication.Reply
	answered bool
}

// The states of a call.
const (
	queued        uint32 = iota
	taken                // the loop has started the request
	abandonedCall        // the caller stopped waiting before the loop started the request
)

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

// timeout returns the timeout of the protocol for a context, 0 if it has no deadline.
func timeout(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(deadline)
	return max(1, left-min(left/20, maxMargin))
}

// ask runs a request and waits for the answer, or until ctx ends.
func (r *Replicator) ask(ctx context.Context, op, key string, n nodes, input func(*call, replication.Request) replication.Input) (replication.Reply, error) {
	c, err := r.begin(ctx, op, key, n, input)
	if err != nil {
		return replication.Reply{}, err
	}
	return r.result(ctx, op, key, n, c)
}

// begin runs a request, or passes it to the loop. The caller must call result.
func (r *Replicator) begin(ctx context.Context, op, key string, n nodes, input func(*call, replication.Request) replication.Input) (*call, error) {
	if err := n.check(); err != nil {
		return nil, &Error{Op: op, Key: key, Reason: ErrInvalid, Cause: err}
	}
	if ctx.Err() != nil {
		return nil, &Error{Op: op, Key: key, Reason: ErrCanceled, Cause: causeOf(ctx)}
	}
	c := r.calls.get()
	c.in = input(c, replication.Request{ID: c.id, Key: key, Level: n.level, Timeout: timeout(ctx), PreferOldest: n.oldest || r.cfg.PreferOldest})
	share := n.level.Kind != replication.Local && r.waiting.Load() >= shareAt
	if share || !r.runInline(c) {
		switch err := r.inbox.items.Offer(0, 0, item{call: c}); {
		case errors.Is(err, loop.ErrClosed):
			return nil, r.stopped(op, key)
		case err != nil: // loop.ErrFull
			return nil, &Error{Op: op, Key: key, Reason: ErrBusy, Cause: r.withBlockingUpdate(fmt.Errorf("%d requests are waiting", maxWaitingItems))}
		}
	}
	return c, nil
}

// result waits for the answer of a call, or until ctx ends.
func (r *Replicator) result(ctx context.Context, op, key string, n nodes, c *call) (replication.Reply, error) {
	reply, ok := c.reply, c.answered
	if !ok {
		select {
		case reply = <-c.answer:
		default:
			local := n.level.Kind == replication.Local
			disk := local && r.Durable(key)
			if reply, ok = r.wait(ctx, c, local, disk); !ok {
				return reply, r.abandoned(ctx, op, key, c, disk)
			}
		}
	}
	c.in, c.update, c.reply, c.answered = nil, replication.Update{}, replication.Reply{}, false
	r.calls.unused.Put(c)
	return reply, r.outcome(op, key, &reply)
}

// wait waits for the answer of a call. It returns false if there is none. A caller without a
// deadline waits at most Config.Timeout until the loop starts the request: the loop cannot start it
// if the caller is itself a function given to Update. The same limit applies to a caller that waits
// only for the disk.
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
			if !c.state.CompareAndSwap(queued, abandonedCall) && !disk {
				patience = nil // the protocol limits the time of a request that has started
				continue
			}
			return replication.Reply{}, false
		}
	}
}

// late returns the answer of a call whose context has ended, if there is one. The protocol times
// out slightly before the deadline, so the answer may be imminent.
func (c *call) late(ctx context.Context, local bool) (replication.Reply, bool) {
	if c.state.CompareAndSwap(queued, abandonedCall) {
		return replication.Reply{}, false
	}
	wait := grace
	if local || ctx.Err() != context.DeadlineExceeded {
		wait = 0
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case reply := <-c.answer:
		return reply, true
	case <-timer.C:
		return replication.Reply{}, false
	}
}

// abandoned returns the error of a request that was not answered before its context ended.
func (r *Replicator) abandoned(ctx context.Context, op, key string, c *call, disk bool) error {
	e := &Error{Op: op, Key: key, Reason: ErrQuorum, Cause: causeOf(ctx)}
	switch {
	case c.state.Load() == abandonedCall && e.Cause == nil:
		e.Reason, e.Cause = ErrCanceled, r.withBlockingUpdate(fmt.Errorf("request did not start within %v: %w", r.cfg.Timeout, context.DeadlineExceeded))
	case c.state.Load() == abandonedCall:
		e.Reason, e.Cause = ErrCanceled, r.withBlockingUpdate(e.Cause)
	case errors.Is(ctx.Err(), context.Canceled):
		e.Reason = ErrGivenUp
	case disk:
		e.Reason = ErrStore
		e.Cause = r.withBlockingUpdate(fmt.Errorf("the disk has not answered in time: %w", cmp.Or(e.Cause, context.DeadlineExceeded)))
	}
	return e
}

// causeOf returns the reason why ctx has ended, matching ctx.Err(), or nil if it has not ended.
func causeOf(ctx context.Context) error {
	why, err := context.Cause(ctx), ctx.Err()
	if err == nil || errors.Is(why, err) {
		return why
	}
	return fmt.Errorf("%w: %w", err, why)
}

// call runs f in the loop and waits for it. f must not block. If call returns an error, f does not
// run.
func (r *Replicator) call(ctx context.Context, f func()) error {
	var state atomic.Uint32
	done := make(chan struct{})
	if !r.inbox.items.Add(item{do: func() {
		if state.CompareAndSwap(queued, taken) {
			defer close(done)
			f()
		}
	}}) {
		return fmt.Errorf("%w: %w", ErrStopped, r.cause())
	}
	err := r.await(ctx, done)
	if err == nil {
		return nil
	}
	if !state.CompareAndSwap(queued, abandonedCall) { // f has started
		<-done
		return nil
	}
	return r.withBlockingUpdate(err)
}

// await waits until done is closed. If ctx or the replicator ends first, it returns that error.
func (r *Replicator) await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return causeOf(ctx)
	case <-r.done:
		return r.Err()
	}
}

func (r *Replicator) stopped(op, key string) error {
	return &Error{Op: op, Key: key, Reason: ErrStopped, Cause: r.cause()}
}

// Get returns the value of a key. Without a deadline in ctx, a read from other nodes takes at most
// Config.Timeout. At ReadLocal it returns the value of this node without waiting.
//
// The error is an *Error. Its Reason is ErrNotFound if no node that was read has the key, and
// ErrQuorum if too few nodes have answered. It is ErrStore if the key is durable and the merged
// value could not be written to disk. Other reasons are ErrDeleted, ErrGivenUp, ErrType,
// ErrInvalid, ErrBusy, ErrCanceled and ErrStopped.
func Get[T crdt.Data[T]](ctx context.Context, r *Replicator, key Key[T], level ReadLevel) (T, error) {
	began := r.requestStart()
	raw, err := r.get(ctx, string(key), level)
	var v T
	if err == nil {
		v, err = typed[T](r.types, "get", string(key), raw)
	}
	observe(r, began, "get", string(key), level, err)
	return v, err
}

// Update changes the value of a key and returns its new value on this node. It calls modify with
// the current value, or the empty value, and merges the result into the current value. A result
// that merely lacks data therefore removes nothing: only the methods of the data type can remove
// data.
//
// Update calls modify at most once, and no other update function runs at the same time. modify must
// not block or call runtime.Goexit. It may use only Self and reads at ReadLocal of the replicator,
// and it must change values with this Self. If modify returns an error or panics, nothing has
// changed. The replicator waits for modify and logs a slow call.
//
// The error is an *Error. After ErrDeleted, ErrModify, ErrType, ErrTooLarge, ErrFull, ErrInvalid,
// ErrBusy and ErrCanceled nothing has changed. After ErrQuorum, ErrGivenUp and ErrStore the value
// has changed on this node and spreads. After ErrStopped it may have changed.
func Update[T crdt.Data[T]](ctx context.Context, r *Replicator, key Key[T], level WriteLevel, modify func(T) (T, error)) (T, error) {
	began := r.requestStart()
	var v T
	reply, err := r.ask(ctx, "update", string(key), level.nodes, updateInput(r, key, modify))
	if err == nil {
		v, err = typed[T](r.types, "update", string(key), reply.Value)
	}
	observe(r, began, "update", string(key), level, err)
	return v, err
}

// Delete deletes a key of any type permanently. Each deleted key remains as a tombstone that takes
// some memory on all nodes, and space on disk if the key is durable. The error is an *Error as for
// Update; ErrDeleted means that the key was deleted before.
func Delete[T crdt.Data[T]](ctx context.Context, r *Replicator, key Key[T], level WriteLevel) error {
	began := r.requestStart()
	_, err := r.ask(ctx, "delete", string(key), level.nodes, deletion)
	observe(r, began, "delete", string(key), level, err)
	return err
}

// Raw is Get without a Go type.
func (r *Replicator) Raw(ctx context.Context, key string, level ReadLevel) (crdt.Value, error) {
	began := r.requestStart()
	v, err := r.get(ctx, key, level)
	observe(r, began, "get", key, level, err)
	return v, err
}

func (r *Replicator) get(ctx context.Context, key string, level ReadLevel) (crdt.Value, error) {
	if err := level.check(); err != nil {
		return crdt.Value{}, &Error{Op: "get", Key: key, Reason: ErrInvalid, Cause: err}
	}
	if level.level.Kind == replication.Local {
		return r.local(key, true)
	}
	reply, err := r.ask(ctx, "get", key, level.nodes, level.input)
	return reply.Value, err
}

func (l ReadLevel) input(_ *call, request replication.Request) replication.Input {
	return replication.Get{Request: request, RepairPeers: l.repair}
}

func deletion(_ *call, request replication.Request) replication.Input {
	return replication.Delete{Request: request}
}

// updateInput returns the input of an update.
func updateInput[T crdt.Data[T]](r *Replicator, key Key[T], modify func(T) (T, error)) func(*call, replication.Request) replication.Input {
	return func(c *call, request replication.Request) replication.Input {
		c.update = replication.Update{Request: request, Modify: adaptModify(r, string(key), modify)}
		return &c.update
	}
}

// local returns the value of this node. If counts is true, the read counts as a use of the key.
func (r *Replicator) local(key string, counts bool) (crdt.Value, error) {
	if r.ended.Load() {
		return crdt.Value{}, r.stopped("get", key)
	}
	h, found := r.values.get(key)
	if found && counts {
		r.reads.add(key)
	}
	switch {
	case !found:
		if err := replication.CheckKey(key); err != nil {
			return crdt.Value{}, &Error{Op: "get", Key: key, Reason: ErrInvalid, Cause: err}
		}
		return crdt.Value{}, &Error{Op: "get", Key: key, Reason: ErrNotFound}
	case h.deleted:
		return crdt.Value{}, &Error{Op: "get", Key: key, Reason: ErrDeleted}
	}
	return h.value, nil
}

func typed[T any](types *crdt.Types, op, key string, raw crdt.Value) (T, error) {
	v, err := crdt.As[T](types, raw)
	if err != nil {
		return v, &Error{Op: op, Key: key, Reason: reasonOf(err), Cause: err}
	}
	return v, nil
}

// requestStart returns the current time if there is an observer.
func (r *Replicator) requestStart() time.Time {
	if r.cfg.Observer.Request == nil {
		return time.Time{}
	}
	return time.Now()
}

// slowModify is the duration at which an update function is logged as slow: all other work of the
// replicator waits for it.
const slowModify = time.Second

// modifyError marks an error of a function given to Update.
type modifyError struct{ err error }

func (e *modifyError) Error() string { return e.err.Error() }
func (e *modifyError) Unwrap() error { return e.err }

// adaptModify converts a function of a Go type to one of untyped values.
func adaptModify[T any](r *Replicator, key string, modify func(T) (T, error)) func(crdt.Value) (crdt.Value, error) {
	return func(current crdt.Value) (crdt.Value, error) {
		v, err := crdt.As[T](r.types, current)
		if err != nil {
			return current, err
		}
		r.modifying.Store(&key)
		defer r.modified(key, r.now())
		if modify == nil {
			return current, &modifyError{errors.New("the function is nil")}
		}
		if v, err = modify(v); err != nil {
			return current, &modifyError{err}
		}
		return r.types.Value(v)
	}
}

// modified records that the function of an update has returned or panicked.
func (r *Replicator) modified(key string, began time.Duration) {
	r.modifying.Store(nil)
	if took := r.now() - began; took >= slowModify {
		r.logThrottled(slog.LevelWarn, "update function blocked the replicator", slog.String("key", key), slog.Duration("took", took))
	}
}

// withBlockingUpdate adds the key of the running update function to an error, if there is one.
func (r *Replicator) withBlockingUpdate(err error) error {
	if key := r.modifying.Load(); key != nil {
		return fmt.Errorf("%w: the function of the update of %q has not returned", err, *key)
	}
	return err
}
