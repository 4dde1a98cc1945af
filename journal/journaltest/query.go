// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/refold-io/refold/journal"
)

func (f *fixture) querier() journal.Querier {
	f.Helper()
	return as[journal.Querier](f)
}

// page reads one page and checks the rules for all pages.
func (f *fixture) page(q journal.Criteria, after journal.Offset) journal.Page {
	f.Helper()
	p, err := f.querier().Query(f.ctx, q, after)
	if err != nil {
		f.Fatalf("Query(%s, %q): %v", show(q), after, err)
	}
	f.wantPage(p, q, after)
	return p
}

// wantPage checks the rules for all pages.
func (f *fixture) wantPage(p journal.Page, q journal.Criteria, after journal.Offset) {
	f.Helper()
	fail := func(format string, args ...any) {
		f.Helper()
		f.Fatalf("Query(%s, %q): %s", show(q), after, fmt.Sprintf(format, args...))
	}
	if n := len(p.Events); n > pageRecords {
		fail("a page of %d events, at most %d are allowed", n, pageRecords)
	}
	size, last := 0, after
	for i, e := range p.Events {
		if size > pageBytes {
			fail("a page of %d events, of which the first %d have %d bytes, but only the last event may exceed %d bytes", len(p.Events), i, size, pageBytes)
		}
		size += len(e.Payload) + len(e.Metadata)
		switch {
		case e.IsFence():
			fail("event %d of %.40q is a fence", e.SequenceNr, e.ID)
		case !q.Matches(e.ID, e.Tags):
			fail("event %d of %.40q, slice %d, with the tags %.60q, does not match", e.SequenceNr, e.ID, journal.SliceOf(e.ID), e.Tags)
		case e.Offset.Compare(last) <= 0:
			fail("event %d of the page has the offset %q, want one after %q", i, e.Offset, last)
		}
		last = e.Offset
		f.wantOffset(last)
	}
	f.wantOffset(p.Next)
	if p.Next.Compare(last) < 0 {
		fail("Next is %q, want at least %q", p.Next, last)
	} else if p.More && p.Next == after {
		fail("More is set, but Next is still %q", p.Next)
	}
}

func (f *fixture) wantOffset(o journal.Offset) {
	f.Helper()
	if len(o) > 64 || strings.ContainsFunc(string(o), func(r rune) bool { return !unicode.IsPrint(r) }) {
		f.Errorf("the offset %q has more than 64 bytes or is not printable", o)
	}
}

// walk reads all pages to the end without waiting. It returns the events and the next offset.
func (f *fixture) walk(q journal.Criteria, after journal.Offset) (events []journal.Envelope, next journal.Offset) {
	f.Helper()
	for {
		p := f.page(q, after)
		events, after = append(events, p.Events...), p.Next
		if !p.More {
			return events, after
		}
	}
}

// read is like walk, but waits until it has read n events, because a stored event may become
// visible later.
func (f *fixture) read(q journal.Criteria, after journal.Offset, n int) (events []journal.Envelope, next journal.Offset) {
	f.Helper()
	patience, cancel := context.WithTimeout(f.ctx, f.cfg.Timeout/2)
	defer cancel()
	for next = after; ; {
		var more []journal.Envelope
		more, next = f.walk(q, next)
		if events = append(events, more...); len(events) >= n {
			return events, next
		}
		if err := f.await(patience, next); err != nil {
			f.Fatalf("Query(%s, %q) finds %s, want %d events, and Await ends with %v", show(q), after, list(events), n, err)
		}
	}
}

func (f *fixture) await(ctx context.Context, after journal.Offset) (err error) {
	f.Helper()
	q := f.querier()
	f.within("Await", func() { err = q.Await(ctx, after) })
	return err
}

func (f *fixture) end() journal.Offset {
	f.Helper()
	o, err := f.querier().End(f.ctx)
	if err != nil {
		f.Fatalf("End: %v", err)
	}
	f.wantOffset(o)
	return o
}

// wantRead reads all matching events and compares them with the events of the writes, in order for
// each ID. It returns them in the order of the journal.
func (f *fixture) wantRead(q journal.Criteria, after journal.Offset, writes ...journal.Write) []journal.Envelope {
	f.Helper()
	want, n := expected(q, writes)
	got, _ := f.read(q, after, n)
	f.wantAll(got, want)
	return got
}

// expected returns the matching events of writes for each ID, and their number.
func expected(q journal.Criteria, writes []journal.Write) (events map[string][]journal.Event, n int) {
	events = make(map[string][]journal.Event)
	for _, w := range writes {
		for _, e := range eventsOf(w) {
			if !e.IsFence() && q.Matches(w.ID, e.Tags) {
				events[w.ID] = append(events[w.ID], e)
				n++
			}
		}
	}
	return events, n
}

// wantOn reads from a position and compares the result with the matching events of seen, an earlier
// read from that position. It returns the events that it read.
func (f *fixture) wantOn(q journal.Criteria, after journal.Offset, seen []journal.Envelope) []journal.Envelope {
	f.Helper()
	want := matching(q, seen)
	got, _ := f.read(q, after, len(want))
	f.wantSame(fmt.Sprintf("Query(%s, %q)", show(q), after), got, want)
	return got
}

// wantAll checks that got contains exactly the events of want, in order for each ID.
func (f *fixture) wantAll(got []journal.Envelope, want map[string][]journal.Event) {
	f.Helper()
	at := make(map[string]int)
	for i := range got {
		e := &got[i]
		k := at[e.ID]
		if k >= len(want[e.ID]) {
			f.Errorf("the queries yield an unexpected or repeated event %d of %.40q", e.SequenceNr, e.ID)
			return
		}
		if d := diff(&e.Event, &want[e.ID][k]); d != "" {
			f.Errorf("event %d of %.40q, number %d in the order: %s", k+1, e.ID, i+1, d)
			return
		}
		at[e.ID]++
	}
	for id, events := range want {
		if at[id] != len(events) {
			f.Errorf("the queries yield %d events of %.40q, want %d", at[id], id, len(events))
		}
	}
}

// wantSame checks that got equals want, which is another read or a part of it.
func (f *fixture) wantSame(subject string, got, want []journal.Envelope) {
	f.Helper()
	for i := range min(len(got), len(want)) {
		g, w := &got[i], &want[i]
		if g.ID != w.ID || g.SequenceNr != w.SequenceNr || g.Offset != w.Offset {
			f.Errorf("%s: number %d is event %d of %.40q at %q, want event %d of %.40q at %q", subject, i+1, g.SequenceNr, g.ID, g.Offset, w.SequenceNr, w.ID, w.Offset)
			return
		}
		if d := diff(&g.Event, &w.Event); d != "" {
			f.Errorf("%s: event %d of %.40q: %s", subject, w.SequenceNr, w.ID, d)
			return
		}
	}
	if len(got) != len(want) {
		f.Errorf("%s: %d events, want %d", subject, len(got), len(want))
	}
}

func matching(q journal.Criteria, events []journal.Envelope) []journal.Envelope {
	return slices.DeleteFunc(slices.Clone(events), func(e journal.Envelope) bool { return !q.Matches(e.ID, e.Tags) })
}

func show(q journal.Criteria) string {
	if len(q.Types) == 0 && q.Tag == "" && q.Slices == (journal.Slices{}) {
		return "all"
	}
	return fmt.Sprintf("types %.40q, tag %.40q, slices %s", q.Types, q.Tag, q.Slices)
}

func list(events []journal.Envelope) string {
	var out []string
	for i, e := range events {
		if i == 10 {
			out = append(out, "...")
			break
		}
		out = append(out, fmt.Sprintf("%.40q/%d", e.ID, e.SequenceNr))
	}
	return fmt.Sprintf("%d events (%s)", len(events), strings.Join(out, ", "))
}

func queryPageChecks() []check {
	return []check{
		{"QueryPages", "a page has at most 1,000 events, and the pages together have all events", queries, func(f *fixture) {
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
			for _, q := range []journal.Criteria{{Tag: "all"}, {Tag: "half 1"}, {Types: []string{"pages"}}, {Slices: journal.Slices{First: journal.SliceOf("pages|0"), Count: 1}}} {
				f.wantOn(q, "", whole)
			}
			for _, n := range []int{1, 502, 999, 1000, 1001, 1504, 2000, total - 1} {
				f.wantOn(journal.Criteria{}, whole[n-1].Offset, whole[n:])
			}
		}},
		{"QueryLargePages", "only the last event of a page may exceed 1 MiB, and the pages together have all events", queries, func(f *fixture) {
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
			for _, q := range []journal.Criteria{{Tag: "large"}, {Tag: "small"}, {Types: []string{"large"}}} {
				f.wantOn(q, "", whole)
			}
			f.wantOn(journal.Criteria{}, whole[6].Offset, whole[7:])
		}},
		{"QueryResume", "a read after any offset, of an event or of a page, yields each later event once", queries, func(f *fixture) {
			// The check also resumes in the middle of a write, and at positions that another query
			// returned.
			writes := spread(4)
			f.store(writes...)
			whole := f.wantRead(journal.Criteria{}, "", writes...)
			for _, q := range []journal.Criteria{{}, {Tag: "every 2"}, {Types: []string{"other"}}, {Slices: journal.Slices{First: 512, Count: 512}}} {
				for i, e := range whole {
					f.wantOn(q, e.Offset, whole[i+1:])
					p := f.page(q, e.Offset)
					f.wantOn(q, p.Next, matching(q, whole[i+1:])[len(p.Events):])
					if f.Failed() {
						return
					}
				}
			}
		}},
		{"QueryEmptyPage", "a page without events leads to the events stored later", queries, func(f *fixture) {
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
					f.Errorf("Query after the end yields %s, and Next %q after %q", list(none), again, end)
				}
				want := matching(journal.Criteria{Tag: "t"}, got)
				tagged, other = f.read(journal.Criteria{Tag: "t"}, other, len(want))
				f.wantSame("a read after a page without events", tagged, want)
				next = end
			}
			if got, _ := f.read(journal.Criteria{}, last, 10); len(got) != 10 {
				f.Errorf("Query after Next of an empty journal yields %s, want 10 events", list(got))
			}
		}},
		{"QueryRareTag", "a query finds events that are far apart; the pages between them may be empty", queries, func(f *fixture) {
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
			f.wantRead(journal.Criteria{Types: []string{"rare"}}, "", writes...)
			f.wantRead(journal.Criteria{Slices: journal.Slices{First: journal.SliceOf(rare.ID), Count: 1}}, "", writes...)
			f.wantRead(journal.Criteria{Tag: "rare", Types: []string{"common"}}, "", writes...)
		}},
		{"QueryPageIsKept", "a page belongs to the caller and does not change after later reads and writes", queries, func(f *fixture) {
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
		}},
		{"QueryEnd", "the end is after all visible events and before all later ones", queries, func(f *fixture) {
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
					f.Errorf("the end moved back from %q to %q", last, end)
				}
				if len(got) > 0 && end.Compare(got[len(got)-1].Offset) < 0 {
					f.Errorf("the end is %q, but an event was seen at %q", end, got[len(got)-1].Offset)
				}
				if got, _ := f.walk(journal.Criteria{}, end); len(got) > 0 {
					f.Errorf("Query after the end yields %s", list(got))
				}
			}
		}},
	}
}

// wantMore reads the same events again without waiting: Page.More must lead to the last one.
func (f *fixture) wantMore(q journal.Criteria, seen []journal.Envelope) {
	f.Helper()
	got, _ := f.walk(q, "")
	f.wantSame(fmt.Sprintf("Query(%s) while More is set", show(q)), got, seen)
}
