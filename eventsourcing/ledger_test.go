// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"errors"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

// A ledger remembers which operations were applied to it, in order. What it
// answers tells exactly which state was seen.
type (
	ledgerCommand interface {
		eventsourcing.Target[ledgerCommand]
	}
	ledgerCtx    = eventsourcing.Context[ledgerCommand, entry]
	ledgerEffect = eventsourcing.Effect[ledgerCommand, entry]

	// post adds Count entries in one unit. If Odd is set it is refused unless
	// the number of entries is odd.
	post struct {
		eventsourcing.For[ledgerCommand, seen]
		Op, Count int
		Odd       bool
		Then      bool // answer from a callback
	}
	// look only reads.
	look struct {
		eventsourcing.For[ledgerCommand, seen]
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

func (l *ledger) HandleCommand(ctx *ledgerCtx, cmd ledgerCommand) ledgerEffect {
	switch c := cmd.(type) {
	case post:
		if c.Odd && l.Seen.Len%2 == 0 {
			return ctx.Refuse(errEven)
		}
		entries := make([]entry, c.Count)
		for i := range entries {
			entries[i].Op = c.Op
		}
		if c.Then {
			return ctx.Persist(entries...).Then(func(ctx *ledgerCtx) ledgerEffect { return ctx.Reply(c.With(l.Seen)) })
		}
		return ctx.Persist(entries...).Reply(c.Answer(func() seen { return l.Seen }))
	case look:
		return ctx.Reply(c.With(l.Seen))
	}
	return ctx.Unhandled()
}

func (l *ledger) ApplyEvent(e entry) { l.Seen = l.Seen.with(e.Op) }

// with is the state after one more entry.
func (s seen) with(op int) seen {
	h := s.Hash
	for x := uint64(op) + 1; x > 0; x >>= 8 {
		h = (h ^ x&0xff) * 1099511628211
	}
	return seen{s.Len + 1, h ^ 0x9e3779b97f4a7c15}
}

func ledgerType() eventsourcing.Type[ledgerCommand, entry] {
	return eventsourcing.Type[ledgerCommand, entry]{
		Name:      "ledger",
		New:       func(string) eventsourcing.Aggregate[ledgerCommand, entry] { return &ledger{} },
		Events:    codec.Types(codec.Name[entry]("entry")),
		Snapshots: eventsourcing.SnapshotEvery(20).Keep(2),
	}
}

// done says what an asker knows about its command.
type done uint8

const (
	surelyDone done = iota
	surelyNot
	maybeDone
)

// certainty is what an error from Ask says.
func certainty(err error) done {
	switch {
	case err == nil, errors.Is(err, errEven), errors.Is(err, eventsourcing.ErrNoReply):
		return surelyDone
	case errors.Is(err, eventsourcing.ErrOutcomeUnknown), errors.Is(err, eventsourcing.ErrPartlyStored):
		return maybeDone
	}
	return surelyNot
}
