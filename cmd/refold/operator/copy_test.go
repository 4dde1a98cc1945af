// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
)

// memory is an empty journal with a snapshot store.
func memory() *operator.Source {
	j, s := inmem.NewJournal(), inmem.NewSnapshotStore()
	return &operator.Source{Journal: j, Snapshots: s, Close: func() error { return errors.Join(j.Close(), s.Close()) }}
}

// record appends records to an ID.
func record(tb testing.TB, s *operator.Source, id, writer string, events ...journal.Event) {
	tb.Helper()
	highest, err := s.Journal.HighestSequenceNr(tb.Context(), id)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range events {
		events[i].SequenceNr = highest + 1 + uint64(i)
		if events[i].Time.IsZero() {
			events[i].Time = at(events[i].SequenceNr)
		}
	}
	if slots := s.Journal.Append(tb.Context(), []journal.Write{{ID: id, Writer: writer, Expect: highest, Events: events}}); slots != nil {
		tb.Fatal(slots[0])
	}
}

// keep saves a snapshot.
func keep(tb testing.TB, s *operator.Source, id string, nr uint64, state string) {
	tb.Helper()
	one := snapshot.Snapshot{Manifest: "state", Payload: []byte(state), Metadata: snapshot.Metadata{ID: id, SequenceNr: nr, Time: at(nr)}}
	if err := s.Snapshots.Save(tb.Context(), one); err != nil {
		tb.Fatal(err)
	}
}

func drop(tb testing.TB, s *operator.Source, id string, to uint64) {
	tb.Helper()
	if err := s.Journal.DeleteTo(tb.Context(), id, to); err != nil {
		tb.Fatal(err)
	}
}

// fill stores n IDs in a journal. The IDs differ: some have fences, several writers, snapshots,
// deleted first records, or only deleted records.
func fill(tb testing.TB, s *operator.Source, n int, seed uint64) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range n {
		id := fmt.Sprintf("account|%05d", i)
		total := uint64(1 + rng.IntN(30))
		if i == 11 { // more records than a page of a replay
			total += 1500
		}
		for nr, writer := uint64(0), 0; nr < total; writer++ {
			var events []journal.Event
			for range 1 + rng.IntN(5) {
				e := journal.Event{Manifest: "noted", Payload: []byte{0xc4, 1, byte(nr)}, Time: at(nr)}
				switch rng.IntN(6) {
				case 0:
					e = journal.Event{Time: at(nr)}
				case 1:
					e.Tags = []string{"z", "a tag", "ü"}
				case 2:
					e.Metadata = []byte("trace")
				}
				events = append(events, e)
				nr++
			}
			record(tb, s, id, fmt.Sprintf("writer-%d", writer/3), events...)
		}
		if rng.IntN(2) == 0 {
			keep(tb, s, id, total, fmt.Sprint("state of ", id))
			keep(tb, s, id, max(1, total/2), "earlier state")
		}
		switch rng.IntN(6) {
		case 0:
			drop(tb, s, id, total/2)
		case 1:
			drop(tb, s, id, journal.MaxSequenceNr)
		}
	}
}

// same fails the test unless two journals have equal contents. It does not use digests.
func same(t *testing.T, from, to *operator.Source) {
	t.Helper()
	a, b := contents(t, from), contents(t, to)
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("the source has\n%s\nthe target has\n%s\nwant equal contents", a[i], b[i])
		}
	}
	if len(a) != len(b) {
		t.Fatalf("the contents have %d lines in the source and %d in the target, want equal numbers", len(a), len(b))
	}
}

// contents returns a line for each record, ID and snapshot of a journal.
func contents(t *testing.T, s *operator.Source) (lines []string) {
	t.Helper()
	lister, _ := journal.As[journal.IDLister](s.Journal)
	for id, err := range lister.PersistenceIDs(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		highest, err := s.Journal.HighestSequenceNr(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s up to %d", id, highest))
		for e, err := range s.Journal.Replay(t.Context(), id, 0, journal.MaxSequenceNr) {
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("%s %d %v %q %q %x %q %x", id, e.SequenceNr, e.Time, e.Writer, e.Manifest, e.Payload, e.Tags, e.Metadata))
		}
		for md, err := range s.Snapshots.List(t.Context(), id, snapshot.Latest()) {
			if err != nil {
				t.Fatal(err)
			}
			one, err := s.Snapshots.Load(t.Context(), id, snapshot.At(md.SequenceNr))
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("%s snapshot %d %v %q %x", id, one.SequenceNr, one.Time, one.Manifest, one.Payload))
		}
	}
	return lines
}

// digestOf returns the digest of "verify --digest".
func digestOf(t *testing.T, s *operator.Source) operator.Digest {
	t.Helper()
	report, err := operator.Verify(t.Context(), s.Journal, operator.VerifyOptions{Snapshots: s.Snapshots, Digest: true})
	if err != nil {
		t.Fatal(err)
	}
	return report.Digest
}

// copied copies a journal, and requires equal contents and equal digests of both sides.
func copied(t *testing.T, from, to *operator.Source) operator.CopyReport {
	t.Helper()
	report, err := operator.Copy(t.Context(), from, to, operator.CopyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) > 0 {
		t.Fatalf("Copy reported the problems %v, want none", report.Problems)
	}
	same(t, from, to)
	if a, b := digestOf(t, from), digestOf(t, to); a != b || a != report.Digest {
		t.Errorf("digests: %v of the source, %v of the target, %v reported; want equal digests", a, b, report.Digest)
	}
	return report
}

func TestCopy(t *testing.T) {
	t.Parallel()
	from, to := memory(), memory()
	fill(t, from, 60, 1)
	first := copied(t, from, to)
	if first.IDs != 60 || first.CopiedRecords != first.Records || first.CopiedSnapshots != first.Snapshots || first.Snapshots == 0 || first.GrownIDs != 0 {
		t.Errorf("first copy = %+v, want 60 IDs with all records and snapshots copied", first)
	}
	again := copied(t, from, to)
	if again.CopiedRecords != 0 || again.CopiedSnapshots != 0 || again.RemovedSnapshots != 0 || again.Records != first.Records || again.Digest != first.Digest {
		t.Errorf("second copy = %+v, want no copied or removed contents; first copy = %+v", again, first)
	}
	empty := copied(t, memory(), memory())
	if empty.IDs != 0 || empty.Digest == first.Digest {
		t.Errorf("copy of an empty journal = %+v, want 0 IDs and another digest", empty)
	}
}

// A second copy of a source in use copies additions and deletions.
func TestCopyAdditions(t *testing.T) {
	t.Parallel()
	from, to := memory(), memory()
	record(t, from, "a|1", "w", good(4)...)
	keep(t, from, "a|1", 2, "two")
	copied(t, from, to)
	record(t, from, "a|1", "w", good(3)...)
	record(t, from, "a|2", "w", good(1)...)
	keep(t, from, "a|1", 6, "six")
	if err := from.Snapshots.Delete(t.Context(), "a|1", snapshot.At(2)); err != nil {
		t.Fatal(err)
	}
	drop(t, from, "a|1", 3)
	if r := copied(t, from, to); r.CopiedRecords != 4 || r.CopiedSnapshots != 1 || r.RemovedSnapshots != 1 {
		t.Errorf("copy after additions and deletions = %+v, want 4 records, 1 snapshot and 1 removed snapshot", r)
	}
	keep(t, from, "a|1", 6, "six, once more")
	drop(t, from, "a|1", 6)
	if r := copied(t, from, to); r.CopiedRecords != 0 || r.CopiedSnapshots != 1 {
		t.Errorf("copy after a new snapshot = %+v, want no records and 1 snapshot", r)
	}
}

// A copy fails at each of its steps, before or after the step takes effect. The next copy
// continues.
func TestCopyInterruptedAtEachStep(t *testing.T) {
	t.Parallel()
	from := memory()
	fill(t, from, 8, 4)
	record(t, from, "deleted|long", "w", good(700)...)
	keep(t, from, "deleted|long", 690, "x")
	drop(t, from, "deleted|long", 690)
	interruptions := 0
	for _, done := range []bool{false, true} {
		for step := int64(0); ; step++ {
			to := memory()
			faulty := &faultyTarget{step: step, done: done}
			_, err := operator.Copy(t.Context(), from, faulty.wrap(to), operator.CopyOptions{Parallel: 3})
			if err == nil {
				if faulty.steps.Load() > step {
					t.Errorf("step %d failed, but Copy returned no error", step)
				}
				break
			}
			interruptions++
			if !errors.Is(err, errDisk) {
				t.Fatal(err)
			}
			copied(t, from, to)
		}
	}
	if interruptions < 25 {
		t.Errorf("the test interrupted %d copies, want at least 25", interruptions)
	}
}

// faultyTarget returns an error for one of the steps that change the target, and for all later
// steps.
type faultyTarget struct {
	step  int64 // number of the failing step, from 0
	done  bool  // the step takes effect although it returns an error
	steps atomic.Int64
}

type (
	faultyJournal struct {
		journal.Journal
		*faultyTarget
	}
	faultySnapshots struct {
		snapshot.Store
		*faultyTarget
	}
)

func (f *faultyTarget) wrap(s *operator.Source) *operator.Source {
	return &operator.Source{Journal: faultyJournal{s.Journal, f}, Snapshots: faultySnapshots{s.Snapshots, f}, Close: s.Close}
}

func (f *faultyTarget) fault(do func() error) error {
	step := f.steps.Add(1) - 1
	if step < f.step {
		return do()
	}
	if step == f.step && f.done {
		if err := do(); err != nil {
			return err
		}
	}
	return errDisk
}

func (j faultyJournal) Unwrap() journal.Journal { return j.Journal }

func (j faultyJournal) Append(ctx context.Context, writes []journal.Write) (slots []error) {
	if err := j.fault(func() error { slots = j.Journal.Append(ctx, writes); return errors.Join(slots...) }); err != nil && slots == nil {
		slots = slices.Repeat([]error{err}, len(writes))
	}
	if step := j.steps.Load() - 1; step >= j.step && slots == nil {
		slots = slices.Repeat([]error{errDisk}, len(writes))
	}
	return slots
}

func (j faultyJournal) DeleteTo(ctx context.Context, id string, to uint64) error {
	return j.fault(func() error { return j.Journal.DeleteTo(ctx, id, to) })
}

func (s faultySnapshots) Save(ctx context.Context, one snapshot.Snapshot) error {
	return s.fault(func() error { return s.Store.Save(ctx, one) })
}

func (s faultySnapshots) Delete(ctx context.Context, id string, c snapshot.Criteria) error {
	return s.fault(func() error { return s.Store.Delete(ctx, id, c) })
}

// Copy rejects a target with other contents, names the first difference, and leaves it unchanged.
func TestCopyRejectsOtherTarget(t *testing.T) {
	t.Parallel()
	changed := func(change func(e *journal.Event)) func(t *testing.T, to *operator.Source) {
		return func(t *testing.T, to *operator.Source) {
			t.Helper()
			events := good(3)
			change(&events[1])
			record(t, to, "b|1", "w", events...)
		}
	}
	for name, c := range map[string]struct {
		target func(t *testing.T, to *operator.Source)
		want   string
	}{
		"another ID": {func(t *testing.T, to *operator.Source) {
			t.Helper()
			record(t, to, "b|2", "w", good(1)...)
			record(t, to, "a|0", "w", good(1)...)
		}, `"a|0": the source has no such persistence ID`},
		"more records": {func(t *testing.T, to *operator.Source) {
			t.Helper()
			record(t, to, "b|1", "w", good(6)...)
		}, `"b|1" at 6: the source ends at 5, the target at 6`},
		"time":     {changed(func(e *journal.Event) { e.Time = e.Time.Add(time.Microsecond) }), `"b|1" at 2: the record differs from the source in its time`},
		"manifest": {changed(func(e *journal.Event) { e.Manifest = "other" }), `"b|1" at 2: the record differs from the source in its manifest`},
		"payload":  {changed(func(e *journal.Event) { e.Payload = []byte{1} }), `"b|1" at 2: the record differs from the source in its payload`},
		"tags":     {changed(func(e *journal.Event) { e.Tags = []string{"x"} }), `"b|1" at 2: the record differs from the source in its tags`},
		"metadata": {changed(func(e *journal.Event) { e.Metadata = []byte("x") }), `"b|1" at 2: the record differs from the source in its metadata`},
		"writer": {func(t *testing.T, to *operator.Source) {
			t.Helper()
			record(t, to, "b|1", "w", good(1)...)
			record(t, to, "b|1", "v", good(2)[1:]...)
		}, `"b|1" at 2: the record differs from the source in its writer`},
		"more deleted": {func(t *testing.T, to *operator.Source) {
			t.Helper()
			record(t, to, "b|1", "w", good(3)...)
			drop(t, to, "b|1", 1)
		}, `"b|1" at 1: the target has deleted this record, the source has not`},
		"all deleted": {func(t *testing.T, to *operator.Source) {
			t.Helper()
			record(t, to, "b|1", "w", good(3)...)
			drop(t, to, "b|1", 3)
		}, `"b|1" at 1: the target has deleted this record, the source has not`},
		"only deleted records of a shortened ID": {func(t *testing.T, to *operator.Source) {
			t.Helper()
			record(t, to, "c|1", "w", good(2)...)
		}, `"c|1" at 1: the source has deleted this record, so it cannot be compared: copy to an empty target`},
		"only deleted records of an empty ID": {func(t *testing.T, to *operator.Source) {
			t.Helper()
			record(t, to, "d|1", "w", good(2)...)
		}, `"d|1" at 1: the source has deleted this record, so it cannot be compared: copy to an empty target`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := memory(), memory()
			record(t, from, "b|1", "w", good(5)...)
			record(t, from, "c|1", "w", good(5)...)
			drop(t, from, "c|1", 2)
			record(t, from, "d|1", "w", good(2)...)
			drop(t, from, "d|1", 2)
			c.target(t, to)
			before := contents(t, to)
			report, err := operator.Copy(t.Context(), from, to, operator.CopyOptions{})
			if !errors.Is(err, operator.ErrDifferent) || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
			if report.CopiedRecords != 0 || !slices.Equal(before, contents(t, to)) {
				t.Errorf("the rejected copy changed the target: %+v, want no copied records and the same contents", report)
			}
		})
	}
}

// While a copy runs, the source changes IDs that are already copied. The copy follows deletions and
// replaced snapshots, and counts the appended records.
func TestCopyOfSourceInUse(t *testing.T) {
	t.Parallel()
	from, to := memory(), memory()
	for _, id := range []string{"a", "b", "c"} {
		record(t, from, id, "w", good(9)...)
		keep(t, from, id, 4, "earlier state")
	}
	inUse := func(p operator.CopyProgress) {
		if p.Stage != operator.Copying || p.Done != 27 {
			return // the records of "c" are not stored yet, "a" and "b" are copied
		}
		record(t, from, "a", "w", good(2)...)
		drop(t, from, "a", 9)
		drop(t, from, "b", 5) // deletes the records up to 5, as retention does
		keep(t, from, "b", 9, "later state")
		if err := from.Snapshots.Delete(t.Context(), "b", snapshot.Criteria{MaxSequenceNr: 4}); err != nil {
			t.Error(err)
		}
		record(t, from, "z", "w", good(3)...)
	}
	report, err := operator.Copy(t.Context(), from, to, operator.CopyOptions{Parallel: 1, Progress: inUse})
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("Copy of a source in use: problems %v, error %v; want none", report.Problems, err)
	}
	if report.GrownIDs == 1 && report.AddedRecords == 3 { // "z" was appended after the last check
		report, err = operator.Copy(t.Context(), from, to, operator.CopyOptions{})
	}
	if err != nil || report.IDs != 4 || report.GrownIDs != 0 || report.AddedRecords != 0 {
		t.Errorf("Copy = %+v, error %v; want 4 IDs and no added records", report, err)
	}
	same(t, from, to)
}

// Copy reports records that only the target has, although Copy compares the persistence ID several
// times.
func TestCopyReportsExtraContents(t *testing.T) {
	t.Parallel()
	from, to := memory(), memory()
	record(t, from, "a", "w", good(3)...)
	spoil := func(p operator.CopyProgress) {
		if p.Stage == operator.Copying {
			record(t, to, "a", "other", good(1)...)
			record(t, from, "a", "w", good(2)...)
		}
	}
	report, err := operator.Copy(t.Context(), from, to, operator.CopyOptions{Progress: spoil})
	if err != nil || len(report.Problems) != 1 || !strings.Contains(report.Problems[0].String(), "the copy differs") {
		t.Errorf("Copy = %+v, error %v; want the problem that the copy differs", report, err)
	}
}
