// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/journal"
)

// IDs implements Entities. The error matches ErrNoJournal, or ErrInvalid if the journal does not
// implement journal.IDLister.
func (h *Local[S, E]) IDs(ctx context.Context) iter.Seq2[string, error] {
	return h.host.ids(ctx)
}

func (h *host) ids(ctx context.Context) iter.Seq2[string, error] {
	return listIDs(ctx, h.journal, h.model.naming)
}

// listIDs yields the IDs of the entities of a type. The journal may be nil.
func listIDs(ctx context.Context, from journal.Journal, n naming) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if from == nil {
			yield("", fmt.Errorf("list type %q: %w", n.name, ErrNoJournal))
			return
		}
		lister, ok := journal.As[journal.IDLister](from)
		if !ok {
			yield("", fmt.Errorf("%w: list type %q: the journal cannot list its IDs", ErrInvalid, n.name))
			return
		}
		after := n.name + "|" // no entity has an empty ID
		if n.from != nil {
			after = ""
		}
		for pid, err := range lister.PersistenceIDs(ctx, after) {
			if err != nil {
				yield("", fmt.Errorf("list type %q: %w", n.name, err))
				return
			}
			id, found := n.entityID(pid)
			switch {
			case !found && n.from != nil: // of another type
			case !found || !yield(id, nil):
				return
			}
		}
	}
}

// Start implements Entities.
func (h *Local[S, E]) Start(ctx context.Context, id string) error { return start(ctx, h.Ref(id)) }

// start starts an entity, on this node or on another, and waits until it is recovered.
func start[S any](ctx context.Context, to Ref[S]) error {
	value, err := send(ctx, to, hosting.Start{})
	if data, encoded := value.(hosting.EncodedReply); encoded {
		_, err = decodeReply[struct{}](to, data)
	}
	return err
}

// startMessage returns a message that only starts the entity.
func startMessage(id string, indexed bool, done func(error)) hosting.Message {
	start := hosting.Start{Indexed: indexed}
	if done == nil {
		return hosting.NewMessage(id, &engine.Envelope{Message: start}, false)
	}
	return newRemoteMessage(context.Background(), id, start, time.Time{}, func(_ any, err error) { done(err) }, nil)
}

// Wake implements Entities. It computes the state of every entity in the journal, one after the
// other, to find those with unconfirmed deliveries or a deadline. It starts these without waiting
// for their recovery. A program calls Wake at its start. Work that a crash has interrupted then
// continues without a new command.
//
// Wake skips an entity whose state can't be computed, and returns the error of the first one.
func (h *Local[S, E]) Wake(ctx context.Context) (started int, err error) {
	return h.host.wake(ctx, func(string) bool { return true })
}

// wake is Wake for the entities that covers accepts.
func (h *host) wake(ctx context.Context, covers func(id string) bool) (started int, err error) {
	if !h.model.mayHaveWork() || h.opts.RecoveryOf == nil && !h.opts.Recovery.complete() {
		return 0, nil
	}
	var first error
	for id, err := range h.ids(ctx) {
		if err != nil {
			return started, fmt.Errorf("wake: %w", errors.Join(err, first))
		}
		if !covers(id) {
			continue
		}
		pending, err := h.pending(ctx, id)
		if err == nil && pending {
			err = h.route(startMessage(id, false, nil)) //nolint:contextcheck // the entity outlives the call
		}
		switch {
		case ctx.Err() != nil:
			return started, fmt.Errorf("wake: %w", context.Cause(ctx))
		case err == nil && pending:
			started++
		case err != nil && first == nil:
			first = fmt.Errorf("wake %q: %w", h.model.naming.display(id), err)
		}
	}
	return started, first
}

// pending reports whether an entity has unconfirmed deliveries or a deadline.
func (h *host) pending(ctx context.Context, id string) (pending bool, err error) {
	pid, err := h.model.naming.persistenceID(id)
	if err != nil {
		return false, err
	}
	f := newFolding(h, id, pid)
	if err = f.run(ctx); err != nil || !f.opts.complete() {
		return false, err
	}
	err = catchPanic(pid, func() error {
		if d := h.model.deadline; d != nil && !d(f.into.state).IsZero() {
			pending = true
		}
		now := h.rt.steady()
		for _, p := range f.into.parts() { // of a state without an entity, so nothing is sent
			out := p.Recovered(now)
			pending = pending || len(out.Sends) > 0 || len(out.Signals) > 0 || !p.Next().IsZero()
		}
		return nil
	})
	return pending, err
}
