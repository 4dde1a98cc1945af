// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

const (
	lateWriters = 24 // whose transactions commit in random order
	realWriters = 8
	liveReaders = 8
)

// TestReadersSkipNoEvent runs writers whose transactions commit in random order, and live readers
// that resume at random earlier positions. Each reader receives each event once, in the order of
// the offsets.
func TestReadersSkipNoEvent(t *testing.T) {
	t.Parallel()
	runs := 2
	if effort.Soak() {
		runs = 50
	}
	dsn := pgtest.DSN(t)
	for run := range runs {
		checkReaders(t, dsn, run)
		if t.Failed() {
			t.Fatalf("run %d", run)
		}
	}
}

func checkReaders(t *testing.T, dsn string, run int) {
	t.Helper()
	cfg := postgres.Config{Schema: fmt.Sprintf("run-%d", run), PollInterval: 20 * time.Millisecond}
	writing, reading := openStore(t, dsn, cfg), openStore(t, dsn, cfg)
	var writers, readers sync.WaitGroup
	var end atomic.Pointer[journal.Offset] // set when the writers have ended
	results := make([][]journal.Envelope, liveReaders)
	for i := range results {
		r := &lateReader{db: []*postgres.DB{writing, reading}[i%2], query: readerQuery(i), random: rand.New(rand.NewPCG(uint64(run), uint64(i))), end: &end}
		readers.Go(func() { results[i] = r.run(t) })
	}
	held := newCrowd(rand.New(rand.NewPCG(uint64(run), 1000)), lateWriters)
	for i := range lateWriters {
		writers.Go(func() {
			defer held.leave()
			lateWriter(t, writing, dsn, fmt.Sprintf("late|%d", i), rand.New(rand.NewPCG(uint64(run), 2000+uint64(i))), held)
		})
	}
	for i := range realWriters {
		writers.Go(func() { realWriter(t, writing.TestJournal(), fmt.Sprintf("real|%d", i)) })
	}
	writers.Wait()
	store(t, writing.TestJournal(), eventsOf("end", 0, 1))
	last, err := writing.TestJournal().End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	end.Store(&last)
	store(t, writing.TestJournal(), eventsOf("end", 1, 1)) // wakes the readers that wait at the end
	readers.Wait()
	want := recordedIn(t, dsn, cfg.Schema, last)
	for i, got := range results {
		for len(got) > 0 && got[len(got)-1].Offset.Compare(last) > 0 {
			got = got[:len(got)-1]
		}
		compareRecorded(t, fmt.Sprintf("run %d, reader %d", run, i), readerQuery(i), want, got)
	}
	if err := writing.Close(); err != nil {
		t.Error(err)
	}
	if err := reading.Close(); err != nil {
		t.Error(err)
	}
}

func readerQuery(i int) journal.Criteria {
	return []journal.Criteria{
		{}, {}, {}, {Slices: journal.Slices{First: 0, Count: 512}}, {Types: []string{"late"}}, {Tag: "odd"}, {Slices: journal.Slices{First: 900, Count: 124}}, {Types: []string{"real"}, Tag: "odd"},
	}[i]
}

// realWriter appends through the plugin.
func realWriter(t *testing.T, j *postgres.Journal, id string) {
	t.Helper()
	for n := uint64(0); n < 60; {
		write := eventsOf(id, n, 1+int(n%3), oddTag(n)...)
		if errs := j.Append(t.Context(), []journal.Write{write}); errs != nil {
			t.Error(errs)
			return
		}
		n += uint64(len(write.Events))
	}
}

func oddTag(n uint64) []string {
	if n%2 == 1 {
		return []string{"odd"}
	}
	return nil
}

// lateWriter appends in transactions that wait in the crowd before they commit. Some of them are
// rolled back.
func lateWriter(t *testing.T, db *postgres.DB, dsn, id string, random *rand.Rand, held *crowd) {
	t.Helper()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing depends on it
	for n := uint64(0); n < 20; {
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		write := eventsOf(id, n, 1+random.IntN(3), oddTag(n)...)
		if err = db.AppendIn(ctx, tx, write); err != nil {
			t.Error(err)
			return
		}
		held.wait()
		if random.IntN(8) == 0 {
			err = tx.Rollback(ctx)
		} else {
			err = tx.Commit(ctx)
			n += uint64(len(write.Events))
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// crowd releases waiting goroutines in random order when a random number of them is waiting.
type crowd struct {
	mu        sync.Mutex
	random    *rand.Rand
	members   int // goroutines that wait now or later
	threshold int
	inside    []chan struct{}
}

func newCrowd(random *rand.Rand, members int) *crowd {
	return &crowd{random: random, members: members, threshold: 1}
}

func (c *crowd) wait() {
	c.mu.Lock()
	me := make(chan struct{})
	c.inside = append(c.inside, me)
	c.release()
	c.mu.Unlock()
	<-me
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members--
	c.release()
}

func (c *crowd) release() {
	for len(c.inside) > 0 && len(c.inside) >= min(c.threshold, c.members) {
		i := c.random.IntN(len(c.inside))
		close(c.inside[i])
		c.inside[i] = c.inside[len(c.inside)-1]
		c.inside = c.inside[:len(c.inside)-1]
		c.threshold = 1 + c.random.IntN(max(c.members, 1))
	}
}

// lateReader reads continuously. Sometimes it returns to an earlier position, like a reader that
// crashed before it saved its offset.
type lateReader struct {
	db     *postgres.DB
	query  journal.Criteria
	random *rand.Rand
	end    *atomic.Pointer[journal.Offset]

	got   []journal.Envelope
	stops []stop
}

// stop is a position at which a reader can resume.
type stop struct {
	after journal.Offset
	got   int
}

func (r *lateReader) run(t *testing.T) []journal.Envelope {
	t.Helper()
	var at stop
	for !r.done(at) {
		page, err := r.db.TestJournal().Query(t.Context(), r.query, at.after)
		if err != nil {
			t.Errorf("query after %q: %v", at.after, err)
			return nil
		}
		for _, e := range page.Events {
			r.got = append(r.got, e)
			r.stops = append(r.stops, stop{e.Offset, len(r.got)})
		}
		at = stop{page.Next, len(r.got)}
		r.stops = append(r.stops, at)
		switch {
		case r.random.IntN(5) == 0:
			i := r.random.IntN(len(r.stops))
			at = r.stops[i]
			r.stops, r.got = r.stops[:i+1], r.got[:at.got]
		case !page.More && !r.done(at):
			if err := r.db.TestJournal().Await(t.Context(), at.after); err != nil {
				t.Errorf("await after %q: %v", at.after, err)
				return nil
			}
		}
	}
	return r.got
}

func (r *lateReader) done(at stop) bool {
	end := r.end.Load()
	return end != nil && at.after.Compare(*end) >= 0
}

// recordedIn returns the events in the table up to an offset.
func recordedIn(t *testing.T, dsn, schema string, last journal.Offset) []journal.Envelope {
	t.Helper()
	upTo, err := postgres.ParseOffset(last)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := connect(t, dsn).Query(t.Context(), `SELECT id, seq_nr, ordinal, tags FROM `+pgx.Identifier{schema, "events"}.Sanitize()+` WHERE ordinal <= $1 ORDER BY ordinal`, upTo)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r journal.Envelope, err error) {
		var ordinal int64
		err = row.Scan(&r.ID, &r.SequenceNr, &ordinal, &r.Tags)
		r.Offset = postgres.FormatOffset(ordinal)
		return r, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// compareRecorded fails the test unless a reader received exactly the matching events, in order.
func compareRecorded(t *testing.T, peer string, q journal.Criteria, stored, got []journal.Envelope) {
	t.Helper()
	var want []journal.Envelope
	for _, e := range stored {
		if q.Matches(e.ID, e.Tags) {
			want = append(want, e)
		}
	}
	for i := range min(len(want), len(got)) {
		if got[i].ID != want[i].ID || got[i].SequenceNr != want[i].SequenceNr || got[i].Offset != want[i].Offset {
			t.Errorf("%s: event %d is %s/%d at %s, want %s/%d at %s", peer, i, got[i].ID, got[i].SequenceNr, got[i].Offset, want[i].ID, want[i].SequenceNr, want[i].Offset)
			return
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d events, want %d", peer, len(got), len(want))
	}
}
