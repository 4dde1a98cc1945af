// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/journal"
)

// queryStateChecks are about what was deleted, never stored, or stored by others
// and before.
func queryStateChecks() []check {
	return []check{
		{name: "QueryDeleted", rule: "deleted events are gone, the others and all offsets stay what they are", needs: queries, run: queryDeleted},
		{name: "QueryFences", rule: "fences are left out", needs: queries, run: queryFences},
		{name: "QueryOnlyStored", rule: "what was not stored is not found", needs: queries, run: queryOnlyStored},
		{name: "QueryReopen", rule: "events and offsets stay what they are when the journal is opened again", needs: queriesReopen, run: queryReopen},
		{name: "QueryAttached", rule: "all handles on one journal see the same order", needs: queriesAttach, run: queryAttached},
		{name: "QueryCancelled", rule: "a read whose context has ended yields its page or the cause", needs: queries, run: queryCancelled},
		{name: "QueryClosed", rule: "after Close all methods of a Querier fail with ErrClosed", needs: queries, run: queryClosed},
	}
}

func queryDeleted(f *fixture) {
	writes := spread(5)
	f.store(writes...)
	whole := f.wantRead(journal.Criteria{}, "", writes...)
	end := f.end()
	deleted := make(map[string]uint64)
	left := func(events []journal.Envelope) (out []journal.Envelope) {
		for _, e := range events {
			if e.SequenceNr > deleted[e.ID] {
				out = append(out, e)
			}
		}
		return out
	}
	for _, c := range []struct {
		id string
		to uint64
	}{{"spread|0", 3}, {"spread|4", 1}, {"other|1", maxSeq}, {"spread|0", 2}, {"spread|2", maxSeq}, {"other|3", 4}} {
		f.deleteTo(c.id, c.to)
		deleted[c.id] = max(deleted[c.id], c.to)
		for _, q := range []journal.Criteria{{}, {Tag: "all"}, {Tag: "id 1"}, {Type: "spread"}, {Slices: journal.Slices{Count: 512}}} {
			f.wantOn(q, "", left(whole))
		}
		for i, e := range whole {
			f.wantOn(journal.Criteria{}, e.Offset, left(whole[i+1:]))
		}
		if now := f.end(); now.Compare(end) < 0 {
			f.Errorf("a deletion sets the end back from %q to %q", end, now)
		}
		if f.Failed() {
			return
		}
	}
	for id := range deleted {
		f.deleteTo(id, maxSeq)
	}
	for k := range 7 {
		f.deleteTo(fmt.Sprintf("%s|%d", []string{"spread", "other"}[k%2], k), maxSeq)
	}
	if got, _ := f.walk(journal.Criteria{}, ""); len(got) > 0 {
		f.Errorf("after all was deleted, Query yields %s", list(got))
	}
	next := write("deleted|new", "w", 0, 2)
	f.store(next)
	f.wantRead(journal.Criteria{}, "", next)
	f.wantRead(journal.Criteria{}, end, next)
	f.wantRead(journal.Criteria{}, whole[0].Offset, next)
}

// queryFences has fences alone, between events, at both ends, and pages full of
// them.
func queryFences(f *fixture) {
	fences := func(id string, expect uint64, n int) journal.Write {
		w := write(id, "w", expect, n)
		for i := range w.Events {
			w.Events[i].Manifest, w.Events[i].Payload = "", nil
		}
		return w
	}
	writes := []journal.Write{
		fences("fenced|1", 0, 1), write("fenced|1", "w", 1, 2), fences("fenced|1", 3, 2), write("fenced|1", "w", 5, 1),
		fences("fenced|2", 0, 3),
		write("fenced|3", "w", 0, 1), fences("fenced|3", 1, pageRecords+1), write("fenced|3", "w", pageRecords+2, 1), fences("fenced|3", pageRecords+3, 1),
	}
	for _, w := range writes {
		f.store(w)
	}
	whole := f.wantRead(journal.Criteria{}, "", writes...)
	for i, e := range whole {
		f.wantOn(journal.Criteria{}, e.Offset, whole[i+1:])
	}
	for k := range 3 {
		slice := journal.Slices{First: journal.SliceOf(fmt.Sprint("fenced|", k+1)), Count: 1}
		f.wantRead(journal.Criteria{Type: "fenced", Slices: slice}, "", writes...)
	}
	_, next := f.walk(journal.Criteria{}, "")
	f.store(fences("fenced|2", 3, 1))
	after := write("fenced|2", "w", 4, 1)
	f.store(after)
	f.wantRead(journal.Criteria{}, next, after)
}

// queryOnlyStored has writes fail for many reasons between others.
func queryOnlyStored(f *fixture) {
	good, late := write("stored|1", "w", 0, 2), write("stored|1", "late", 0, 2)
	large, behind := write("stored|2", "w", 0, 2), write("stored|2", "w", 2, 1)
	large.Events[1].Payload = make([]byte, f.cfg.MaxPayload+1)
	early := write("stored|3", "w", 1, 1)
	mixed := write("stored|4", "w", 0, 1)
	for _, w := range []*journal.Write{&good, &late, &large, &behind, &early, &mixed} {
		w.Events[0].Tags = []string{"tag"}
	}
	f.appendAll(f.ctx, good, late, large, behind, early, mixed)
	ended, cancel := context.WithCancel(f.ctx)
	cancel()
	unsure := write("stored|5", "w", 0, 1)
	stored := []journal.Write{good, mixed}
	f.wantTruth(unsure, f.appendAll(ended, unsure)[0])
	if events := f.replay(unsure.ID, 1, 1); len(events) == 1 && !events[0].IsFence() {
		stored = append(stored, unsure)
	}
	last := write("stored|6", "w", 0, 1)
	f.store(last)
	stored = append(stored, last)
	f.wantRead(journal.Criteria{}, "", stored...)
	f.wantRead(journal.Criteria{Tag: "tag"}, "", stored...)
	f.wantRead(journal.Criteria{Type: "stored"}, "", stored...)
}

func queryReopen(f *fixture) {
	writes := spread(4)
	f.store(writes...)
	whole := f.wantRead(journal.Criteria{}, "", writes...)
	end := f.end()
	f.deleteTo("spread|0", 4)
	whole = func() (left []journal.Envelope) {
		for _, e := range whole {
			if e.ID != "spread|0" || e.SequenceNr > 4 {
				left = append(left, e)
			}
		}
		return left
	}()
	for round := range uint64(3) {
		f.reopen()
		for _, q := range []journal.Criteria{{}, {Tag: "all"}, {Type: "other"}, {Slices: journal.Slices{First: 512, Count: 512}}} {
			f.wantOn(q, "", whole)
		}
		i := len(whole) / 3
		f.wantOn(journal.Criteria{}, whole[i].Offset, whole[i+1:])
		w := write("reopened|1", "w", 2*round, 2)
		f.store(w)
		whole = append(whole, f.wantRead(journal.Criteria{}, end, w)...)
		end = f.end()
	}
}

// queryAttached stores through two handles in turns, and reads through both.
func queryAttached(f *fixture) {
	handles := []journal.Journal{f.j, f.attach()}
	writes := spread(3)
	for i, w := range writes {
		f.j = handles[i%2]
		f.store(w)
	}
	var reads [2][]journal.Envelope
	for k := range handles {
		f.j = handles[k]
		reads[k] = f.wantRead(journal.Criteria{}, "", writes...)
	}
	f.j = handles[0]
	f.wantSame("a read through the second handle", reads[1], reads[0])
	i := len(reads[1]) / 2
	f.wantOn(journal.Criteria{}, reads[1][i].Offset, reads[0][i+1:])
}

func queryCancelled(f *fixture) {
	writes := spread(2)
	f.store(writes...)
	want := f.wantRead(journal.Criteria{}, "", writes...)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(f.ctx)
	cancel(gone)
	q := f.querier()
	f.within("a query whose context has ended", func() {
		p, err := q.Query(ctx, journal.Criteria{}, "")
		switch {
		case err == nil:
			f.wantSame("a page of a read whose context has ended", p.Events, want[:min(len(p.Events), len(want))])
			if !p.More && len(p.Events) != len(want) {
				f.Errorf("a read whose context has ended just ends, with %s", list(p.Events))
			}
		case !errors.Is(err, gone):
			f.Errorf("Query whose context has ended: %v, want its cause", err)
		}
		if o, err := q.End(ctx); err != nil && !errors.Is(err, gone) || err == nil && o.Compare(want[len(want)-1].Offset) < 0 {
			f.Errorf("End whose context has ended: %q and %v, want its cause", o, err)
		}
	})
	f.wantRead(journal.Criteria{}, "", writes...)
}

func queryClosed(f *fixture) {
	f.store(write("closed", "w", 0, 1))
	q := f.querier()
	f.close()
	f.within("a query of a closed journal", func() {
		if p, err := q.Query(f.ctx, journal.Criteria{}, ""); !errors.Is(err, journal.ErrClosed) || len(p.Events) > 0 {
			f.Errorf("Query yields %s and %v, want ErrClosed", list(p.Events), err)
		}
		if o, err := q.End(f.ctx); !errors.Is(err, journal.ErrClosed) {
			f.Errorf("End is %q and %v, want ErrClosed", o, err)
		}
		if err := q.Await(f.ctx, ""); !errors.Is(err, journal.ErrClosed) {
			f.Errorf("Await: %v, want ErrClosed", err)
		}
	})
}
