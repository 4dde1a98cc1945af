// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"log/slog"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/replication"
)

// GetAsync is Get without waiting: it passes the result to done, exactly once. The
// closure of done carries the data of the request, such as the caller of a service.
//
// If the result is known at once, GetAsync calls done before it returns. Otherwise a goroutine of
// the replicator calls done later. Calls of done for several requests may be concurrent and in any
// order. done must not block, because Replicator.Close waits for it. A panic of done is logged.
func GetAsync[T crdt.Data[T]](ctx context.Context, r *Replicator, key Key[T], level ReadLevel, done func(T, error)) {
	began := r.requestStart()
	finish := func(raw crdt.Value, err error) {
		var v T
		if err == nil {
			v, err = typed[T](r.types, "get", string(key), raw)
		}
		observe(r, began, "get", string(key), level, err)
		done(v, err)
	}
	if level.check() != nil || level.level.Kind == replication.Local {
		raw, err := r.get(ctx, string(key), level)
		r.callBack(func() { finish(raw, err) })
		return
	}
	r.askAsync(ctx, "get", string(key), level.nodes, level.input, func(reply replication.Reply, err error) { finish(reply.Value, err) })
}

// UpdateAsync is Update without waiting: it passes the result to done, as GetAsync does. The
// functions of several updates are called in the order of the calls of UpdateAsync, if these are
// made one after the other. modify may be called before UpdateAsync returns.
func UpdateAsync[T crdt.Data[T]](ctx context.Context, r *Replicator, key Key[T], level WriteLevel, modify func(T) (T, error), done func(T, error)) {
	began := r.requestStart()
	r.askAsync(ctx, "update", string(key), level.nodes, updateInput(r, key, modify), func(reply replication.Reply, err error) {
		var v T
		if err == nil {
			v, err = typed[T](r.types, "update", string(key), reply.Value)
		}
		observe(r, began, "update", string(key), level, err)
		done(v, err)
	})
}

// DeleteAsync is Delete without waiting: it passes the result to done, as GetAsync does.
func DeleteAsync[T crdt.Data[T]](ctx context.Context, r *Replicator, key Key[T], level WriteLevel, done func(error)) {
	began := r.requestStart()
	r.askAsync(ctx, "delete", string(key), level.nodes, deletion, func(_ replication.Reply, err error) {
		observe(r, began, "delete", string(key), level, err)
		done(err)
	})
}

// askAsync begins a request in the order of the calls, and passes the result to done.
func (r *Replicator) askAsync(
	ctx context.Context, op, key string, n nodes, input func(*call, replication.Request) replication.Input, done func(replication.Reply, error),
) {
	c, err := r.begin(ctx, op, key, n, input)
	if err != nil {
		r.callBack(func() { done(replication.Reply{}, err) })
		return
	}
	wait := func() {
		reply, err := r.result(ctx, op, key, n, c)
		r.callBack(func() { done(reply, err) })
	}
	if c.answered || len(c.answer) > 0 || !r.goBackground(wait) {
		wait() // the answer is there, or the replicator ends and answers all calls
	}
}

// goBackground runs f on a goroutine of the replicator. It returns false if the replicator no longer
// waits for such goroutines.
func (r *Replicator) goBackground(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.backgroundClosed {
		return false
	}
	r.background.Go(f)
	return true
}

// callBack calls a function that the program has given to an asynchronous request.
func (r *Replicator) callBack(f func()) {
	if p := panics.Call(f); p != nil {
		r.log.ErrorContext(r.base, "function of an asynchronous request panicked", slog.String("panic", panics.Text(p.Value)), slog.String("stack", string(p.Stack)))
	}
}
