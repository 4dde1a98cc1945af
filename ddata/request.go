// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/replication"
)

// Get returns the value of a key. Without a deadline in ctx a read from others takes at most
// Config.Timeout. At ReadLocal it returns at once what this node has, without waiting for anything.
//
// Other errors are those of an *Error: ErrNotFound if none of the nodes that were read has the key, ErrDeleted, ErrQuorum
// if too few have answered, ErrType, ErrInvalid, ErrBusy, ErrCanceled, ErrStopped, and ErrStore if the key is durable
// and what was read could not be written to disk.
func Get[T any](ctx context.Context, r *Replicator, key Key[T], level ReadLevel) (T, error) {
	began := r.begin()
	raw, err := r.get(ctx, string(key), level)
	var v T
	if err == nil {
		v, err = typed[T](r, "get", string(key), raw)
	}
	r.observe(began, "get", string(key), level, err)
	return v, err
}

// Update changes the value of a key and returns it as it is then on this node. It calls modify with the present
// value, or the empty one, and merges what that returns into the present value; nothing is ever taken away but by
// the methods of the data type.
//
// Modify is called at most once, and no other function at the same time: it must not wait for anything, and must not call
// anything of the replicator but Self and reads at ReadLocal. An error or a panic of it changes nothing.
//
// The error is an *Error: ErrDeleted, ErrModify, ErrType, ErrTooLarge, ErrFull, ErrInvalid, ErrBusy and ErrCanceled say that nothing has
// changed. ErrQuorum and ErrStore do not take anything back: it has changed here and spreads.
func Update[T any](ctx context.Context, r *Replicator, key Key[T], level WriteLevel, modify func(T) (T, error)) (T, error) {
	began := r.begin()
	var v T
	reply, err := r.ask(ctx, "update", r.request(string(key), level.level, level.oldest), func(request replication.Request) replication.Input {
		return replication.Update{Request: request, Modify: untyped(r.types, modify)}
	})
	if err == nil {
		v, err = typed[T](r, "update", string(key), reply.Value)
	}
	r.observe(began, "update", string(key), level, err)
	return v, err
}

// Delete deletes a key for ever, whatever its type is. It is remembered that it was: each deleted key takes
// some memory on all nodes, and a place on the disk if it is durable. The error is an *Error as of Update; ErrDeleted says that it was deleted
// before.
func Delete[T any](ctx context.Context, r *Replicator, key Key[T], level WriteLevel) error {
	began := r.begin()
	_, err := r.ask(ctx, "delete", r.request(string(key), level.level, level.oldest), func(request replication.Request) replication.Input {
		return replication.Delete{Request: request}
	})
	r.observe(began, "delete", string(key), level, err)
	return err
}

// Raw returns the value of a key without its Go type, as Get does.
func (r *Replicator) Raw(ctx context.Context, key string, level ReadLevel) (crdt.Value, error) {
	began := r.begin()
	v, err := r.get(ctx, key, level)
	r.observe(began, "get", key, level, err)
	return v, err
}

func (r *Replicator) request(key string, level replication.Level, oldest bool) replication.Request {
	return replication.Request{Key: key, Level: level, PreferOldest: oldest || r.cfg.PreferOldest}
}

func (r *Replicator) get(ctx context.Context, key string, level ReadLevel) (crdt.Value, error) {
	if level.level.Kind == replication.Local {
		return r.local(key)
	}
	reply, err := r.ask(ctx, "get", r.request(key, level.level, level.oldest), func(request replication.Request) replication.Input {
		return replication.Get{Request: request, RepairPeers: level.repair}
	})
	return reply.Value, err
}

// local reads what this node has.
func (r *Replicator) local(key string) (crdt.Value, error) {
	if r.over.Load() {
		return crdt.Value{}, r.stopped("get", key)
	}
	h, found := r.values.get(key)
	if found {
		r.touched.add(key)
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

// typed returns a value as the Go type that its key says.
func typed[T any](r *Replicator, op, key string, raw crdt.Value) (T, error) {
	v, err := crdt.As[T](r.types, raw)
	if err != nil {
		return v, &Error{Op: op, Key: key, Reason: reasonOf(err), Cause: err}
	}
	return v, nil
}

// untyped returns a function of values for one of a Go type.
func untyped[T any](types *crdt.Types, modify func(T) (T, error)) func(crdt.Value) (crdt.Value, error) {
	return func(current crdt.Value) (crdt.Value, error) {
		v, err := crdt.As[T](types, current)
		if err != nil {
			return current, err
		}
		if v, err = modify(v); err != nil {
			return current, &modifyError{err}
		}
		return types.Value(v)
	}
}

// begin returns when a request began, if somebody wants to know.
func (r *Replicator) begin() time.Time {
	if r.cfg.Observer.Request == nil {
		return time.Time{}
	}
	return time.Now()
}
