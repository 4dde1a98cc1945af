// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

// model is the expected contents of a database after a workload whose calls succeeded, or failed
// with an unknown outcome.
type model struct {
	streams   map[string]*history
	snapshots map[string]map[uint64]snapshotState
	// order is the result of the latest query for all events, with their offsets.
	order []journal.Envelope
}

type history struct {
	highest, deleted           uint64 // acknowledged
	maybeHighest, maybeDeleted uint64 // upper bounds, if calls with an unknown outcome were executed
}

// snapshotState is the known state of a snapshot.
type snapshotState int

const (
	unknown snapshotState = iota
	stored
	removed
)

func newModel() *model {
	return &model{streams: make(map[string]*history), snapshots: make(map[string]map[uint64]snapshotState)}
}

func (m *model) history(id string) *history {
	h := m.streams[id]
	if h == nil {
		h = new(history)
		m.streams[id] = h
	}
	return h
}

func (m *model) setSnapshot(id string, nr uint64, f snapshotState) {
	if m.snapshots[id] == nil {
		m.snapshots[id] = make(map[uint64]snapshotState)
	}
	m.snapshots[id][nr] = f
}

// payload returns the payload of event nr of an ID. Its size depends on nr. Some payloads span
// several blocks of a log.
func payload(id string, nr uint64) []byte {
	n := 20 + nr*97%200
	if nr%13 == 5 {
		n = 40 << 10
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + (uint64(i)*(nr|1)+uint64(i>>8))%255)
	}
	return append(b, fmt.Sprintf("%s-%d", id, nr)...)
}

func eventWrite(id string, expect uint64, n int) journal.Write {
	w := journal.Write{ID: id, Writer: "writer", Expect: expect}
	for i := range n {
		nr := expect + 1 + uint64(i)
		e := journal.Event{SequenceNr: nr, Time: time.UnixMicro(int64(nr)).UTC(), Manifest: "m", Payload: payload(id, nr)}
		if nr%3 == 0 {
			e.Tags = []string{"third", id}
		}
		if nr%7 == 4 {
			e.Manifest = "" // a fence
		}
		w.Events = append(w.Events, e)
	}
	return w
}

// step makes the next call of a workload and records its outcome. It returns the error of a call
// whose outcome is unknown.
func (m *model) step(ctx context.Context, db *leveldb.DB, rnd *rand.Rand) error {
	id := fmt.Sprintf("id-%d", rnd.IntN(6))
	h := m.history(id)
	switch k := rnd.IntN(12); {
	case k < 7:
		return m.append(ctx, db, rnd)
	case k == 7:
		return runCall(m.deletion(ctx, db, id, uint64(rnd.IntN(int(h.highest)+2))))
	case k == 8:
		return runCall(m.save(ctx, db, id, 1+uint64(rnd.IntN(5))))
	case k == 9:
		return runCall(m.removal(ctx, db, id, 1+uint64(rnd.IntN(5))))
	default:
		return m.together(ctx, db, rnd)
	}
}

// call is a call of a workload. The functions below return one, and a function that records its
// success. The model already allows for
// an unknown outcome.
type call func() error

func (m *model) deletion(ctx context.Context, db *leveldb.DB, id string, to uint64) (call, func()) {
	h := m.history(id)
	h.maybeDeleted = max(h.deleted, min(to, h.highest))
	return func() error { return db.TestJournal().DeleteTo(ctx, id, to) }, func() { h.deleted = h.maybeDeleted }
}

func (m *model) save(ctx context.Context, db *leveldb.DB, id string, nr uint64) (call, func()) {
	if m.snapshots[id][nr] != stored { // saving a stored snapshot again does not change it
		m.setSnapshot(id, nr, unknown)
	}
	return func() error { return db.TestSnapshots().Save(ctx, snapshotOf(id, nr)) }, func() { m.setSnapshot(id, nr, stored) }
}

func (m *model) removal(ctx context.Context, db *leveldb.DB, id string, nr uint64) (call, func()) {
	set := func(f snapshotState) {
		for n, was := range m.snapshots[id] {
			if n <= nr && was != removed {
				m.setSnapshot(id, n, f)
			}
		}
	}
	set(unknown)
	return func() error { return db.TestSnapshots().Delete(ctx, id, snapshot.UpTo(nr)) }, func() { set(removed) }
}

func runCall(c call, succeeded func()) error {
	err := c()
	if err == nil {
		succeeded()
	}
	return err
}

// together makes an append while a save and deletions wait for its batch.
func (m *model) together(ctx context.Context, db *leveldb.DB, rnd *rand.Rand) error {
	var (
		calls     []call
		succeeded []func()
	)
	add := func(c call, f func()) { calls, succeeded = append(calls, c), append(succeeded, f) }
	ids := rnd.Perm(6)
	id := func(i int) string { return fmt.Sprintf("id-%d", ids[i]) }
	add(m.deletion(ctx, db, id(0), uint64(rnd.IntN(int(m.history(id(0)).highest)+1))))
	add(m.deletion(ctx, db, id(1), uint64(rnd.IntN(int(m.history(id(1)).highest)+1))))
	add(m.save(ctx, db, id(0), 1+uint64(rnd.IntN(5))))
	add(m.removal(ctx, db, id(1), 1+uint64(rnd.IntN(5))))
	var (
		errs  = make([]error, len(calls))
		ended atomic.Int64
		wg    sync.WaitGroup
	)
	for i, c := range calls {
		wg.Go(func() {
			errs[i] = c()
			ended.Add(1)
		})
	}
	for db.Waiting()+int(ended.Load()) < len(calls) {
		runtime.Gosched()
	}
	err := m.append(ctx, db, rnd)
	wg.Wait()
	for i, f := range succeeded {
		if errs[i] == nil {
			f()
		}
	}
	return errors.Join(append(errs, err)...)
}

func snapshotOf(id string, nr uint64) snapshot.Snapshot {
	return snapshot.Snapshot{Metadata: snapshot.Metadata{ID: id, SequenceNr: nr, Time: time.UnixMicro(int64(nr)).UTC()}, Manifest: "s", Payload: payload(id, nr)}
}

func (m *model) append(ctx context.Context, db *leveldb.DB, rnd *rand.Rand) error {
	var writes []journal.Write
	next := make(map[string]uint64)
	for range 1 + rnd.IntN(3) {
		id := fmt.Sprintf("id-%d", rnd.IntN(6))
		if _, ok := next[id]; !ok {
			next[id] = m.history(id).highest
		}
		n := 1 + rnd.IntN(3)
		writes = append(writes, eventWrite(id, next[id], n))
		next[id] += uint64(n)
	}
	errs := db.TestJournal().Append(ctx, writes)
	var unknownOutcome error
	down := false
	for i, w := range writes {
		h := m.history(w.ID)
		to := w.Expect + uint64(len(w.Events))
		switch {
		case errs == nil || errs[i] == nil:
			h.highest, h.maybeHighest = to, to
		case !journal.NotStored(errs[i]):
			h.maybeHighest = to
			unknownOutcome = errs[i]
		case errors.Is(errs[i], journal.ErrNotSent) && (errors.Is(errs[i], errPower) || errors.Is(errs[i], errFault)):
			down = true
		case !down || !errors.Is(errs[i], journal.ErrSkipped):
			return fmt.Errorf("write %d of %q: %w", i, w.ID, errs[i]) // a conflict must not occur
		}
	}
	return unknownOutcome
}

// check compares a database with the model, and records the outcome of calls whose outcome was
// unknown.
func (m *model) check(tb testing.TB, db *leveldb.DB) {
	tb.Helper()
	j := db.TestJournal()
	live := make(map[string][]string) // the tags of each event
	for _, id := range slices.Sorted(maps.Keys(m.streams)) {
		h := m.streams[id]
		highest, err := j.HighestSequenceNr(tb.Context(), id)
		if err != nil {
			tb.Fatal(err)
		}
		if highest != h.highest && highest != h.maybeHighest {
			tb.Errorf("%s: the highest sequence number is %d, want %d or %d", id, highest, h.highest, h.maybeHighest)
		}
		first, last := uint64(0), uint64(0)
		for e, err := range j.Replay(tb.Context(), id, 1, journal.MaxSequenceNr) {
			if err != nil {
				tb.Fatal(err)
			}
			if first == 0 {
				first, last = e.SequenceNr, e.SequenceNr-1
			}
			if !e.IsFence() {
				live[fmt.Sprintf("%s %d", id, e.SequenceNr)] = e.Tags
			}
			if last++; e.SequenceNr != last || !bytes.Equal(e.Payload, payload(id, e.SequenceNr)) {
				tb.Errorf("%s: got event %d, want event %d; the payload has %d bytes", id, e.SequenceNr, last, len(e.Payload))
			}
		}
		deleted := highest
		if first != 0 {
			deleted = first - 1
		}
		if deleted != h.deleted && deleted != h.maybeDeleted || first != 0 && last != highest {
			tb.Errorf("%s: got events %d to %d, want all events after %d or after %d, up to %d", id, first, last, h.deleted, h.maybeDeleted, highest)
		}
		h.highest, h.maybeHighest, h.deleted, h.maybeDeleted = highest, highest, deleted, deleted
	}
	for id, err := range j.PersistenceIDs(tb.Context(), "") {
		if err != nil {
			tb.Fatal(err)
		}
		if h := m.streams[id]; h == nil || h.highest == 0 {
			tb.Errorf("PersistenceIDs lists %q, which has no events", id)
		}
	}
	m.checkOrder(tb, db, live)
	m.checkSnapshots(tb, db)
}

// checkOrder compares the results of queries with those of replays, and with earlier results.
func (m *model) checkOrder(tb testing.TB, db *leveldb.DB, live map[string][]string) {
	tb.Helper()
	if err := db.VerifyOrder(tb.Context()); err != nil {
		tb.Error(err)
	}
	now := readAll(tb, db.TestJournal(), journal.Criteria{})
	still := slices.DeleteFunc(m.order, func(e journal.Envelope) bool { _, ok := live[nameOf(e)]; return !ok })
	for i, e := range still {
		if i >= len(now) || nameOf(now[i]) != nameOf(e) || now[i].Offset != e.Offset {
			tb.Fatalf("event %d of the order was %s at %s, but the order is now %q", i, nameOf(e), e.Offset, names(now))
		}
	}
	m.order = now
	var tagged []string
	for _, e := range now {
		tags, ok := live[nameOf(e)]
		if !ok || !slices.Equal(tags, e.Tags) || !bytes.Equal(e.Payload, payload(e.ID, e.SequenceNr)) {
			tb.Errorf("a query returned %s with tags %q, a replay returned it: %t, with tags %q", nameOf(e), e.Tags, ok, tags)
		}
		if slices.Contains(tags, "third") {
			tagged = append(tagged, nameOf(e))
		}
	}
	if len(now) != len(live) {
		tb.Errorf("the order has %d events, want %d", len(now), len(live))
	}
	if got := names(readAll(tb, db.TestJournal(), journal.Criteria{Tag: "third"})); !slices.Equal(got, tagged) {
		tb.Errorf("events with the tag: %q, want %q", got, tagged)
	}
}

func (m *model) checkSnapshots(tb testing.TB, db *leveldb.DB) {
	tb.Helper()
	for id, all := range m.snapshots {
		for nr, f := range all {
			got, err := db.TestSnapshots().Load(tb.Context(), id, snapshot.At(nr))
			switch {
			case err == nil:
				if want := snapshotOf(id, nr); f == removed || !bytes.Equal(got.Payload, want.Payload) || got.Metadata != want.Metadata {
					tb.Errorf("%s: loaded snapshot %d as %+v with %d bytes, want %+v with %d bytes (removed: %t)", id, nr, got.Metadata, len(got.Payload), want.Metadata, len(want.Payload), f == removed)
				}
				m.setSnapshot(id, nr, stored)
			case errors.Is(err, snapshot.ErrNotFound):
				if f == stored {
					tb.Errorf("%s: snapshot %d is missing", id, nr)
				}
				m.setSnapshot(id, nr, removed)
			default:
				tb.Fatal(err)
			}
		}
	}
}
