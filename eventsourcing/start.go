// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/journal"
)

// IDs yields the own IDs of all entities of the type that the journal holds, in bytewise order,
// without starting any. An error is yielded once and last; it matches ErrInvalid if the journal is
// no journal.IDLister.
func (h *Local[S, E]) IDs(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if h.rt.journal == nil {
			yield("", fmt.Errorf("list type %q: %w", h.model.typ.Name, ErrNoJournal))
			return
		}
		lister, ok := journal.As[journal.IDLister](h.rt.journal)
		if !ok {
			yield("", fmt.Errorf("%w: list type %q: the journal cannot list its IDs", ErrInvalid, h.model.typ.Name))
			return
		}
		prefix := h.model.typ.Name + "|"
		for pid, err := range lister.PersistenceIDs(ctx, prefix) { // no entity has an empty ID
			if err != nil {
				yield("", fmt.Errorf("list type %q: %w", h.model.typ.Name, err))
				return
			}
			id, found := strings.CutPrefix(pid, prefix)
			if !found || !yield(id, nil) {
				return
			}
		}
	}
}

// Start starts an entity that is not there, and waits until it is recovered. A command does so,
// too: it is for one that is to do something by itself. See Wake. The errors are those of Ask.
func (h *Local[S, E]) Start(ctx context.Context, id string) error {
	return h.Inspect(ctx, id, func(*S, uint64) {})
}

// rouseMessage returns a message that only starts the entity.
func rouseMessage[S any](id string, done func(error)) hosting.Message {
	look := inspection[S]{func(*S, uint64) {}}
	if done == nil {
		return hosting.NewMessage(id, &engine.Envelope{Message: look}, false)
	}
	return newRemoteMessage(context.Background(), id, look, time.Time{}, func(_ any, err error) { done(err) })
}

// Wake starts the entities of the type that have something to do by themselves: deliveries that are
// not confirmed, or a deadline (see Type.Deadline). A program calls it when it comes up, so that
// what a crash has left in flight goes on even if no command comes. It refolds every entity in the
// journal, one after the other, without starting those that have nothing to do; it does not wait
// until the others are recovered, and returns how many they are.
//
// An entity that can't be refolded is left out, and the rest goes on; the error is that of the
// first one.
func (h *Local[S, E]) Wake(ctx context.Context) (started int, err error) {
	if h.model.typ.Deadline == nil && len(h.model.typ.Parts) == 0 || h.opts.Recovery.Disabled || h.opts.Recovery.readOnly() {
		return 0, nil
	}
	var first error
	for id, err := range h.IDs(ctx) {
		if err != nil {
			return started, fmt.Errorf("wake: %w", errors.Join(err, first))
		}
		pending, err := h.pending(ctx, id)
		if err == nil && pending {
			err = h.here(rouseMessage[S](id, nil)) //nolint:contextcheck // the entity outlives the call
		}
		switch {
		case ctx.Err() != nil:
			return started, fmt.Errorf("wake: %w", context.Cause(ctx))
		case err == nil && pending:
			started++
		case err != nil && first == nil:
			first = fmt.Errorf("wake %q: %w", journal.JoinID(h.model.typ.Name, id), err)
		}
	}
	return started, first
}

// pending reports whether an entity has something to do by itself.
func (h *Local[S, E]) pending(ctx context.Context, id string) (pending bool, err error) {
	pid := journal.JoinID(h.model.typ.Name, id)
	f := refolding[S, E]{
		model: h.model, rt: h.rt, pid: pid, opts: h.opts.Recovery,
		optional: h.model.typ.Snapshots.Optional, progress: new(atomic.Uint64),
	}
	if err = f.run(ctx); err != nil {
		return false, err
	}
	err = contain(pid, func() {
		if d := h.model.typ.Deadline; d != nil && !d(f.into.state).IsZero() {
			pending = true
		}
		now := h.rt.steady()
		for _, c := range f.into.parts { // they are nobody's, so nothing is sent
			out := c.Recovered(now)
			pending = pending || len(out.Sends) > 0 || len(out.Signals) > 0 || !c.Next().IsZero()
		}
	})
	return pending, err
}
