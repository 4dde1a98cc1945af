// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// fakeJournal is a journal with invalid contents.
type fakeJournal struct {
	journal.Journal // has the methods that the tests do not call

	records map[string][]journal.Event
	highest map[string]uint64 // highest number of an ID; defaults to the number of the last record
	after   map[string]uint64 // highest number that the second and all later calls return
	errs    map[string]error  // errors that Replay yields after the records
	listErr error
	asked   map[string]bool
}

func (j *fakeJournal) PersistenceIDs(_ context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, id := range slices.Sorted(maps.Keys(j.records)) {
			if id > after && !yield(id, nil) {
				return
			}
		}
		if j.listErr != nil {
			yield("", j.listErr)
		}
	}
}

func (j *fakeJournal) HighestSequenceNr(_ context.Context, id string) (uint64, error) {
	if n, ok := j.after[id]; ok && j.asked[id] {
		return n, nil
	}
	if j.asked == nil {
		j.asked = map[string]bool{}
	}
	j.asked[id] = true
	if n, ok := j.highest[id]; ok {
		return n, nil
	}
	if rs := j.records[id]; len(rs) > 0 {
		return rs[len(rs)-1].SequenceNr, nil
	}
	return 0, nil
}

func (j *fakeJournal) Replay(_ context.Context, id string, _, _ uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		for _, e := range j.records[id] {
			if !yield(e, nil) {
				return
			}
		}
		if err := j.errs[id]; err != nil {
			yield(journal.Event{}, err)
		}
	}
}

// fakeSnapshots is a snapshot store with invalid contents.
type fakeSnapshots struct {
	snapshot.Store // has the methods that the tests do not call

	stored  []snapshot.Snapshot // the highest number first
	loadErr map[uint64]error
	listErr error
}

func (s *fakeSnapshots) List(_ context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
	return func(yield func(snapshot.Metadata, error) bool) {
		for _, x := range s.stored {
			if x.ID == id && c.Matches(x.Metadata) && !yield(x.Metadata, nil) {
				return
			}
		}
		if s.listErr != nil {
			yield(snapshot.Metadata{}, s.listErr)
		}
	}
}

func (s *fakeSnapshots) Load(_ context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
	for _, x := range s.stored {
		if x.ID == id && c.Matches(x.Metadata) {
			return x, s.loadErr[x.SequenceNr]
		}
	}
	return snapshot.Snapshot{}, snapshot.ErrNotFound
}
