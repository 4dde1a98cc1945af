// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"fmt"

	"github.com/refold-io/refold/journal"
)

// queryPageChecks are about pages, and about going on behind them.
func queryPageChecks() []check {
	return []check{
		{name: "QueryPages", rule: "a page has at most 1,000 events, and the pages together all of them", needs: queries, run: queryPages},
		{name: "QueryLargePages", rule: "a page has at most 1 MiB and the event that exceeds it, and the pages together all events", needs: queries, run: queryLargePages},
		{name: "QueryResume", rule: "a read after any offset, of an event or of a page, yields what follows, each event once", needs: queries, run: queryResume},
		{name: "QueryEmptyPage", rule: "a page without events leads on to what is stored later", needs: queries, run: queryEmptyPage},
		{name: "QueryRareTag", rule: "events that are far apart are found, by pages that may be empty and that lead on", needs: queries, run: queryRareTag},
		{name: "QueryPageIsKept", rule: "a page belongs to the caller, whatever is read or stored later", needs: queries, run: queryPageIsKept},
		{name: "QueryEnd", rule: "the end lies behind all events that can be seen, and before those to come", needs: queries, run: queryEnd},
	}
}

func queryPages(f *fixture) {
	const total = 2*pageRecords + 503
	var writes []journal.Write
	for n := 0; n < total; n += 51 {
		id := n / 51 % 3
		w := write(fmt.Sprint("pages|", id), "w", uint64(n/153*51), min(51, total-n))
		for i := range w.Events {
			w.Events[i].Tags = []string{"all", fmt.Sprint("half ", i%2)}
		}
		writes = append(writes, w)
		f.store(w)
	}
	whole := f.wantRead(journal.Criteria{}, "", writes...)
	f.wantMore(journal.Criteria{}, whole)
	for _, q := range []journal.Criteria{{Tag: "all"}, {Tag: "half 1"}, {Type: "pages"}, {Slices: journal.Slices{First: journal.SliceOf("pages|0"), Count: 1}}} {
		f.wantOn(q, "", whole)
	}
	for _, n := range []int{1, 502, 503, 504, 999, 1000, 1001, 1503, 1504, 2000, total - 1} {
		f.wantOn(journal.Criteria{}, whole[n-1].Offset, whole[n:])
	}
}

// wantMore reads what was seen once more without waiting: Page.More has to lead
// to its end.
func (f *fixture) wantMore(q journal.Criteria, seen []journal.Envelope) {
	f.Helper()
	got, _ := f.walk(q, "")
	f.wantSame(fmt.Sprintf("Query(%s) as long as there is More", show(q)), got, seen)
}

// queryLargePages reads events that fill a page each, and some small ones between
// them.
func queryLargePages(f *fixture) {
	var writes []journal.Write
	for n := range uint64(10) {
		w := write(fmt.Sprint("large|", n%3), "w", n/3*2, 2)
		w.Events[0].Payload = pattern(min(pageBytes+1, f.cfg.MaxPayload)>>(n%4), byte(n))
		w.Events[0].Tags, w.Events[1].Tags = []string{"large"}, []string{"small"}
		writes = append(writes, w)
		f.store(w)
	}
	whole := f.wantRead(journal.Criteria{}, "", writes...)
	f.wantMore(journal.Criteria{}, whole)
	for _, q := range []journal.Criteria{{Tag: "large"}, {Tag: "small"}, {Type: "large"}} {
		f.wantOn(q, "", whole)
	}
	f.wantOn(journal.Criteria{}, whole[6].Offset, whole[7:])
}

// queryResume goes on behind each event, also in the middle of a write, and of a
// query behind what only another one has seen.
func queryResume(f *fixture) {
	writes := spread(4)
	f.store(writes...)
	whole := f.wantRead(journal.Criteria{}, "", writes...)
	for _, q := range []journal.Criteria{{}, {Tag: "every 2"}, {Type: "other"}, {Slices: journal.Slices{First: 512, Count: 512}}} {
		for i, e := range whole {
			f.wantOn(q, e.Offset, whole[i+1:])
			p := f.page(q, e.Offset)
			f.wantOn(q, p.Next, matching(q, whole[i+1:])[len(p.Events):])
			if f.Failed() {
				return
			}
		}
	}
}

func queryEmptyPage(f *fixture) {
	none, next := f.walk(journal.Criteria{}, "")
	tagged, other := f.walk(journal.Criteria{Tag: "t"}, f.end())
	if len(none)+len(tagged) > 0 {
		f.Fatalf("Query of an empty journal yields %s and %s", list(none), list(tagged))
	}
	last := next
	for n := range uint64(10) {
		w := write("empty page", "w", n, 1)
		if n%3 == 0 {
			w.Events[0].Tags = []string{"t"}
		}
		f.store(w)
		got, end := f.read(journal.Criteria{}, next, 1)
		f.wantAll(got, map[string][]journal.Event{w.ID: eventsOf(w)})
		if none, again := f.walk(journal.Criteria{}, end); len(none) > 0 || again.Compare(end) < 0 {
			f.Errorf("Query behind the end yields %s, and Next %q behind %q", list(none), again, end)
		}
		want := matching(journal.Criteria{Tag: "t"}, got)
		tagged, other = f.read(journal.Criteria{Tag: "t"}, other, len(want))
		f.wantSame("a read behind a page without events", tagged, want)
		next = end
	}
	if got, _ := f.read(journal.Criteria{}, last, 10); len(got) != 10 {
		f.Errorf("Query behind Next of an empty journal yields %s, want 10 events", list(got))
	}
}

// queryRareTag looks for 5 of 6,000 events.
func queryRareTag(f *fixture) {
	const batch, batches = 1000, 6
	var writes []journal.Write
	for n := range batches {
		w := write(fmt.Sprint("common|", n), "w", 0, batch)
		for i := range w.Events {
			w.Events[i].Tags = []string{"common"}
		}
		if n > 0 {
			w.Events[n*n].Tags = []string{"common", "rare"}
		}
		writes = append(writes, w)
		f.store(w)
	}
	rare := write("rare|1", "w", 0, 1)
	f.store(rare)
	writes = append(writes, rare)
	f.wantMore(journal.Criteria{Tag: "rare"}, f.wantRead(journal.Criteria{Tag: "rare"}, "", writes...))
	f.wantRead(journal.Criteria{Type: "rare"}, "", writes...)
	f.wantRead(journal.Criteria{Slices: journal.Slices{First: journal.SliceOf(rare.ID), Count: 1}}, "", writes...)
	f.wantRead(journal.Criteria{Tag: "rare", Type: "common"}, "", writes...)
}

func queryPageIsKept(f *fixture) {
	w := write("kept|1", "w", 0, 20)
	f.store(w)
	want := f.wantRead(journal.Criteria{}, "", w)
	first := f.page(journal.Criteria{}, "")
	f.store(write("kept|2", "w", 0, 20))
	rest, _ := f.read(journal.Criteria{}, first.Next, 20)
	f.deleteTo("kept|1", 10)
	f.walk(journal.Criteria{}, "")
	f.wantSame("a page, after others were read", first.Events, want[:len(first.Events)])
	clear(first.Events)
	f.wantOn(journal.Criteria{}, "", append(want[10:], rest...))
}

func queryEnd(f *fixture) {
	end := f.end()
	for n := range uint64(6) {
		w := write("end|1", "w", 3*n, 3)
		if n == 4 {
			w = fence(w)
		}
		if n == 5 {
			w = write("end|2", "w", 0, 3)
		}
		f.store(w)
		got := f.wantRead(journal.Criteria{}, end, w)
		last := end
		if end = f.end(); end.Compare(last) < 0 {
			f.Errorf("the end went back from %q to %q", last, end)
		}
		if len(got) > 0 && end.Compare(got[len(got)-1].Offset) < 0 {
			f.Errorf("the end is %q, but an event was seen at %q", end, got[len(got)-1].Offset)
		}
		if got, _ := f.walk(journal.Criteria{}, end); len(got) > 0 {
			f.Errorf("Query behind the end yields %s", list(got))
		}
	}
}
