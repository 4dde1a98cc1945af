// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

// page reads one page.
func page(tb testing.TB, j journal.Querier, q journal.Criteria, after journal.Offset) journal.Page {
	tb.Helper()
	p, err := j.Query(tb.Context(), q, after)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// readAll returns all events that match a query.
func readAll(tb testing.TB, j journal.Querier, q journal.Criteria) []journal.Envelope {
	tb.Helper()
	return read(tb, j, q, "")
}

// read returns the events after an offset that match a query.
func read(tb testing.TB, j journal.Querier, q journal.Criteria, after journal.Offset) []journal.Envelope {
	tb.Helper()
	var all []journal.Envelope
	for {
		p := page(tb, j, q, after)
		if p.More && p.Next == after {
			tb.Fatalf("the page after %q does not advance", after)
		}
		all, after = append(all, p.Events...), p.Next
		if !p.More {
			return all
		}
	}
}

func names(events []journal.Envelope) []string {
	var all []string
	for _, e := range events {
		all = append(all, nameOf(e))
	}
	return all
}

func nameOf(e journal.Envelope) string { return fmt.Sprintf("%s %d", e.ID, e.SequenceNr) }

// found returns the IDs and numbers of the events that a query finds.
func found(t *testing.T, j journal.Querier, q journal.Criteria) []string {
	t.Helper()
	return names(read(t, j, q, ""))
}

// wantOrder checks all events in their order, and the index itself.
func wantOrder(t *testing.T, db *leveldb.DB, want ...string) {
	t.Helper()
	if got := found(t, db.TestJournal(), journal.Criteria{}); !slices.Equal(got, want) {
		t.Errorf("the order is %q, want %q", got, want)
	}
	if err := db.VerifyOrder(t.Context()); err != nil {
		t.Error(err)
	}
}

// tagged returns a write whose events have tags.
func tagged(id string, expect uint64, tags ...[]string) journal.Write {
	w := write(id, expect, len(tags))
	for i := range w.Events {
		w.Events[i].Tags = tags[i]
	}
	return w
}

func TestQuery(t *testing.T) {
	t.Parallel()
	db := mustOpen(t, t.TempDir(), leveldb.Config{})
	j := db.TestJournal()
	if end, err := j.End(t.Context()); err != nil || end != "" {
		t.Errorf("the end of an empty journal is %q, %v, want an empty offset", end, err)
	}
	wantOrder(t, db)
	red, both := []string{"red"}, []string{"red", "blue", "red", ""}
	mustAppend(t, j, tagged("a|1", 0, red, nil, both), write("b|1", 0, 2), tagged("a|1", 3, red))
	mustAppend(t, j, tagged("ab|1", 0, both, both), write("b|1", 2, 1), write("a", 0, 1))
	fence := write("a|1", 4, 3)
	fence.Events[1] = journal.Event{SequenceNr: 6}
	fence.Events[2].Tags = []string{"blue"}
	mustAppend(t, j, fence)
	mustAppend(t, j, journal.Write{ID: "b|1", Expect: 3, Events: []journal.Event{{SequenceNr: 4, Tags: red}}}) // a fence
	all := []string{
		"a|1 1", "a|1 2", "a|1 3", "b|1 1", "b|1 2", "a|1 4",
		"ab|1 1", "ab|1 2", "b|1 3", "a 1", "a|1 5", "a|1 7",
	}
	wantOrder(t, db, all...)
	slice := func(id string) journal.Slices { return journal.Slices{First: journal.SliceOf(id), Count: 1} }
	for _, c := range []struct {
		q    journal.Criteria
		want []string
	}{
		{journal.Criteria{Types: []string{"a"}}, []string{"a|1 1", "a|1 2", "a|1 3", "a|1 4", "a|1 5", "a|1 7"}},
		{journal.Criteria{Types: []string{"ab"}}, []string{"ab|1 1", "ab|1 2"}},
		{journal.Criteria{Types: []string{"c"}}, nil},
		{journal.Criteria{Tag: "red"}, []string{"a|1 1", "a|1 3", "a|1 4", "ab|1 1", "ab|1 2"}},
		{journal.Criteria{Tag: "blue"}, []string{"a|1 3", "ab|1 1", "ab|1 2", "a|1 7"}},
		{journal.Criteria{Tag: "re"}, nil},
		{journal.Criteria{Tag: "redd"}, nil},
		{journal.Criteria{Tag: "blue", Types: []string{"a"}}, []string{"a|1 3", "a|1 7"}},
		{journal.Criteria{Tag: "blue", Slices: slice("ab|1")}, []string{"ab|1 1", "ab|1 2"}},
		{journal.Criteria{Slices: slice("b|1")}, []string{"b|1 1", "b|1 2", "b|1 3"}},
		{journal.Criteria{Slices: slice("b|1"), Types: []string{"a"}}, nil},
	} {
		if got := found(t, j, c.q); !slices.Equal(got, c.want) {
			t.Errorf("the query %+v finds %q, want %q", c.q, got, c.want)
		}
		full := read(t, j, c.q, "")
		for i, e := range full {
			if got := names(read(t, j, c.q, e.Offset)); !slices.Equal(got, c.want[i+1:]) {
				t.Errorf("%+v after %q: %q, want %q", c.q, e.Offset, got, c.want[i+1:])
			}
		}
		end, err := j.End(t.Context())
		if p := page(t, j, c.q, ""); err != nil || p.More || p.Next != end {
			t.Errorf("%+v: the page ends at %q, want %q, %v", c.q, p.Next, end, err)
		}
		if got := read(t, j, c.q, end); got != nil {
			t.Errorf("%+v: found %q after the end, want nothing", c.q, names(got))
		}
	}
}

// TestQueryYieldsEvents compares each event of a query with the event of a replay.
func TestQueryYieldsEvents(t *testing.T) {
	t.Parallel()
	j := mustOpen(t, t.TempDir(), leveldb.Config{}).TestJournal()
	mustAppend(t, j, goldenEvents()...)
	for _, got := range read(t, j, journal.Criteria{}, "") {
		for e, err := range j.Replay(t.Context(), got.ID, got.SequenceNr, got.SequenceNr) {
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(e) != fmt.Sprint(got.Event) {
				t.Errorf("%+v, want %+v", got.Event, e)
			}
		}
	}
}

func TestQueryLimits(t *testing.T) {
	t.Parallel()
	db := mustOpen(t, t.TempDir(), leveldb.Config{NoSync: true})
	j := db.TestJournal()
	big := write("big|1", 0, 5)
	for i := range big.Events {
		big.Events[i].Payload = make([]byte, 400<<10)
	}
	big.Events[3].Payload = make([]byte, 3<<20)
	mustAppend(t, j, big)
	var sizes []int
	for after, more := journal.Offset(""), true; more; {
		p := page(t, j, journal.Criteria{}, after)
		sizes, after, more = append(sizes, len(p.Events)), p.Next, p.More
	}
	if !slices.Equal(sizes, []int{2, 1, 1, 1}) {
		t.Errorf("the pages have %v large events, want 2, 1, 1 and 1", sizes)
	}

	mustAppend(t, j, write("small|1", 0, 5000)) // more than one group holds
	p := page(t, j, journal.Criteria{Types: []string{"small"}}, "")
	if len(p.Events) != 1000 || !p.More || p.Next != p.Events[999].Offset {
		t.Errorf("a page has %d events and the next position %q, want 1,000 and the offset of the last event", len(p.Events), p.Next)
	}
	all := read(t, j, journal.Criteria{Types: []string{"small"}}, "")
	for i, e := range all {
		if e.SequenceNr != uint64(i)+1 {
			t.Fatalf("the event with index %d has the number %d, want %d", i, e.SequenceNr, i+1)
		}
	}
	if len(all) != 5000 {
		t.Errorf("found %d events, want 5000", len(all))
	}
	if err := db.VerifyOrder(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestQueryScanLimit skips many events that do not match.
func TestQueryScanLimit(t *testing.T) {
	t.Parallel()
	db := mustOpen(t, t.TempDir(), leveldb.Config{NoSync: true})
	j := db.TestJournal()
	const ids, rounds = 1050, 10
	for n := range uint64(rounds) {
		writes := make([]journal.Write, ids)
		for i := range writes {
			writes[i] = write(fmt.Sprintf("many|%d", i), n, 1)
		}
		mustAppend(t, j, writes...)
	}
	mustAppend(t, j, tagged("one|1", 0, []string{"rare"}))
	check := func(subject string, q journal.Criteria, want ...string) {
		t.Helper()
		pages := 0
		var all []journal.Envelope
		for after, more := journal.Offset(""), true; more; pages++ {
			p := page(t, j, q, after)
			if p.Next == after {
				t.Fatalf("%s: the page after %q does not advance", subject, after)
			}
			all, after, more = append(all, p.Events...), p.Next, p.More
		}
		if got := names(all); !slices.Equal(got, want) || pages < ids*rounds/leveldb.MaxScanned || pages > 2+ids*rounds/leveldb.MaxScanned {
			t.Errorf("%s: got %q in %d pages, want %q", subject, got, pages, want)
		}
	}
	check("other IDs", journal.Criteria{Types: []string{"one"}}, "one|1 1")
	for i := range ids {
		if err := j.DeleteTo(t.Context(), fmt.Sprintf("many|%d", i), rounds); err != nil {
			t.Fatal(err)
		}
	}
	check("deleted", journal.Criteria{}, "one|1 1")
	if p := page(t, j, journal.Criteria{Tag: "rare"}, ""); len(p.Events) != 1 || p.More {
		t.Errorf("a query by a rare tag: %d events, More %v, want 1 and false", len(p.Events), p.More)
	}
	before, err := j.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := page(t, j, journal.Criteria{}, ""); len(p.Events) != 1 || p.More || p.Next != before {
		t.Errorf("after the sweep of the deleted events: %d events, more %v, up to %q", len(p.Events), p.More, p.Next)
	}
	wantOrder(t, db, "one|1 1")
}

func TestQueryDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpen(t, dir, leveldb.Config{})
	j := db.TestJournal()
	red := []string{"red"}
	mustAppend(t, j, tagged("a", 0, red, red, red), tagged("b", 0, red))
	mustAppend(t, j, tagged("a", 3, red), tagged("c", 0, red))
	middle := read(t, j, journal.Criteria{}, "")[1].Offset
	for _, c := range []struct {
		id   string
		to   uint64
		want []string
	}{
		{"a", 2, []string{"a 3", "b 1", "a 4", "c 1"}},
		{"b", 9, []string{"a 3", "a 4", "c 1"}},
		{"a", 3, []string{"a 4", "c 1"}},
		{"c", 1, []string{"a 4"}},
		{"a", journal.MaxSequenceNr, nil},
	} {
		if err := j.DeleteTo(t.Context(), c.id, c.to); err != nil {
			t.Fatal(err)
		}
		wantOrder(t, db, c.want...)
		if got := names(read(t, j, journal.Criteria{}, middle)); !slices.Equal(got, c.want) {
			t.Errorf("found %q after the deleted events, want %q", got, c.want)
		}
		if got := found(t, j, journal.Criteria{Tag: "red"}); !slices.Equal(got, c.want) {
			t.Errorf("tagged: %q, want %q", got, c.want)
		}
	}
	end, err := j.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Positions are not reused, even if no event is left.
	if err := errors.Join(db.Compact(t.Context()), db.Close()); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, dir, leveldb.Config{})
	j = db.TestJournal()
	if again, err := j.End(t.Context()); err != nil || again != end {
		t.Errorf("the end is %q, want %q; %v", again, end, err)
	}
	mustAppend(t, j, write("a", 4, 1))
	if got := names(read(t, j, journal.Criteria{}, end)); !slices.Equal(got, []string{"a 5"}) {
		t.Errorf("found %q after %q, want a 5", got, end)
	}
	wantOrder(t, db, "a 5")
}

func TestOffsets(t *testing.T) {
	t.Parallel()
	j := mustOpen(t, t.TempDir(), leveldb.Config{}).TestJournal()
	mustAppend(t, j, write("a", 0, 3))
	mustAppend(t, j, write("a", 3, 1))
	var last journal.Offset
	for _, e := range read(t, j, journal.Criteria{}, "") {
		if e.Offset.Compare(last) <= 0 || len(e.Offset) > 64 {
			t.Errorf("the offset %q has %d bytes, want at most 64 and a position after %q", e.Offset, len(e.Offset), last)
		}
		last = e.Offset
	}
	for _, bad := range []journal.Offset{
		"x", "ldb1-", "ldb1-1", "ldb1-1-", "ldb1--0001", "ldb1-0-0001", "ldb1-1-0000", "ldb1-01-0001", "ldb1-1-1", "ldb1-1-00001",
		"ldb1-1-+001", "ldb1-1-0001-1", "ldb1-1-0001 ", "ldb2-1-0001", "1-0001", "mem-1", "ldb1-1-4097",
		"ldb1-72057594037927936-0001", "ldb1-18446744073709551616-0001", "ldb1-2-0002", "ldb1-3-0001", // after the end
	} {
		_, err := j.Query(t.Context(), journal.Criteria{}, bad)
		if !errors.Is(err, journal.ErrOffset) {
			t.Errorf("query after %q: %v, want ErrOffset", bad, err)
		}
		if err := j.Await(t.Context(), bad); !errors.Is(err, journal.ErrOffset) {
			t.Errorf("await after %q: %v, want ErrOffset", bad, err)
		}
	}
	if _, err := j.Query(t.Context(), journal.Criteria{Slices: journal.Slices{First: 5}}, ""); !errors.Is(err, journal.ErrInvalid) {
		t.Errorf("bad slices: %v, want ErrInvalid", err)
	}
}

func TestAwait(t *testing.T) {
	t.Parallel()
	db := mustOpen(t, t.TempDir(), leveldb.Config{})
	j := db.TestJournal()
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	await := func(ctx context.Context, after journal.Offset) <-chan error {
		done := make(chan error, 1)
		go func() { done <- j.Await(ctx, after) }()
		return done
	}
	first := await(t.Context(), "")
	mustAppend(t, j, write("a", 0, 1))
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if err := j.Await(t.Context(), ""); err != nil {
		t.Error(err)
	}
	end, err := j.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waiting := []<-chan error{await(t.Context(), end), await(t.Context(), end)}
	canceled := await(ctx, end)
	cancel(cause)
	if err = <-canceled; !errors.Is(err, cause) {
		t.Errorf("Await with a canceled context: %v, want the cause", err)
	}
	if errs := j.Append(t.Context(), []journal.Write{write("a", 7, 1)}); errs == nil {
		t.Error("Append with a wrong Expect returned nil, want a conflict")
	}
	mustAppend(t, j, journal.Write{ID: "a", Expect: 1, Events: []journal.Event{{SequenceNr: 2}}}) // a fence wakes no reader
	select {
	case err = <-waiting[0]:
		t.Errorf("Await returned without an event: %v", err)
	default:
	}
	mustAppend(t, j, write("b", 0, 1))
	for _, w := range waiting {
		if err = <-w; err != nil {
			t.Error(err)
		}
	}
	if end, err = j.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := await(t.Context(), end)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-last; !errors.Is(err, journal.ErrClosed) {
		t.Errorf("Await of a closed journal: %v, want ErrClosed", err)
	}
	if err := j.Await(t.Context(), ""); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("Await of a closed journal: %v, want ErrClosed", err)
	}
}

// TestAwaitUnknownOutcome wakes a reader for an event that was stored although its append failed.
func TestAwaitUnknownOutcome(t *testing.T) {
	t.Parallel()
	d := newDisk(faultNone, 0, 1)
	db, err := leveldb.OpenStorage(d, d.syncDir, small())
	if err != nil {
		t.Fatal(err)
	}
	j := db.TestJournal()
	done := make(chan error, 1)
	go func() { done <- j.Await(t.Context(), "") }()
	d.refuseNextSync()
	if errs := j.Append(t.Context(), []journal.Write{eventWrite("a", 0, 1)}); errs == nil || journal.NotStored(errs[0]) {
		t.Fatalf("append: %v, want an unknown outcome", errs)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	wantOrder(t, db, "a 1")
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestQueryWhileWriting reads continuously during appends and deletions. The reader receives each
// event of each ID once and in order.
func TestQueryWhileWriting(t *testing.T) {
	t.Parallel()
	db := mustOpen(t, t.TempDir(), leveldb.Config{NoSync: true, CachedIDs: 3})
	j := db.TestJournal()
	const rounds, ids = 150, 5
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range uint64(rounds) {
			for i := range ids {
				id := fmt.Sprintf("id|%d", i)
				if errs := j.Append(context.Background(), []journal.Write{write(id, n, 1), write("other|1", n*ids+uint64(i), 1)}); errs != nil {
					t.Error(errs)
				}
				if i == 0 {
					if err := j.DeleteTo(context.Background(), id, n+1); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}()
	last := make(map[string]uint64)
	after, seen := journal.Offset(""), 0
	for seen < rounds*(ids-1) {
		if err := j.Await(t.Context(), after); err != nil {
			t.Fatal(err)
		}
		p := page(t, j, journal.Criteria{Types: []string{"id"}}, after)
		after = p.Next
		for _, e := range p.Events {
			if e.ID != "id|0" {
				seen++
				if e.SequenceNr != last[e.ID]+1 {
					t.Fatalf("%s: event %d follows event %d, want ascending numbers", e.ID, e.SequenceNr, last[e.ID])
				}
			} else if e.SequenceNr <= last[e.ID] {
				t.Fatalf("%s: event %d follows event %d, want ascending numbers", e.ID, e.SequenceNr, last[e.ID])
			}
			last[e.ID] = e.SequenceNr
		}
	}
	<-done
	if err := db.VerifyOrder(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestReadOnlyQueries queries a database that is open for reading only.
func TestReadOnlyQueries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpen(t, dir, leveldb.Config{})
	mustAppend(t, db.TestJournal(), tagged("a|1", 0, []string{"red"}, nil), write("b|1", 0, 1))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, dir, leveldb.Config{ReadOnly: true})
	wantOrder(t, db, "a|1 1", "a|1 2", "b|1 1")
	if got := found(t, db.TestJournal(), journal.Criteria{Tag: "red"}); !slices.Equal(got, []string{"a|1 1"}) {
		t.Errorf("the tag finds %q, want a|1 1", got)
	}
	end, err := db.TestJournal().End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := db.TestJournal().Await(ctx, end); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Await: %v, want context.DeadlineExceeded", err)
	}
}
