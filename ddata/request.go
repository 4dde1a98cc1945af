// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/replication"
)

// Get returns the value of a key. Without a deadline in ctx a read from others takes at most
// Config.Timeout. At ReadLocal it returns at once what this node has, without waiting for anything.
//
// The error is an *Error whose Reason is ErrNotFound if none of the nodes that were read has the key, ErrDeleted, ErrQuorum
// if too few have answered, ErrGivenUp, ErrType, ErrInvalid, ErrBusy, ErrCanceled, ErrStopped, or ErrStore if the key is durable
// and what was read could not be written to disk.
func Get[T crdt.Data[T]](ctx context.Context, r *Replicator, key Key[T], level ReadLevel) (T, error) {
	began := r.begin()
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
	began := r.begin()
	var v T
	reply, err := r.change(ctx, "update", string(key), level, func(c *call, request replication.Request) replication.Input {
		c.update = replication.Update{Request: request, Modify: untyped(r, string(key), modify)}
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
	began := r.begin()
	_, err := r.change(ctx, "delete", string(key), level, func(_ *call, request replication.Request) replication.Input {
		return replication.Delete{Request: request}
	})
	observe(r, began, "delete", string(key), level, err)
	return err
}

// Raw returns the value of a key without its Go type, as Get does.
func (r *Replicator) Raw(ctx context.Context, key string, level ReadLevel) (crdt.Value, error) {
	began := r.begin()
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
			return crdt.Value{}, &Error{Op: "get", Key: key, Reason: ErrInvalid, Cause: plain(err)}
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
		return v, &Error{Op: op, Key: key, Reason: reasonOf(err), Cause: plain(err)}
	}
	return v, nil
}

// begin returns when a request began, if somebody wants to know.
func (r *Replicator) begin() time.Time {
	if r.cfg.Observer.Request == nil {
		return time.Time{}
	}
	return time.Now()
}
