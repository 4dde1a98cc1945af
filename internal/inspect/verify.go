// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/shardcore/stored"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// VerifyOptions configures Verify. The zero value verifies all persistence IDs of a journal without
// snapshots and without Go types.
type VerifyOptions struct {
	// ID is the only persistence ID to verify. Defaults to all.
	ID string
	// Snapshots is the snapshot store of the journal. Defaults to none; deleted events are then a
	// problem.
	Snapshots snapshot.Store
	// Types are types whose events and snapshots are decoded in full, with upcasters, and whose
	// events are replayed. Payloads of other types are only checked for syntax, except those of
	// Refold itself, which are decoded. Defaults to none.
	Types []Type
	// Order checks that queries find all events; it runs if all persistence IDs are verified. See
	// leveldb.DB.VerifyOrder. Defaults to none.
	Order func(context.Context) error
	// MaxProblems bounds the listed problems. The report counts the others. Defaults to 1,000.
	MaxProblems int
	// Digest computes Report.Digest.
	Digest bool
	// Progress is called after each persistence ID with the report so far, which must not be
	// changed or kept. Defaults to none.
	Progress func(id string, sofar *Report)
}

// ErrNoLister reports a journal that cannot list its persistence IDs.
var ErrNoLister = errors.New("inspect: the journal cannot list its persistence IDs; only commands with a persistence ID work")

// Verify checks all persistence IDs of a journal, or one:
//
//   - Sequence numbers have no gap up to the highest one. Only records that a stored snapshot
//     covers may be deleted, and only from the beginning.
//   - Times do not decrease.
//   - Each payload can be decoded, and fences have no payload.
//   - Each snapshot can be read and decoded, and its number is not above the highest one. A
//     snapshot of another Snapshots.Version is not decoded.
//   - Each snapshot of an entity type in VerifyOptions.Types equals the state that the events up to
//     its number give. If events were deleted, the replay begins with the oldest snapshot that
//     covers them.
//   - Queries find each event, if the journal offers this check.
//
// Verify changes nothing. Other programs may write at the same time; Verify may or may not see
// records that they append. The report lists problems with the data. The error is the reason why
// Verify could not check everything; the report then covers the checked part.
func Verify(ctx context.Context, j journal.Journal, opts VerifyOptions) (report Report, failed error) {
	v := verifier{journal: j, opts: opts, start: &oneSnapshot{Store: opts.Snapshots}}
	defer func() { failed = errors.Join(failed, v.close(ctx)) }()
	v.opts.MaxProblems = cmp.Or(opts.MaxProblems, 1000)
	for i := range opts.Types {
		t := &v.opts.Types[i]
		if err := t.Check(); err != nil {
			return Report{}, err
		}
	}
	if opts.Digest {
		all := NewDigester("")
		v.all = all
		defer func() { report.Digest = all.Sum() }()
	}
	if opts.ID != "" {
		err := v.one(ctx, opts.ID)
		return v.report, err
	}
	for id, err := range Listed(ctx, j, "") {
		if err == nil {
			err = v.one(ctx, id)
		}
		if err != nil {
			return v.report, err
		}
	}
	if opts.Order == nil {
		return v.report, nil
	}
	err := opts.Order(ctx)
	if err != nil && !Unreachable(ctx, err) && Damaged(err) {
		v.problem("", 0, err)
		err = nil
	}
	return v.report, err
}

type verifier struct {
	journal journal.Journal
	opts    VerifyOptions
	report  Report
	scratch []any
	all     *Digester              // nil if no digest is requested
	id      *Digester              // digest of the current ID
	rt      *eventsourcing.Runtime // replays events; nil before the first replay
	start   *oneSnapshot           // the snapshot store of rt
}

func (v *verifier) close(ctx context.Context) error {
	if v.rt == nil {
		return nil
	}
	return v.rt.Close(context.WithoutCancel(ctx))
}

func (v *verifier) problem(id string, seqNr uint64, err error) {
	if len(v.report.Problems) >= v.opts.MaxProblems {
		v.report.Omitted++
		return
	}
	v.report.Problems = append(v.report.Problems, Problem{ID: id, SequenceNr: seqNr, Err: err})
}

func (v *verifier) one(ctx context.Context, id string) error {
	if v.all != nil {
		v.id = NewDigester(id)
	}
	h, err := v.history(ctx, id)
	if err == nil {
		if v.id != nil {
			v.id.Highest(h.highest)
		}
		err = v.snapshots(ctx, &h)
	}
	if err != nil {
		return fmt.Errorf("verify %q: %w", id, err)
	}
	if v.all != nil {
		v.all.Add(v.id.Sum())
	}
	v.report.IDs++
	if v.opts.Progress != nil {
		v.opts.Progress(id, &v.report)
	}
	return nil
}

// Unreachable reports whether an error has a cause other than the stored data, such as an
// unavailable or closed journal.
func Unreachable(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, journal.ErrUnavailable) || errors.Is(err, journal.ErrClosed) ||
		errors.Is(err, journal.ErrInvalid) || errors.Is(err, snapshot.ErrClosed)
}

type history struct {
	id      string
	typ     *Type // nil if the type is not part of the program
	highest uint64
	first   uint64 // the first record, or 0
	last    uint64 // the last record, or 0
	time    time.Time
	broken  bool // the replay failed
	restart bool // the first record begins an empty history
}

func (v *verifier) history(ctx context.Context, id string) (history, error) {
	h := history{id: id, typ: TypeOfID(v.opts.Types, id)}
	before, err := v.journal.HighestSequenceNr(ctx, id)
	if err != nil {
		return h, v.unread(ctx, &h, fmt.Errorf("the highest number is unreadable: %w", err))
	}
	h.highest = before
	for e, err := range v.journal.Replay(ctx, id, 1, journal.MaxSequenceNr) {
		if err != nil {
			if err = v.unread(ctx, &h, fmt.Errorf("the records after it are unreadable: %w", err)); err != nil {
				return h, err
			}
			break
		}
		v.record(&h, &e)
	}
	after, err := v.journal.HighestSequenceNr(ctx, id)
	if err != nil {
		return h, v.unread(ctx, &h, fmt.Errorf("the highest number is unreadable: %w", err))
	}
	if after < before {
		v.problem(id, 0, fmt.Errorf("the highest number decreased from %d to %d", before, after))
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

// unread reports an error about the data as a problem, and returns any other error.
func (v *verifier) unread(ctx context.Context, h *history, err error) error {
	if Unreachable(ctx, err) {
		return err
	}
	h.broken = true
	v.problem(h.id, h.last, err)
	return nil
}

func (v *verifier) record(h *history, e *journal.Event) {
	v.report.Records++
	if v.id != nil {
		v.id.Record(e)
	}
	switch {
	case e.SequenceNr == 0:
		v.problem(h.id, 0, errors.New("a record has the number 0"))
	case h.first == 0:
		h.first = e.SequenceNr
		h.restart = journal.IsReserved(h.id) && e.Manifest == stored.Removed
	case e.SequenceNr <= h.last:
		v.problem(h.id, e.SequenceNr, fmt.Errorf("the record follows record %d", h.last))
	case e.SequenceNr > h.last+1:
		v.problem(h.id, 0, &journal.GapError{ID: h.id, Want: h.last + 1, Got: e.SequenceNr})
	}
	if e.Time.Before(h.time) {
		v.problem(h.id, e.SequenceNr, fmt.Errorf("the time decreased from %s to %s", Stamp(h.time), Stamp(e.Time)))
	}
	h.last, h.time = max(h.last, e.SequenceNr), e.Time
	if e.IsFence() {
		v.report.Fences++
		if len(e.Payload) > 0 {
			v.problem(h.id, e.SequenceNr, fmt.Errorf("the record has no manifest, but a payload of length %d", len(e.Payload)))
		}
		return
	}
	if err := v.event(h, e); err != nil {
		v.problem(h.id, e.SequenceNr, err)
	}
}

func (v *verifier) event(h *history, e *journal.Event) error {
	if h.typ != nil {
		return h.typ.CheckEvent(&v.scratch, e.Manifest, e.Payload)
	}
	if journal.IsReserved(h.id) {
		return v.own(e.Manifest, e.Payload)
	}
	format := FormatOf(e.Manifest)
	if format == Unknown {
		v.report.Unchecked++
	}
	return format.Check(e.Payload)
}

// own decodes an event or a snapshot of Refold itself.
func (v *verifier) own(manifest string, payload []byte) error {
	known, err := stored.Check(manifest, payload)
	if !known {
		v.report.Unchecked++
	}
	return err
}

// snapshots verifies the snapshots of an ID, and that they cover its deleted records.
func (v *verifier) snapshots(ctx context.Context, h *history) error {
	deleted := h.highest // records up to this number are deleted
	if h.first > 0 {
		deleted = h.first - 1
	}
	if h.broken && h.first == 0 {
		deleted = 0 // unknown
	}
	covered := deleted == 0 || h.restart
	if v.opts.Snapshots == nil {
		if !covered {
			v.problem(h.id, 0, fmt.Errorf("deleted prefix: the events up to %d are deleted, and the journal has no snapshot store", deleted))
		}
		return nil
	}
	var decoded []uint64
	for md, err := range v.opts.Snapshots.List(ctx, h.id, snapshot.Latest()) {
		if err != nil {
			if Unreachable(ctx, err) {
				return err
			}
			v.problem(h.id, 0, fmt.Errorf("the snapshots cannot be listed: %w", err))
			break
		}
		v.report.Snapshots++
		err := v.snapshot(ctx, h, md)
		switch {
		case err == nil:
			covered = covered || md.SequenceNr >= deleted
			decoded = append(decoded, md.SequenceNr)
		case errors.Is(err, eventsourcing.ErrSnapshotVersion):
			v.report.OtherVersions++
		case Unreachable(ctx, err):
			return err
		default:
			v.problem(h.id, md.SequenceNr, err)
		}
	}
	if !covered {
		v.problem(h.id, 0, fmt.Errorf("deleted prefix: the events up to %d are deleted, and no valid snapshot covers them", deleted))
	}
	if h.typ == nil {
		return nil
	}
	slices.Sort(decoded)
	return v.replay(ctx, h, deleted, decoded)
}

// oneSnapshot is a snapshot store that loads only the snapshot with one number, or none for 0.
type oneSnapshot struct {
	snapshot.Store

	number atomic.Uint64
}

// Load implements snapshot.Store.
func (s *oneSnapshot) Load(ctx context.Context, id string, _ snapshot.Criteria) (snapshot.Snapshot, error) {
	if n := s.number.Load(); n > 0 {
		return s.Store.Load(ctx, id, snapshot.At(n))
	}
	return snapshot.Snapshot{}, snapshot.ErrNotFound
}

// replay compares the snapshots with some numbers, in ascending order, with the replayed states.
func (v *verifier) replay(ctx context.Context, h *history, deleted uint64, numbers []uint64) (err error) {
	first, begin := 0, uint64(0)
	if deleted > 0 {
		if first, _ = slices.BinarySearch(numbers, deleted); first < len(numbers) {
			begin = numbers[first]
			first++
		}
	}
	if h.broken {
		first = len(numbers)
	}
	v.report.Uncompared += uint64(first)
	if numbers = numbers[first:]; len(numbers) == 0 {
		return nil
	}
	if v.rt == nil {
		if v.rt, err = eventsourcing.Open(eventsourcing.Config{Store: store.Of(v.journal, v.start)}); err != nil { //nolint:contextcheck // it ends with Verify
			return err
		}
	}
	v.start.number.Store(begin)
	entityID, _ := h.typ.EntityID(h.id)
	_, err = h.typ.Fold(ctx, v.rt, entityID, Wanted{UpTo: numbers[len(numbers)-1], At: numbers, Visit: func(replayed State) error {
		numbers = numbers[1:]
		return v.compare(ctx, h, entityID, &replayed)
	}})
	switch {
	case err == nil:
		return nil
	case Unreachable(ctx, err), errors.Is(err, eventsourcing.ErrInvalid):
		return err
	case !errors.Is(err, journal.ErrHistoryGap) && len(numbers) > 0: // history has reported a gap, or another program deletes events
		v.problem(h.id, numbers[0], fmt.Errorf("the events up to the snapshot cannot be replayed: %w", err))
	}
	v.report.Uncompared += uint64(len(numbers))
	return nil
}

// compare compares a snapshot with the replayed state.
func (v *verifier) compare(ctx context.Context, h *history, entityID string, replayed *State) error {
	s, err := v.opts.Snapshots.Load(ctx, h.id, snapshot.At(replayed.SequenceNr))
	if errors.Is(err, snapshot.ErrNotFound) {
		return nil // another program has deleted it
	}
	if err != nil {
		return err
	}
	saved, err := h.typ.Decode(entityID, s.Manifest, s.Payload)
	if err == nil && !saved.Equal(replayed) {
		d := Compare(&saved, replayed)
		v.problem(h.id, replayed.SequenceNr, fmt.Errorf("the snapshot differs from the replayed state: %s", d.Fields()))
	}
	return err
}

func (v *verifier) snapshot(ctx context.Context, h *history, md snapshot.Metadata) error {
	if md.SequenceNr > h.highest {
		return fmt.Errorf("the snapshot is above the highest number, which is %d", h.highest)
	}
	s, err := v.opts.Snapshots.Load(ctx, h.id, snapshot.At(md.SequenceNr))
	if errors.Is(err, snapshot.ErrNotFound) {
		return errors.New("the snapshot is listed, but does not exist")
	}
	if err != nil {
		return fmt.Errorf("the snapshot is unreadable: %w", err)
	}
	if v.id != nil {
		v.id.Snapshot(&s)
	}
	if h.typ != nil {
		entityID, _ := h.typ.EntityID(h.id)
		_, err = h.typ.Decode(entityID, s.Manifest, s.Payload)
	} else if journal.IsReserved(h.id) {
		err = v.own(s.Manifest, s.Payload)
	} else {
		format := FormatOfState(s.Manifest, s.Payload)
		if format == Unknown {
			v.report.Unchecked++
		}
		err = format.Check(s.Payload)
	}
	if err != nil {
		return fmt.Errorf("the snapshot cannot be decoded: %w", err)
	}
	return nil
}

// Problem is a fault in the stored data of a persistence ID.
type Problem struct {
	// ID is the persistence ID.
	ID string
	// SequenceNr is the number of the faulty record or snapshot, or 0 if the fault does not concern
	// a single record or snapshot.
	SequenceNr uint64
	// Err describes the fault.
	Err error
}

// String returns the problem as one line of text.
func (p Problem) String() string {
	if p.ID == "" {
		return p.Err.Error()
	}
	if p.SequenceNr == 0 {
		return fmt.Sprintf("%q: %v", p.ID, p.Err)
	}
	return fmt.Sprintf("%q at %d: %v", p.ID, p.SequenceNr, p.Err)
}

// Error returns String.
func (p Problem) Error() string { return p.String() }

// Unwrap returns Err.
func (p Problem) Unwrap() error { return p.Err }

// Report is the result of Verify.
type Report struct {
	// IDs, Records and Snapshots count the verified data. Records includes Fences.
	IDs, Records, Fences, Snapshots uint64
	// OtherVersions counts the snapshots with another Snapshots.Version than their type. Recoveries
	// ignore them. They cover no deleted events.
	OtherVersions uint64
	// Unchecked counts payloads in an application-specific format whose type is not part of the
	// program.
	Unchecked uint64
	// Uncompared counts snapshots of types in VerifyOptions.Types that were not compared with the
	// replayed state, because events before them are deleted or cannot be replayed.
	Uncompared uint64
	// Digest is the digest of the verified data, if requested.
	Digest Digest
	// Problems lists problems up to VerifyOptions.MaxProblems, in the order of the IDs.
	Problems []Problem
	// Omitted counts the unlisted problems.
	Omitted uint64
}

// Found returns the number of problems, including the unlisted ones.
func (r *Report) Found() uint64 { return uint64(len(r.Problems)) + r.Omitted }

// Digest identifies the contents of a persistence ID or of a journal. Equal digests mean equal
// highest numbers, records and snapshots. The digest depends neither on the plugin nor on the order
// between persistence IDs. The zero value is the digest of no ID.
//
// The digest of a journal is the SHA-256 of the digests of its IDs in bytewise order. The digest of
// an ID is the SHA-256 of a format version and the contents of the ID. Each text is preceded by its
// length.
type Digest [sha256.Size]byte

// String returns the digest as hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

const digestVersion = 1

// Digester computes a Digest. The order of the calls matters.
type Digester struct {
	hash    hash.Hash
	scratch []byte
}

// NewDigester starts the digest of a persistence ID, or of a journal if id is empty.
func NewDigester(id string) *Digester {
	d := &Digester{hash: sha256.New()}
	d.number(digestVersion)
	d.text(id)
	return d
}

func (d *Digester) number(n uint64) {
	d.scratch = binary.BigEndian.AppendUint64(d.scratch[:0], n)
	_, _ = d.hash.Write(d.scratch) // never fails
}

func (d *Digester) bytes(b []byte) {
	d.number(uint64(len(b)))
	_, _ = d.hash.Write(b)
}

func (d *Digester) text(s string) { d.bytes([]byte(s)) }

// Highest adds the highest number, after the records.
func (d *Digester) Highest(n uint64) {
	d.number(0)
	d.number(n)
}

// Record adds a record.
func (d *Digester) Record(e *journal.Event) {
	d.number(e.SequenceNr)
	d.number(uint64(e.Time.UnixMicro()))
	d.text(e.Writer)
	d.text(e.Manifest)
	d.bytes(e.Payload)
	d.number(uint64(len(e.Tags)))
	for _, tag := range e.Tags {
		d.text(tag)
	}
	d.bytes(e.Metadata)
}

// Snapshot adds a snapshot, after the highest number.
func (d *Digester) Snapshot(s *snapshot.Snapshot) {
	d.number(s.SequenceNr)
	d.number(uint64(s.Time.UnixMicro()))
	d.text(s.Manifest)
	d.bytes(s.Payload)
}

// Add adds the digest of a persistence ID to that of a journal.
func (d *Digester) Add(one Digest) { _, _ = d.hash.Write(one[:]) }

// Sum returns the digest.
func (d *Digester) Sum() (out Digest) {
	d.hash.Sum(out[:0])
	return out
}

// Damaged reports whether an error is about stored data.
func Damaged(err error) bool {
	for _, target := range []error{
		journal.ErrCorrupt, journal.ErrHistoryGap, journal.ErrViolation, snapshot.ErrCorrupt,
		codec.ErrUnknown, codec.ErrMalformed, codec.ErrLimit, durable.ErrCorrupt, replication.ErrMalformed, crdt.ErrMalformed,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	_, panicked := errors.AsType[*eventsourcing.PanicError](err)
	return panicked
}

// Listed yields the persistence IDs of a journal that sort after a text.
func Listed(ctx context.Context, j journal.Journal, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		lister, ok := journal.As[journal.IDLister](j)
		if !ok {
			yield("", ErrNoLister)
			return
		}
		for id, err := range lister.PersistenceIDs(ctx, after) {
			if err != nil {
				err = fmt.Errorf("list the persistence IDs: %w", err)
			}
			if !yield(id, err) {
				return
			}
		}
	}
}

// Stamp formats a time with a fixed length.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }
