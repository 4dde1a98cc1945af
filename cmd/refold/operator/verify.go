// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// VerifyOptions say what Verify looks at. The zero value is every persistence
// ID of a journal without snapshots, and no Go types.
type VerifyOptions struct {
	// ID is the only persistence ID to look at. Defaults to all.
	ID string
	// Snapshots is the snapshot store that belongs to the journal. Defaults to
	// none; then deleted events are a problem.
	Snapshots snapshot.Store
	// Entities are types whose events and snapshots are decoded in full, with
	// upcasters. What is of another type is only checked for being well-formed.
	// Defaults to none.
	Entities []Linked
	// Order checks that queries find all events, if all persistence IDs are looked
	// at; see Source.VerifyOrder. Defaults to none.
	Order func(context.Context) error
	// MaxProblems is how many problems the report lists; the others are
	// counted. Defaults to 1,000.
	MaxProblems int
	// Digest computes Report.Digest.
	Digest bool
	// Progress is called after each persistence ID with how many have been
	// looked at. Defaults to nothing.
	Progress func(ids uint64)
}

// ErrNoLister says that a journal can't list its persistence IDs.
var ErrNoLister = errors.New("operator: the journal can't list its persistence IDs")

// Verify looks at each persistence ID of a journal, or at one:
//
//   - its sequence numbers have no gap up to the highest. Only what a stored
//     snapshot covers may be deleted, and only at the beginning;
//   - times do not decrease;
//   - each payload can be decoded, and a fence has none;
//   - each snapshot can be read and decoded, and is not above the highest
//     number;
//   - queries find each event, if the journal offers to check that.
//
// It changes nothing, and may run while others write: what is appended meanwhile
// is looked at or not. What is wrong with the data is in the report. The error
// says why not everything could be looked at; the report then holds what was.
func Verify(ctx context.Context, j journal.Journal, opts VerifyOptions) (report Report, failed error) {
	v := verifier{journal: j, opts: opts, linked: make(map[string]*Linked, len(opts.Entities))}
	v.opts.MaxProblems = cmp.Or(opts.MaxProblems, 1000)
	for i := range opts.Entities {
		l := &v.opts.Entities[i]
		if err := l.check(); err != nil {
			return Report{}, err
		}
		v.linked[l.name] = l
	}
	if opts.Digest {
		all := newDigester("")
		v.all = all
		defer func() { report.Digest = all.sum() }()
	}
	if opts.ID != "" {
		err := v.one(ctx, opts.ID)
		return v.report, err
	}
	lister, ok := journal.As[journal.IDLister](j)
	if !ok {
		return Report{}, fmt.Errorf("%w: name one", ErrNoLister)
	}
	for id, err := range lister.PersistenceIDs(ctx, "") {
		if err != nil {
			return v.report, fmt.Errorf("list the persistence IDs: %w", err)
		}
		if err := v.one(ctx, id); err != nil {
			return v.report, err
		}
	}
	return v.report, v.order(ctx)
}

// order looks at the order over all persistence IDs.
func (v *verifier) order(ctx context.Context) error {
	if v.opts.Order == nil {
		return nil
	}
	err := v.opts.Order(ctx)
	if err == nil || unreachable(ctx, err) || !damaged(err) {
		return err
	}
	v.problem("", 0, err)
	return nil
}

// verifier is a Verify in progress.
type verifier struct {
	journal journal.Journal
	opts    VerifyOptions
	linked  map[string]*Linked
	report  Report
	scratch []any
	all     *digester // nil if no digest is wanted
	id      *digester // of the ID in hand
}

func (v *verifier) problem(id string, seqNr uint64, err error) {
	if len(v.report.Problems) >= v.opts.MaxProblems {
		v.report.Omitted++
		return
	}
	v.report.Problems = append(v.report.Problems, Problem{ID: id, SequenceNr: seqNr, Err: err})
}

// one looks at one persistence ID.
func (v *verifier) one(ctx context.Context, id string) error {
	if v.all != nil {
		v.id = newDigester(id)
	}
	h, err := v.history(ctx, id)
	if err == nil {
		if v.id != nil {
			v.id.highest(h.highest)
		}
		err = v.snapshots(ctx, &h)
	}
	if err != nil {
		return fmt.Errorf("verify %q: %w", id, err)
	}
	if v.all != nil {
		v.all.add(v.id.sum())
	}
	v.report.IDs++
	if v.opts.Progress != nil {
		v.opts.Progress(v.report.IDs)
	}
	return nil
}

// unreachable tells the errors that say nothing about the data.
func unreachable(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, journal.ErrUnavailable) || errors.Is(err, journal.ErrClosed) ||
		errors.Is(err, journal.ErrInvalid) || errors.Is(err, snapshot.ErrClosed)
}
