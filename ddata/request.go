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
	queued        uint32 = iota
	taken                // the loop has begun
	abandonedCall        // whoever has asked is gone, before it has
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
	if !r.runInline(c) {
		switch ok, crowded := r.inbox.ask(c); {
		case !ok:
			return replication.Reply{}, r.stopped(op, request.Key)
		case crowded:
			return replication.Reply{}, &Error{Op: op, Key: request.Key, Reason: ErrBusy, Cause: r.withBlockingUpdate(fmt.Errorf("%d wait", maxWaitingItems))}
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
			return reply, r.abandoned(ctx, op, request.Key, c, disk)
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
			if !c.state.CompareAndSwap(queued, abandonedCall) && !disk {
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
	if c.state.CompareAndSwap(queued, abandonedCall) {
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

// abandoned is the error of a request that was not answered before its context ended.
func (r *Replicator) abandoned(ctx context.Context, op, key string, c *call, disk bool) error {
	e := &Error{Op: op, Key: key, Reason: ErrQuorum, Cause: causeOf(ctx)}
	switch {
	case c.state.Load() == abandonedCall && e.Cause == nil:
		e.Reason, e.Cause = ErrCanceled, r.withBlockingUpdate(fmt.Errorf("it did not begin within %v: %w", r.cfg.Timeout, context.DeadlineExceeded))
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
	if !state.CompareAndSwap(queued, abandonedCall) { // it has begun
		<-done
		return nil
	}
	return r.withBlockingUpdate(err)
}

// stopped is the error of what is asked of a replicator that has ended.
func (r *Replicator) stopped(op, key string) error {
	return &Error{Op: op, Key: key, Reason: ErrStopped, Cause: r.cause()}
}

// Get returns the value of a key. Without a deadline in ctx a read from others takes at most
// Config.Timeout. At ReadLocal it returns at once what this node has, without waiting for anything.
//
// The error is an *Error whose Reason is ErrNotFound if none of the nodes that were read has the key, ErrDeleted, ErrQuorum
// if too few have answered, ErrGivenUp, ErrType, ErrInvalid, ErrBusy, ErrCanceled, ErrStopped, or ErrStore if the key is durable
// and what was read could not be written to disk.
func Get[T crdt.Data[T]](ctx context.Context, r *Replicator, key Key[T], level ReadLevel) (T, error) {
	began := r.requestStart()
	raw, err := r.get(ctx, string(key), level)
	var v T
	if err == nil {
		v, err = typed[T](r, "get", string(key), raw)
	}
	observe(r, began, "get", string(key), level, err)
	return v, err
}

// Update changes the value of a key and returns it as it is then on this node. It calls modify with the present
// value, or the empty one, and merges what that returns into the present value; nothing is ever taken away but by
// the methods of the data type.
//
// Modify is called at most once, and no other function at the same time: it must not wait for anything, and must not call
// anything of the replicator but Self and reads at ReadLocal. The Self has to be that of this replicator. An error or a panic of it
// changes nothing; if it takes long, that is logged, as all else waits.
//
// The error is an *Error: ErrDeleted, ErrModify, ErrType, ErrTooLarge, ErrFull, ErrInvalid, ErrBusy and ErrCanceled say that nothing has
// changed. ErrQuorum, ErrGivenUp and ErrStore do not take anything back: it has changed here and spreads. After ErrStopped it may have.
func Update[T crdt.Data[T]](ctx context.Context, r *Replicator, key Key[T], level WriteLevel, modify func(T) (T, error)) (T, error) {
	began := r.requestStart()
	var v T
	reply, err := r.change(ctx, "update", string(key), level, func(c *call, request replication.Request) replication.Input {
		c.update = replication.Update{Request: request, Modify: adaptModify(r, string(key), modify)}
		return &c.update
	})
	if err == nil {
		v, err = typed[T](r, "update", string(key), reply.Value)
	}
	observe(r, began, "update", string(key), level, err)
	return v, err
}

// Delete deletes a key for ever, whatever its type is. It is remembered that it was: each deleted key takes
// some memory on all nodes, and a place on the disk if it is durable. The error is an *Error as of Update; ErrDeleted says that it was deleted
// before.
func Delete[T crdt.Data[T]](ctx context.Context, r *Replicator, key Key[T], level WriteLevel) error {
	began := r.requestStart()
	_, err := r.change(ctx, "delete", string(key), level, func(_ *call, request replication.Request) replication.Input {
		return replication.Delete{Request: request}
	})
	observe(r, began, "delete", string(key), level, err)
	return err
}

// Raw returns the value of a key without its Go type, as Get does.
func (r *Replicator) Raw(ctx context.Context, key string, level ReadLevel) (crdt.Value, error) {
	began := r.requestStart()
	v, err := r.get(ctx, key, level)
	observe(r, began, "get", key, level, err)
	return v, err
}

func (r *Replicator) request(key string, level replication.Level, oldest bool) replication.Request {
	return replication.Request{Key: key, Level: level, PreferOldest: oldest || r.cfg.PreferOldest}
}

// change is ask for what changes a key.
func (r *Replicator) change(ctx context.Context, op, key string, level WriteLevel, input func(*call, replication.Request) replication.Input) (replication.Reply, error) {
	if err := level.check(); err != nil {
		return replication.Reply{}, &Error{Op: op, Key: key, Reason: ErrInvalid, Cause: err}
	}
	return r.ask(ctx, op, r.request(key, level.level, level.oldest), input)
}

func (r *Replicator) get(ctx context.Context, key string, level ReadLevel) (crdt.Value, error) {
	if err := level.check(); err != nil {
		return crdt.Value{}, &Error{Op: "get", Key: key, Reason: ErrInvalid, Cause: err}
	}
	if level.level.Kind == replication.Local {
		return r.local(key)
	}
	reply, err := r.ask(ctx, "get", r.request(key, level.level, level.oldest), func(_ *call, request replication.Request) replication.Input {
		return replication.Get{Request: request, RepairPeers: level.repair}
	})
	return reply.Value, err
}

// local reads what this node has.
func (r *Replicator) local(key string) (crdt.Value, error) {
	if r.ended.Load() {
		return crdt.Value{}, r.stopped("get", key)
	}
	h, found := r.values.get(key)
	if found {
		r.reads.add(key)
	}
	switch {
	case !found:
		if err := replication.CheckKey(key); err != nil {
			return crdt.Value{}, &Error{Op: "get", Key: key, Reason: ErrInvalid, Cause: publicError(err)}
		}
		return crdt.Value{}, &Error{Op: "get", Key: key, Reason: ErrNotFound}
	case h.deleted:
		return crdt.Value{}, &Error{Op: "get", Key: key, Reason: ErrDeleted}
	}
	return h.value, nil
}

// typed returns a value as the Go type that its key says.
func typed[T any](r *Replicator, op, key string, raw crdt.Value) (T, error) {
	v, err := crdt.As[T](r.types, raw)
	if err != nil {
		return v, &Error{Op: op, Key: key, Reason: reasonOf(err), Cause: publicError(err)}
	}
	return v, nil
}

// begin returns when a request began, if somebody wants to know.
func (r *Replicator) requestStart() time.Time {
	if r.cfg.Observer.Request == nil {
		return time.Time{}
	}
	return time.Now()
}

// slowModify is from which time on a function that is given to Update is logged: all else of the replicator waits for it.
const slowModify = time.Second

// modifyError is an error of a function given to Update, so that it is told from others.
type modifyError struct{ err error }

func (e *modifyError) Error() string { return e.err.Error() }
func (e *modifyError) Unwrap() error { return e.err }

// untyped returns a function of values for one of a Go type.
func adaptModify[T any](r *Replicator, key string, modify func(T) (T, error)) func(crdt.Value) (crdt.Value, error) {
	return func(current crdt.Value) (crdt.Value, error) {
		v, err := crdt.As[T](r.types, current)
		if err != nil {
			return current, err
		}
		r.modifying.Store(&key)
		defer r.modified(key, r.now())
		if modify == nil {
			return current, &modifyError{errors.New("there is no function")}
		}
		if v, err = modify(v); err != nil {
			return current, &modifyError{err}
		}
		return r.types.Value(v)
	}
}

// modified says that the function of an update has returned, or panicked.
func (r *Replicator) modified(key string, began time.Duration) {
	r.modifying.Store(nil)
	if took := r.now() - began; took >= slowModify {
		r.lines.write(r, lineSlow, slog.LevelWarn, "the function of an update has held up the replicator", slog.String("key", key), slog.Duration("took", took))
	}
}

// held adds to an error which update holds the replicator up, if one does.
func (r *Replicator) withBlockingUpdate(err error) error {
	if key := r.modifying.Load(); key != nil {
		return fmt.Errorf("%w: the function of an update of %q has not returned", err, *key)
	}
	return err
}
