// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// sharedTarget is a target to which another program also writes.
type sharedTarget struct {
	journal.Journal
	done atomic.Bool
}

func (m *sharedTarget) Unwrap() journal.Journal { return m.Journal }

func (m *sharedTarget) Append(ctx context.Context, writes []journal.Write) []error {
	if !m.done.Swap(true) {
		w := writes[0]
		w.Writer, w.Events = "other", w.Events[:1]
		m.Journal.Append(ctx, []journal.Write{w})
	}
	return m.Journal.Append(ctx, writes)
}

func TestCopyToTargetInUse(t *testing.T) {
	t.Parallel()
	from, to := memory(), memory()
	record(t, from, "a|1", "w", good(5)...)
	_, err := operator.Copy(t.Context(), from, &operator.Source{Journal: &sharedTarget{Journal: to.Journal}, Snapshots: to.Snapshots}, operator.CopyOptions{})
	if !errors.Is(err, journal.ErrConflict) || !strings.Contains(err.Error(), "target: another program writes to it") {
		t.Errorf("first copy: error %v, want ErrConflict", err)
	}
	if _, err = operator.Copy(t.Context(), from, to, operator.CopyOptions{}); !errors.Is(err, operator.ErrDifferent) {
		t.Errorf("next copy: error %v, want ErrDifferent", err)
	}
}

// late is a target in which writes of a killed copy are stored during the next copy.
type late struct {
	journal.Journal
	done atomic.Bool
}

func (l *late) Unwrap() journal.Journal { return l.Journal }

func (l *late) Append(ctx context.Context, writes []journal.Write) []error {
	if !l.done.Swap(true) {
		part := slices.Clone(writes)
		part[0].Events = part[0].Events[:1]
		for _, err := range l.Journal.Append(ctx, part) {
			if err != nil {
				return []error{err}
			}
		}
	}
	return l.Journal.Append(ctx, writes)
}

func TestCopyAfterLateWrites(t *testing.T) {
	t.Parallel()
	from, to := memory(), memory()
	for i := range 20 {
		record(t, from, fmt.Sprintf("a|%d", i), "w", good(5)...)
		drop(t, from, fmt.Sprintf("a|%d", i), 2)
	}
	var last operator.CopyProgress
	report, err := operator.Copy(t.Context(), from, &operator.Source{Journal: &late{Journal: to.Journal}, Snapshots: to.Snapshots}, operator.CopyOptions{
		Parallel: 1,
		Progress: func(p operator.CopyProgress) {
			if p.Stage == operator.Copying {
				last = p
			}
		},
	})
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("Copy = %+v, error %v; want no problems", report, err)
	}
	if last.Done != last.Total {
		t.Errorf("the progress ended at %d of %d, want equal numbers", last.Done, last.Total)
	}
	copied(t, from, to)
}

// lossy is a target that loses metadata without an error.
type lossy struct{ journal.Journal }

func (f lossy) Unwrap() journal.Journal { return f.Journal }

func (f lossy) Append(ctx context.Context, writes []journal.Write) []error {
	for _, w := range writes {
		for i := range w.Events {
			w.Events[i].Metadata = nil
		}
	}
	return f.Journal.Append(ctx, writes)
}

func TestCopyDetectsLostRecords(t *testing.T) {
	t.Parallel()
	from, to := memory(), memory()
	record(t, from, "a|1", "w", journal.Event{Manifest: "noted", Metadata: []byte("x")})
	record(t, from, "a|2", "w", journal.Event{Manifest: "noted"})
	report, err := operator.Copy(t.Context(), from, &operator.Source{Journal: lossy{to.Journal}, Snapshots: to.Snapshots}, operator.CopyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) != 1 || report.Problems[0].ID != "a|1" || !strings.Contains(report.Problems[0].Error(), "the copy differs") {
		t.Errorf("got the problems %v, want a different copy of a|1", report.Problems)
	}
}

func TestCopyOfDamagedSource(t *testing.T) {
	t.Parallel()
	records := good(6)
	for name, c := range map[string]struct {
		source *fakeJournal
		held   int // number of records in the target
		want   error
	}{
		"gap":            {&fakeJournal{records: map[string][]journal.Event{"a|1": append(good(2), records[4:]...)}}, 0, journal.ErrHistoryGap},
		"gap after held": {&fakeJournal{records: map[string][]journal.Event{"a|1": append(good(2), records[4:]...)}}, 2, journal.ErrHistoryGap},
		"end missing":    {&fakeJournal{records: map[string][]journal.Event{"a|1": good(2)}, highest: map[string]uint64{"a|1": 4}}, 0, journal.ErrHistoryGap},
		"unreadable":     {&fakeJournal{records: map[string][]journal.Event{"a|1": good(2)}, errs: map[string]error{"a|1": errDisk}}, 0, errDisk},
		"unlisted":       {&fakeJournal{records: map[string][]journal.Event{"a|1": good(2)}, listErr: errDisk}, 0, errDisk},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := memory()
			if c.held > 0 {
				record(t, to, "a|1", "w", good(uint64(c.held))...)
			}
			_, err := operator.Copy(t.Context(), &operator.Source{Journal: ranged{c.source}}, to, operator.CopyOptions{})
			if !errors.Is(err, c.want) {
				t.Errorf("Copy returned the error %v, want %v", err, c.want)
			}
		})
	}
}

// ranged is a fakeJournal whose replays respect their bounds.
type ranged struct{ *fakeJournal }

func (r ranged) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		for e, err := range r.fakeJournal.Replay(ctx, id, from, to) {
			if (err != nil || e.SequenceNr >= from && e.SequenceNr <= to) && !yield(e, err) {
				return
			}
		}
	}
}

func (r ranged) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	return (&fakeJournal{records: r.records, highest: r.highest}).HighestSequenceNr(ctx, id)
}

// Copy skips an unreadable snapshot and reports it.
func TestCopyOfDamagedSnapshots(t *testing.T) {
	t.Parallel()
	from, to := memory(), memory()
	record(t, from, "a|1", "w", good(3)...)
	from.Snapshots = &fakeSnapshots{
		stored:  []snapshot.Snapshot{saved(3, "state", []byte{0x80}), saved(2, "state", []byte{0x80})},
		loadErr: map[uint64]error{3: &snapshot.CorruptError{File: "3.snap", Reason: errDisk}},
	}
	report, err := operator.Copy(t.Context(), from, to, operator.CopyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) != 1 || report.Problems[0].SequenceNr != 3 || !errors.Is(report.Problems[0], snapshot.ErrCorrupt) || report.CopiedSnapshots != 1 {
		t.Errorf("report %+v, want one copied snapshot and a problem with snapshot 3", report)
	}
	from.Snapshots = &fakeSnapshots{listErr: errDisk}
	if _, err = operator.Copy(t.Context(), from, to, operator.CopyOptions{}); !errors.Is(err, errDisk) {
		t.Errorf("Copy with unreadable list of snapshots: error %v, want errDisk", err)
	}
	to.Snapshots = nil
	if _, err = operator.Copy(t.Context(), from, to, operator.CopyOptions{}); err == nil {
		t.Error("Copy without a snapshot store in the target returned no error")
	}
}

func TestCopyCanceled(t *testing.T) {
	t.Parallel()
	from, to := memory(), memory()
	fill(t, from, 50, 5)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := operator.Copy(ctx, from, to, operator.CopyOptions{Progress: func(p operator.CopyProgress) {
		if p.Stage == operator.Copying && p.Done > 100 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Copy returned the error %v, want context.Canceled", err)
	}
	copied(t, from, to)
}

// Copy reports its progress for each stage. The last report of a stage has the total.
func TestCopyProgress(t *testing.T) {
	t.Parallel()
	from, to := memory(), memory()
	fill(t, from, 50, 6)
	var last [3]operator.CopyProgress
	report, err := operator.Copy(t.Context(), from, to, operator.CopyOptions{Parallel: 1, Progress: func(p operator.CopyProgress) {
		if p.Done <= last[p.Stage].Done {
			t.Errorf("the progress of stage %d went from %d to %d, want an increase", p.Stage, last[p.Stage].Done, p.Done)
		}
		last[p.Stage] = p
	}})
	if err != nil {
		t.Fatal(err)
	}
	if last[operator.Comparing].Done != 50 || last[operator.Copying].Done != last[operator.Copying].Total || last[operator.Copying].Total <= report.CopiedRecords ||
		last[operator.Checking].Done != 50 || last[operator.Checking].Total != 50 {
		t.Errorf("last progress of each stage: %+v, want 50 IDs compared and checked, and all records copied", last)
	}
}

// The next copy copies records that the source has appended during the copy.
func TestCopyOfGrowingSource(t *testing.T) {
	t.Parallel()
	from, to := memory(), memory()
	for i := range 30 {
		record(t, from, fmt.Sprintf("a|%d", i), "w", good(3)...)
	}
	var once atomic.Bool
	report, err := operator.Copy(t.Context(), from, to, operator.CopyOptions{Progress: func(p operator.CopyProgress) {
		if p.Stage == operator.Copying && p.Done == p.Total && !once.Swap(true) {
			record(t, from, "a|3", "w", good(1)...)
			record(t, from, "b|1", "w", good(1)...)
			keep(t, from, "a|3", 4, "x")
		}
	}})
	if err != nil || len(report.Problems) > 0 || report.GrownIDs == 0 {
		t.Errorf("Copy = %+v, error %v, want grown IDs and no problems", report, err)
	}
	copied(t, from, to)
}
