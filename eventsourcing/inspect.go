// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"

	"github.com/refold-io/refold/internal/engine"
)

// inspection is a message that looks at the state.
type inspection[C, E any] struct {
	f func(state Aggregate[C, E], seqNr uint64)
}

func (inspection[C, E]) hidden() {}

// Inspect runs f on the live state of an entity, between two commands, and
// returns when all that f saw is durable. It is started if it is not there. It
// is for tests and for tools that look into a running system; to read a state
// by itself, see Fold.
//
// HostOptions.Route has no part in it.
//
// Package eventsourcingtest uses it. f must not change or keep the state, and
// runs again if a write ahead of it fails; the last run counts. The errors are
// those of Ask.
func (h *Entities[C, E]) Inspect(ctx context.Context, id string, f func(state Aggregate[C, E], seqNr uint64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := h.calls().get(ctx, inspection[C, E]{f})
	if err := h.here(Message{id: id, env: &c.env}); err != nil {
		return err
	}
	_, err := c.wait(ctx)
	h.calls().put(c)
	return err
}

// inspect carries out an inspection.
func (e *entity[C, E]) inspect(op *engine.Op) {
	if i, ok := op.Env.Message.(inspection[C, E]); ok {
		i.f(e.instance.state, op.SequenceNr())
	}
	op.Answer(nil)
}
