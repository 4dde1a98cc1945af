// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/journal"
)

const maxSeq = journal.MaxSequenceNr

// fixture is the environment of a check: its journal, and a context that ends at the time limit of
// the check.
type fixture struct {
	testing.TB
	cfg  Config
	j    journal.Journal
	ctx  context.Context //nolint:containedctx // as in testing.T, for the time of one check
	hung bool
}

func newFixture(tb testing.TB, cfg Config) *fixture {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), cfg.Timeout)
	f := &fixture{TB: tb, cfg: cfg, ctx: ctx, j: cfg.Open(tb)}
	tb.Cleanup(func() {
		cancel()
		if f.hung {
			return // Close would wait for the call that hangs
		}
		f.close()
	})
	return f
}

func (f *fixture) close() {
	f.Helper()
	if err := f.j.Close(); err != nil {
		f.Errorf("Close: %v", err)
	}
}

// within fails the check if do does not return in time. do runs on another goroutine and must not
// end the check.
func (f *fixture) within(subject string, do func()) {
	f.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-f.ctx.Done():
		f.hung = true
		f.Fatalf("%s does not return", subject)
	}
	if f.Failed() {
		f.FailNow()
	}
}

// together runs do n times concurrently and waits for all calls. Like within, it fails the check if
// a call does not return in time.
func (f *fixture) together(subject string, n int, do func(k int)) {
	f.Helper()
	f.within(subject, func() {
		var wg sync.WaitGroup
		for k := range n {
			wg.Go(func() { do(k) })
		}
		wg.Wait()
	})
}

// appendAll appends the writes. It returns one error per write, even if all writes are stored.
func (f *fixture) appendAll(ctx context.Context, writes ...journal.Write) []error {
	f.Helper()
	errs := f.j.Append(ctx, writes)
	switch {
	case errs == nil:
		return make([]error, len(writes))
	case len(errs) != len(writes):
		f.Errorf("Append of %d writes returned %d errors", len(writes), len(errs))
		return slices.Repeat([]error{errors.New("no such slot")}, len(writes))
	}
	return errs
}

func (f *fixture) append1(w journal.Write) error {
	f.Helper()
	return f.appendAll(f.ctx, w)[0]
}

// appended appends one write, and reports whether it is stored. It does not end the check.
func (f *fixture) appended(w journal.Write) bool {
	f.Helper()
	err := f.append1(w)
	if err != nil {
		f.Errorf("Append to %.40q expecting %d: %v", w.ID, w.Expect, err)
	}
	return err == nil
}

// store appends and ends the check unless all is stored.
func (f *fixture) store(writes ...journal.Write) {
	f.Helper()
	errs := f.appendAll(f.ctx, writes...)
	for i, w := range writes {
		if errs[i] != nil {
			f.Fatalf("Append, write %d of %d, to %.40q expecting %d: %v", i+1, len(writes), w.ID, w.Expect, errs[i])
		}
	}
}

// wantStored checks that the writes with these indexes are stored although other writes of the call
// are not.
func (f *fixture) wantStored(errs []error, indexes ...int) {
	f.Helper()
	for _, i := range indexes {
		if errs[i] != nil {
			f.Errorf("write %d, in a call with writes that cannot be stored: %v", i, errs[i])
		}
	}
}

// wantFailures checks that each method other than Append fails for id with an error that matches
// target.
func (f *fixture) wantFailures(id string, target error) {
	f.Helper()
	events, err := f.collect(f.j.Replay(f.ctx, id, 1, maxSeq), 0)
	if !errors.Is(err, target) || len(events) > 0 {
		f.Errorf("Replay of %.20q yields %d events and %v, want %v", id, len(events), err, target)
	}
	if n, err := f.j.HighestSequenceNr(f.ctx, id); !errors.Is(err, target) || n != 0 {
		f.Errorf("HighestSequenceNr of %.20q is %d and %v, want %v", id, n, err, target)
	}
	if err := f.j.DeleteTo(f.ctx, id, 1); !errors.Is(err, target) {
		f.Errorf("DeleteTo of %.20q: %v, want %v", id, err, target)
	}
}

// as returns an optional interface of the journal. The suite has checked before that the journal
// implements it.
func as[T any](f *fixture) T {
	f.Helper()
	v, ok := journal.As[T](f.j)
	if !ok {
		f.Fatalf("%T no longer implements %v", f.j, reflect.TypeFor[T]())
	}
	return v
}

// before yields the events of a replay and calls do before the n-th one.
func before(n int, seq iter.Seq2[journal.Event, error], do func()) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		k := 0
		for e, err := range seq {
			if k++; k == n {
				do()
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// collect iterates over a replay, to the end or to limit events if limit is positive. It checks the
// rules for all replays.
func (f *fixture) collect(seq iter.Seq2[journal.Event, error], limit int) (events []journal.Event, failed error) {
	f.Helper()
	for e, err := range seq {
		if failed != nil {
			f.Errorf("Replay continues after the error %v", failed)
			return events, failed
		}
		if failed = err; err != nil {
			continue
		}
		if n := len(events); n > 0 && e.SequenceNr <= events[n-1].SequenceNr {
			f.Errorf("Replay yields %d after %d", e.SequenceNr, events[n-1].SequenceNr)
			return events, nil
		}
		if events = append(events, e); len(events) == limit {
			break
		}
	}
	return events, failed
}

func (f *fixture) replay(id string, from, to uint64) []journal.Event {
	f.Helper()
	events, err := f.collect(f.j.Replay(f.ctx, id, from, to), 0)
	if err != nil {
		f.Errorf("Replay(%.40q, %d, %d): %v", id, from, to, err)
	}
	return events
}

func (f *fixture) highest(id string) uint64 {
	f.Helper()
	n, err := f.j.HighestSequenceNr(f.ctx, id)
	if err != nil {
		f.Errorf("HighestSequenceNr(%.40q): %v", id, err)
	}
	return n
}

func (f *fixture) deleteTo(id string, to uint64) {
	f.Helper()
	if err := f.j.DeleteTo(f.ctx, id, to); err != nil {
		f.Errorf("DeleteTo(%.40q, %d): %v", id, to, err)
	}
}

// attach returns another handle on the same contents, which is closed when the check ends.
func (f *fixture) attach() journal.Journal {
	f.Helper()
	other := f.cfg.Attach(f.TB, f.j)
	f.Cleanup(func() {
		if f.hung {
			return
		}
		if err := other.Close(); err != nil {
			f.Errorf("Close of the second handle: %v", err)
		}
	})
	return other
}

// write returns a write of n events after expect. Each payload identifies its event.
func write(id, writer string, expect uint64, n int) journal.Write {
	w := journal.Write{ID: id, Writer: writer, Expect: expect, Events: make([]journal.Event, n)}
	for i := range w.Events {
		seqNr := expect + 1 + uint64(i)
		w.Events[i] = journal.Event{
			SequenceNr: seqNr,
			Time:       at(seqNr),
			Manifest:   "journaltest/event",
			Payload:    fmt.Appendf(nil, "%.40s/%d by %s", id, seqNr, writer),
		}
	}
	return w
}

// fence returns a fence at the first sequence number of the write lost. Once the fence is stored,
// this write can no longer be stored.
func fence(lost journal.Write) journal.Write {
	seqNr := lost.Expect + 1
	return journal.Write{
		ID: lost.ID, Writer: lost.Writer, Expect: lost.Expect,
		Events: []journal.Event{{SequenceNr: seqNr, Time: at(seqNr)}},
	}
}

func at(seqNr uint64) time.Time {
	day := time.Date(2026, time.March, 1, 12, 30, 0, 123_456_000, time.UTC)
	return day.Add(time.Duration(seqNr%1_000_000) * time.Microsecond)
}

// eventsOf returns the events of some writes as a replay yields them.
func eventsOf(writes ...journal.Write) []journal.Event {
	var events []journal.Event
	for _, w := range writes {
		for _, e := range w.Events {
			e.Writer = w.Writer
			events = append(events, e)
		}
	}
	return events
}

// wantHistory checks everything that is stored for id: the highest number, and the events of the
// writes in this order. The first events are missing; deleted is their number.
func (f *fixture) wantHistory(id string, deleted int, writes ...journal.Write) {
	f.Helper()
	want := eventsOf(writes...)
	f.wantEvents(id, f.replay(id, 0, maxSeq), want[deleted:])
	f.wantHighest(id, uint64(len(want)))
}

func (f *fixture) wantHighest(id string, want uint64) {
	f.Helper()
	if got := f.highest(id); got != want {
		f.Errorf("HighestSequenceNr(%.40q) = %d, want %d", id, got, want)
	}
}

func (f *fixture) wantEvents(id string, got, want []journal.Event) {
	f.Helper()
	if !slices.Equal(numbers(got), numbers(want)) {
		f.Errorf("Replay of %.40q yields %s, want %s", id, brief(numbers(got)), brief(numbers(want)))
		return
	}
	for i := range want {
		if d := diff(&got[i], &want[i]); d != "" {
			f.Errorf("event %d of %.40q: %s", want[i].SequenceNr, id, d)
			return
		}
	}
}

func (f *fixture) wantConflict(err error, w journal.Write, highest uint64) {
	f.Helper()
	conflict, ok := errors.AsType[*journal.ConflictError](err)
	if !ok || !errors.Is(err, journal.ErrConflict) {
		f.Errorf("Append to %q expecting %d returned %v, want a *ConflictError", w.ID, w.Expect, err)
	} else if conflict.ID != w.ID || conflict.Expected != w.Expect || conflict.Highest != 0 && conflict.Highest != highest {
		f.Errorf("got conflict %+v, want {%s %d %d}; the last may also be 0", *conflict, w.ID, w.Expect, highest)
	}
}

func (f *fixture) wantRejected(err error, w journal.Write) {
	f.Helper()
	rejected, ok := errors.AsType[*journal.RejectedError](err)
	if !ok || !errors.Is(err, journal.ErrRejected) {
		f.Errorf("Append to %.40q returned %v, want a *RejectedError", w.ID, err)
	} else if rejected.ID != w.ID || rejected.Reason == nil {
		f.Errorf("got rejection of ID %.40q with reason %v, want %.40q and a reason", rejected.ID, rejected.Reason, w.ID)
	}
}

// diff describes the differences between two events, "" if none. Nil and empty slices are equal.
func diff(got, want *journal.Event) string {
	var d []string
	for _, c := range []struct {
		field     string
		same      bool
		got, want any
	}{
		{"SequenceNr", got.SequenceNr == want.SequenceNr, got.SequenceNr, want.SequenceNr},
		{"Time", got.Time.Equal(want.Time) && got.Time.Location() == time.UTC, got.Time, want.Time},
		{"Writer", got.Writer == want.Writer, got.Writer, want.Writer},
		{"Manifest", got.Manifest == want.Manifest, got.Manifest, want.Manifest},
		{"size of Payload", len(got.Payload) == len(want.Payload), len(got.Payload), len(want.Payload)},
		{"Payload", bytes.Equal(got.Payload, want.Payload), got.Payload[:min(60, len(got.Payload))], want.Payload[:min(60, len(want.Payload))]},
		{"Tags", slices.Equal(got.Tags, want.Tags), got.Tags, want.Tags},
		{"Metadata", bytes.Equal(got.Metadata, want.Metadata), got.Metadata, want.Metadata},
	} {
		if !c.same {
			d = append(d, fmt.Sprintf("%s is %.60q, want %.60q", c.field, fmt.Sprint(c.got), fmt.Sprint(c.want)))
		}
	}
	return strings.Join(d, ", ")
}

func numbers(events []journal.Event) []uint64 {
	out := make([]uint64, len(events))
	for i := range events {
		out[i] = events[i].SequenceNr
	}
	return out
}

// brief prints ascending numbers as ranges: "1-3, 5".
func brief(nrs []uint64) string {
	var out []string
	for i := 0; i < len(nrs); {
		k := i
		for k+1 < len(nrs) && nrs[k+1] == nrs[k]+1 {
			k++
		}
		if k == i {
			out = append(out, fmt.Sprint(nrs[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", nrs[i], nrs[k]))
		}
		if i = k + 1; len(out) == 20 {
			out = append(out, "...")
			break
		}
	}
	if out == nil {
		return "nothing"
	}
	return strings.Join(out, ", ")
}
