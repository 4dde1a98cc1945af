// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

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

// history is what was seen of one persistence ID.
type history struct {
	id      string
	linked  *Linked // nil if the type is not linked in
	highest uint64
	first   uint64 // the first record, 0 if there is none
	last    uint64 // the last record, 0 if there is none
	time    time.Time
	broken  bool // the replay ended with an error
}

// history looks at the records of an ID.
func (v *verifier) history(ctx context.Context, id string) (history, error) {
	typeName, _ := journal.SplitID(id)
	h := history{id: id, linked: v.linked[typeName]}
	before, err := v.journal.HighestSequenceNr(ctx, id)
	if err != nil {
		return h, v.unread(ctx, &h, fmt.Errorf("the highest number can't be read: %w", err))
	}
	h.highest = before
	for e, err := range v.journal.Replay(ctx, id, 1, journal.MaxSequenceNr) {
		if err != nil {
			if err = v.unread(ctx, &h, fmt.Errorf("the records behind it can't be read: %w", err)); err != nil {
				return h, err
			}
			break
		}
		v.record(&h, &e)
	}
	after, err := v.journal.HighestSequenceNr(ctx, id)
	if err != nil {
		return h, v.unread(ctx, &h, fmt.Errorf("the highest number can't be read: %w", err))
	}
	if after < before {
		v.problem(id, 0, fmt.Errorf("the highest number went back from %d to %d", before, after))
	}
	h.highest = max(before, after)
	switch {
	case h.broken:
	case h.last > h.highest:
		v.problem(id, h.last, fmt.Errorf("the record is above the highest number, which is %d", h.highest))
	case h.first > 0 && h.last < before:
		v.problem(id, 0, &journal.GapError{ID: id, Want: h.last + 1})
	}
	return h, nil
}

// unread takes note of an error about the data, and returns the others.
func (v *verifier) unread(ctx context.Context, h *history, err error) error {
	if unreachable(ctx, err) {
		return err
	}
	h.broken = true
	v.problem(h.id, h.last, err)
	return nil
}

// record looks at the next record.
func (v *verifier) record(h *history, e *journal.Event) {
	v.report.Records++
	if v.id != nil {
		v.id.record(e)
	}
	switch {
	case e.SequenceNr == 0:
		v.problem(h.id, 0, errors.New("a record has the number 0"))
	case h.first == 0:
		h.first = e.SequenceNr
	case e.SequenceNr <= h.last:
		v.problem(h.id, e.SequenceNr, fmt.Errorf("the record comes behind record %d", h.last))
	case e.SequenceNr > h.last+1:
		v.problem(h.id, 0, &journal.GapError{ID: h.id, Want: h.last + 1, Got: e.SequenceNr})
	}
	if e.Time.Before(h.time) {
		v.problem(h.id, e.SequenceNr, fmt.Errorf("the time went back from %s to %s", stamp(h.time), stamp(e.Time)))
	}
	h.last, h.time = max(h.last, e.SequenceNr), e.Time
	if e.IsFence() {
		v.report.Fences++
		if len(e.Payload) > 0 {
			v.problem(h.id, e.SequenceNr, fmt.Errorf("the record has no manifest, but a payload of %d bytes", len(e.Payload)))
		}
		return
	}
	if err := v.event(h, e); err != nil {
		v.problem(h.id, e.SequenceNr, err)
	}
}

// event checks the payload of an event.
func (v *verifier) event(h *history, e *journal.Event) error {
	if h.linked != nil {
		return h.linked.checkEvent(&v.scratch, e.Manifest, e.Payload)
	}
	format := formatOf(e.Manifest)
	if format == unknownFormat {
		v.report.Unchecked++
	}
	return format.check(e.Payload)
}

// snapshots looks at the snapshots of an ID, and whether they cover what was
// deleted of it.
func (v *verifier) snapshots(ctx context.Context, h *history) error {
	deleted := h.highest // up to which number there are no records
	if h.first > 0 {
		deleted = h.first - 1
	}
	if h.broken && h.first == 0 {
		deleted = 0 // nothing is known
	}
	covered := deleted == 0
	if v.opts.Snapshots == nil {
		if !covered {
			v.problem(h.id, 0, fmt.Errorf("deleted prefix: the events up to %d are deleted, and there is no snapshot store to look into", deleted))
		}
		return nil
	}
	for md, err := range v.opts.Snapshots.List(ctx, h.id, snapshot.Latest()) {
		if err != nil {
			if unreachable(ctx, err) {
				return err
			}
			v.problem(h.id, 0, fmt.Errorf("the snapshots can't be listed: %w", err))
			break
		}
		v.report.Snapshots++
		err := v.snapshot(ctx, h, md)
		switch {
		case err == nil:
			covered = covered || md.SequenceNr >= deleted
		case unreachable(ctx, err):
			return err
		default:
			v.problem(h.id, md.SequenceNr, err)
		}
	}
	if !covered {
		v.problem(h.id, 0, fmt.Errorf("deleted prefix: the events up to %d are deleted, and no good snapshot covers them", deleted))
	}
	return nil
}

// snapshot looks at one snapshot.
func (v *verifier) snapshot(ctx context.Context, h *history, md snapshot.Metadata) error {
	if md.SequenceNr > h.highest {
		return fmt.Errorf("the snapshot is above the highest number, which is %d", h.highest)
	}
	s, err := v.opts.Snapshots.Load(ctx, h.id, snapshot.At(md.SequenceNr))
	if errors.Is(err, snapshot.ErrNotFound) {
		return errors.New("the snapshot is listed, but can't be found")
	}
	if err != nil {
		return fmt.Errorf("the snapshot can't be read: %w", err)
	}
	if v.id != nil {
		v.id.snapshot(&s)
	}
	if h.linked != nil {
		if err := h.linked.checkState(h.id, s.Manifest, s.Payload); err != nil {
			return fmt.Errorf("the snapshot can't be decoded: %w", err)
		}
		return nil
	}
	format := formatOfState(s.Manifest, s.Payload)
	if format == unknownFormat {
		v.report.Unchecked++
	}
	if err := format.check(s.Payload); err != nil {
		return fmt.Errorf("the snapshot can't be decoded: %w", err)
	}
	return nil
}

// Problem is something that is wrong with the stored data of one persistence
// ID.
type Problem struct {
	// ID is the persistence ID.
	ID string
	// SequenceNr is the number of the record or snapshot that is at fault, 0 if
	// it is none in particular.
	SequenceNr uint64
	// Err says what is wrong.
	Err error
}

// String returns the problem as one line.
func (p Problem) String() string {
	if p.ID == "" {
		return p.Err.Error()
	}
	if p.SequenceNr == 0 {
		return fmt.Sprintf("%q: %v", p.ID, p.Err)
	}
	return fmt.Sprintf("%q at %d: %v", p.ID, p.SequenceNr, p.Err)
}

// Error is String.
func (p Problem) Error() string { return p.String() }

// Unwrap returns what is wrong.
func (p Problem) Unwrap() error { return p.Err }

// Report is what Verify has looked at and found.
type Report struct {
	// IDs, Records and Snapshots are how many were looked at. Fences are among
	// the records.
	IDs, Records, Fences, Snapshots uint64
	// Unchecked is how many payloads could not be checked: they are in a format
	// of the program that wrote them, whose types are not linked in.
	Unchecked uint64
	// Digest is that of all that was looked at, if it was asked for.
	Digest Digest
	// Problems are what was found, up to VerifyOptions.MaxProblems, in the order
	// of the IDs.
	Problems []Problem
	// Omitted is how many more problems there are.
	Omitted uint64
}

// Found returns how many problems there are, those included that the report
// does not list.
func (r *Report) Found() uint64 { return uint64(len(r.Problems)) + r.Omitted }
