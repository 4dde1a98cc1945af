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

// queryChecks are about journal.Querier.
func queryChecks() []check {
	return slices.Concat(queryMatchChecks(), queryPageChecks(), queryStateChecks(), queryWaitChecks(), queryReaderChecks())
}

func (f *fixture) querier() journal.Querier {
	f.Helper()
	q, ok := journal.As[journal.Querier](f.j)
	if !ok {
		f.Fatalf("%T does not implement journal.Querier any more", f.j)
	}
	return q
}

// page reads one page and checks what holds for all pages.
func (f *fixture) page(q journal.Criteria, after journal.Offset) journal.Page {
	f.Helper()
	p, err := f.querier().Query(f.ctx, q, after)
	if err != nil {
		f.Fatalf("Query(%s, %q): %v", show(q), after, err)
	}
	f.wantPage(p, q, after)
	return p
}

// wantPage checks what holds for all pages.
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
			fail("a page of %d events, of which the first %d have %d bytes, at most %d are allowed and the event that exceeds it", len(p.Events), i, size, pageBytes)
		}
		size += len(e.Payload) + len(e.Metadata)
		switch {
		case e.IsFence():
			fail("event %d of %.40q is a fence", e.SequenceNr, e.ID)
		case !q.Matches(e.ID, e.Tags):
			fail("event %d of %.40q, slice %d, with the tags %.60q, does not match", e.SequenceNr, e.ID, journal.SliceOf(e.ID), e.Tags)
		case e.Offset.Compare(last) <= 0:
			fail("event %d of the page is at %q, which does not lie behind %q", i, e.Offset, last)
		}
		last = e.Offset
		f.wantOffset(last)
	}
	f.wantOffset(p.Next)
	switch {
	case p.Next.Compare(last) < 0:
		fail("Next is %q, which lies before %q", p.Next, last)
	case p.More && p.Next == after:
		fail("there is More, but Next is still %q", p.Next)
	}
}

// wantOffset checks what an offset looks like.
func (f *fixture) wantOffset(o journal.Offset) {
	f.Helper()
	if len(o) > 64 || strings.ContainsFunc(string(o), func(r rune) bool { return !unicode.IsPrint(r) }) {
		f.Errorf("the offset %q has more than 64 bytes or is not printable", o)
	}
}

// walk reads from page to page to the end, without waiting for more. It returns
// the events and where to read on.
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

// read is walk, but it waits until it has n events at least: an event may be
// invisible for a moment.
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

// wantRead reads all that matches and checks that it is the events of the writes,
// those of each ID in their order. It returns them in the order of the journal.
func (f *fixture) wantRead(q journal.Criteria, after journal.Offset, writes ...journal.Write) []journal.Envelope {
	f.Helper()
	want, n := make(map[string][]journal.Event), 0
	for _, w := range writes {
		for _, e := range eventsOf(w) {
			if !e.IsFence() && q.Matches(w.ID, e.Tags) {
				want[w.ID] = append(want[w.ID], e)
				n++
			}
		}
	}
	got, _ := f.read(q, after, n)
	f.wantAll(got, want)
	return got
}

// wantOn reads on behind a position and checks that it is what matches among the
// events that were seen there before. It returns that.
func (f *fixture) wantOn(q journal.Criteria, after journal.Offset, seen []journal.Envelope) []journal.Envelope {
	f.Helper()
	want := matching(q, seen)
	got, _ := f.read(q, after, len(want))
	f.wantSame(fmt.Sprintf("Query(%s, %q)", show(q), after), got, want)
	return got
}

// wantAll checks that events are those of each ID, in their order.
func (f *fixture) wantAll(got []journal.Envelope, want map[string][]journal.Event) {
	f.Helper()
	at := make(map[string]int)
	for i := range got {
		e := &got[i]
		k := at[e.ID]
		if k >= len(want[e.ID]) {
			f.Errorf("the queries yield event %d of %.40q once too often, or it should not be there", e.SequenceNr, e.ID)
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

// wantSame checks that a read is the same as (a part of) another.
func (f *fixture) wantSame(what string, got, want []journal.Envelope) {
	f.Helper()
	for i := range min(len(got), len(want)) {
		g, w := &got[i], &want[i]
		if g.ID != w.ID || g.SequenceNr != w.SequenceNr || g.Offset != w.Offset {
			f.Errorf("%s: number %d is event %d of %.40q at %q, want event %d of %.40q at %q", what, i+1, g.SequenceNr, g.ID, g.Offset, w.SequenceNr, w.ID, w.Offset)
			return
		}
		if d := diff(&g.Event, &w.Event); d != "" {
			f.Errorf("%s: event %d of %.40q: %s", what, w.SequenceNr, w.ID, d)
			return
		}
	}
	if len(got) != len(want) {
		f.Errorf("%s: %d events, want %d", what, len(got), len(want))
	}
}

// matching returns those of a full read that match.
func matching(q journal.Criteria, events []journal.Envelope) []journal.Envelope {
	var out []journal.Envelope
	for _, e := range events {
		if q.Matches(e.ID, e.Tags) {
			out = append(out, e)
		}
	}
	return out
}

// show prints a query briefly.
func show(q journal.Criteria) string {
	if q == (journal.Criteria{}) {
		return "all"
	}
	return fmt.Sprintf("type %.40q, tag %.40q, slices %s", q.Type, q.Tag, q.Slices)
}

// list prints events briefly.
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
