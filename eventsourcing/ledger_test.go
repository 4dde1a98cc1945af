// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"errors"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

// A ledger records the operations that were applied to it, in order. Its replies identify the state
// that a command saw.
type (
	ledgerContext  = eventsourcing.Context[ledger, entry, seen]
	ledgerDecision = eventsourcing.Decision[ledger, entry, seen]

	// post adds Count entries in one unit. If Odd is set it is refused unless the number of entries
	// is odd.
	post struct {
		eventsourcing.Command[ledger, seen]
		Op, Count int
		Odd       bool
		Then      bool // answer from a callback
	}
	// look only reads the state.
	look struct {
		eventsourcing.Command[ledger, seen]
	}

	entry struct{ Op int }

	// seen identifies a state.
	seen struct {
		Len  int
		Hash uint64
	}

	ledger struct{ Seen seen }
)

var errEven = eventsourcing.NewRefusal("ledger/even", "the number of entries is even")

func (l *ledger) post(ctx *ledgerContext, c post) ledgerDecision {
	if c.Odd && l.Seen.Len%2 == 0 {
		return ctx.Refuse(errEven)
	}
	entries := make([]entry, c.Count)
	for i := range entries {
		entries[i].Op = c.Op
	}
	if c.Then {
		return ctx.Persist(entries...).ThenReply(func(ctx *ledgerContext) ledgerDecision { return ctx.Reply(l.Seen) })
	}
	return ctx.Persist(entries...).ReplyFunc(func() seen { return l.Seen })
}

func (l *ledger) look(ctx *ledgerContext, _ look) ledgerDecision { return ctx.Reply(l.Seen) }

func (l *ledger) apply(e entry) { l.Seen = l.Seen.with(e.Op) }

// with is the state after one more entry.
func (s seen) with(op int) seen {
	h := s.Hash
	for x := uint64(op) + 1; x > 0; x >>= 8 {
		h = (h ^ x&0xff) * 1099511628211
	}
	return seen{s.Len + 1, h ^ 0x9e3779b97f4a7c15}
}

func ledgerType() eventsourcing.Type[ledger, entry] {
	return eventsourcing.Type[ledger, entry]{
		Name:      "ledger",
		Commands:  eventsourcing.Commands(eventsourcing.On("", (*ledger).post), eventsourcing.On("", (*ledger).look)),
		Apply:     (*ledger).apply,
		Events:    codec.Types(codec.Name[entry]("entry")),
		Snapshots: eventsourcing.Snapshots[ledger, entry]{Every: 20, Keep: 2},
	}
}

// done is the outcome of a command as its caller sees it.
type done uint8

const (
	surelyDone done = iota
	surelyNot
	maybeDone
)

// certainty returns the outcome that an error of Ask reports.
func certainty(err error) done {
	switch {
	case err == nil, errors.Is(err, errEven), errors.Is(err, eventsourcing.ErrNoReply):
		return surelyDone
	case errors.Is(err, eventsourcing.ErrOutcomeUnknown), errors.Is(err, eventsourcing.ErrPartlyStored):
		return maybeDone
	}
	return surelyNot
}
