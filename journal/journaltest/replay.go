// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"

	"github.com/refold-io/refold/journal"
)

// Limits on how far a replay may read ahead.
const (
	pageRecords = 1000
	pageBytes   = 1 << 20
)

func replayChecks() []check {
	return []check{
		{"ReplayLiteralBounds", "from 0 equals from 1; to 0 and an empty range yield nothing", base, func(f *fixture) {
			const id = "bounds"
			f.store(write(id, "w", 0, 3))
			for _, c := range []struct {
				from, to uint64
				want     []uint64
			}{
				{0, 0, nil},
				{0, 1, []uint64{1}},
				{0, 3, []uint64{1, 2, 3}},
				{1, 0, nil},
				{3, 3, []uint64{3}},
				{3, 4, []uint64{3}},
				{4, 4, nil},
				{4, maxSeq, nil},
				{maxSeq, maxSeq, nil},
				{maxSeq, 0, nil},
			} {
				if got := numbers(f.replay(id, c.from, c.to)); brief(got) != brief(c.want) {
					f.Errorf("Replay(%d, %d) yields %s, want %s", c.from, c.to, brief(got), brief(c.want))
				}
			}
		}},
		{"ReplayTwice", "a second loop over a replay starts from the beginning", base, func(f *fixture) {
			const id = "twice"
			seq := f.j.Replay(f.ctx, id, 1, maxSeq)
			var want []journal.Event
			for n := range 3 {
				w := write(id, "w", uint64(n), 1)
				f.store(w)
				want = append(want, eventsOf(w)...)
				got, err := f.collect(seq, 0)
				if err != nil {
					f.Fatalf("Replay: %v", err)
				}
				f.wantEvents(id, got, want)
			}
		}},
		{"ReplayPages", "a history of several pages is complete and in order for any bounds", base, func(f *fixture) {
			const id, total = "pages", 2*pageRecords + 503
			var writes []journal.Write
			for n := 0; n < total; {
				size := min(1+n%7*40, total-n)
				writes = append(writes, write(id, "w", uint64(n), size))
				n += size
			}
			f.store(writes...)
			f.wantHistory(id, 0, writes...)
			want := eventsOf(writes...)
			for _, c := range []struct{ from, to uint64 }{
				{pageRecords - 1, pageRecords + 1},
				{pageRecords, pageRecords},
				{pageRecords + 1, 2 * pageRecords},
				{2, pageRecords + 2},
				{1, 2 * pageRecords},
				{500, 2*pageRecords + 501},
			} {
				f.wantEvents(id, f.replay(id, c.from, c.to), want[c.from-1:c.to])
			}
		}},
		{"ReplayLargePages", "all events are yielded if each of them fills a page", base, func(f *fixture) {
			const id = "large pages"
			size := min(pageBytes, f.cfg.MaxPayload)
			var writes []journal.Write
			for n := range uint64(12) {
				w := write(id, "w", 2*n, 2)
				w.Events[0].Payload = pattern(size>>(n%4), byte(n))
				writes = append(writes, w)
				f.store(w)
			}
			f.wantHistory(id, 0, writes...)
			f.wantEvents(id, f.replay(id, 4, 11), eventsOf(writes...)[3:11])
		}},
		{"ReplayReadAhead", "at most a page is read ahead: 1,000 records or 1 MiB", base, func(f *fixture) {
			// At the first event, the loop body deletes all events. Only events that the replay had
			// read ahead may follow.
			follow := func(id string) int {
				n := 0
				for _, err := range f.j.Replay(f.ctx, id, 1, maxSeq) {
					if err != nil {
						break // an existing event is missing: a permitted result
					}
					if n++; n == 1 {
						f.deleteTo(id, maxSeq)
					}
				}
				return n - 1
			}
			small := write("many", "w", 0, 3*pageRecords)
			f.store(small)
			if n := follow(small.ID); n > pageRecords {
				f.Errorf("%d events were read ahead, at most %d may be", n, pageRecords)
			}
			const parts = 4 // events that fill a page
			size := min(pageBytes/parts, f.cfg.MaxPayload)
			allowed := pageBytes/size + 1 // a page may end with the event that fills it
			large := write("large", "w", 0, 3*allowed)
			for i := range large.Events {
				large.Events[i].Payload = pattern(size, byte(i))
				f.store(journal.Write{ID: large.ID, Expect: uint64(i), Events: large.Events[i : i+1]})
			}
			if n := follow(large.ID); n > allowed {
				f.Errorf("%d events of %d bytes were read ahead, at most %d may be", n, size, allowed)
			}
		}},
		{"ReplayCancelled", "a replay whose context ends yields all events or one final error", base, func(f *fixture) {
			const id, total = "cancelled", 3 * pageRecords
			f.store(write(id, "w", 0, total))
			for _, after := range []int{0, 1, pageRecords - 1, pageRecords, pageRecords + 1, total - 1} {
				ctx, cancel := context.WithCancel(f.ctx)
				if after == 0 {
					cancel()
				}
				events, err := f.collect(before(after, f.j.Replay(ctx, id, 1, maxSeq), cancel), 0)
				cancel()
				if err == nil && len(events) != total {
					f.Errorf("Replay of %d events, canceled after %d, ends after %d without an error", total, after, len(events))
				} else if err != nil && !errors.Is(err, context.Canceled) {
					f.Errorf("Replay, canceled after %d events, fails with %v, want context.Canceled", after, err)
				}
			}
		}},
		{"ReplayAbandoned", "a loop that is left early leaks no resource and blocks no other call", base, func(f *fixture) {
			const id, times = "abandoned", 1_000
			f.store(write(id, "w", 0, 3))
			before := runtime.NumGoroutine()
			f.within("one of 1,000 replays whose loop was left", func() {
				for range times {
					n := 0
					for _, err := range f.j.Replay(f.ctx, id, 1, maxSeq) {
						if err != nil {
							f.Errorf("Replay: %v", err)
							return
						}
						if n++; n == 2 {
							break
						}
					}
					if n != 2 {
						f.Errorf("Replay yields %d events, want at least 2", n)
						return
					}
				}
			})
			// Checks that run concurrently start goroutines too, but fewer than this limit.
			if n := runtime.NumGoroutine() - before; n > times/2 {
				f.Errorf("%d goroutines remain after %d abandoned replays", n, times)
			}
			f.within("a call after 1,000 abandoned replays", func() {
				f.appended(write(id, "w", 3, 1))
				next, stop := iter.Pull2(f.j.Replay(f.ctx, id, 1, maxSeq))
				if _, err, ok := next(); err != nil || !ok {
					f.Errorf("Replay ends with %v before its first event", err)
				}
				stop()
				f.deleteTo(id, 2)
				if got := brief(numbers(f.replay(id, 1, maxSeq))); got != "3-4" {
					f.Errorf("Replay yields %s, want 3-4", got)
				}
			})
		}},
	}
}

func pattern(size int, seed byte) []byte {
	out := make([]byte, size)
	x := uint32(seed) + 1
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = byte(x >> 24)
	}
	return out
}

const tckID = "tck|1"

// baseline stores events 1 to 5 of tckID, the last two as one unit.
func baseline(f *fixture) []journal.Write {
	f.Helper()
	writes := []journal.Write{write(tckID, "w", 0, 1), write(tckID, "w", 1, 1), write(tckID, "w", 2, 1), write(tckID, "w", 3, 2)}
	f.store(writes...)
	return writes
}

// tckChecks are the classic checks of a journal: the replay of five events with bounds, with a loop
// that is left early, and after a deletion.
func tckChecks() []check {
	const all = 0
	replays := []struct {
		name     string
		deleteTo uint64 // before the replay
		from, to uint64
		limit    int // the caller leaves the loop after so many
		want     []uint64
	}{
		{"TCK01Everything", 0, 1, maxSeq, all, []uint64{1, 2, 3, 4, 5}},
		{"TCK02LowerBound", 0, 3, maxSeq, all, []uint64{3, 4, 5}},
		{"TCK03UpperBound", 0, 1, 3, all, []uint64{1, 2, 3}},
		{"TCK04Count", 0, 1, maxSeq, 3, []uint64{1, 2, 3}},
		{"TCK05BothBounds", 0, 2, 3, all, []uint64{2, 3}},
		{"TCK06BoundsAndCount", 0, 2, 5, 2, []uint64{2, 3}},
		{"TCK07EqualBounds", 0, 2, 2, all, []uint64{2}},
		{"TCK08CountOne", 0, 2, 4, 1, []uint64{2}},
		{"TCK10InvertedBounds", 0, 3, 2, all, nil},
		{"TCK12Deleted", 3, 1, maxSeq, all, []uint64{4, 5}},
		{"TCK14AllDeleted", maxSeq, 0, maxSeq, all, nil},
		{"TCK15FromLastDeleted", 3, 3, maxSeq, all, []uint64{4, 5}},
		{"TCK16ToInsideDeleted", 3, 1, 2, all, nil},
		{"TCK17ToLastDeleted", 3, 1, 3, all, nil},
		{"TCK18FromFirstKept", 3, 4, maxSeq, all, []uint64{4, 5}},
		{"TCK22AcrossDeleted", 3, 1, 4, all, []uint64{4}},
	}
	var out []check
	for _, r := range replays {
		rule := fmt.Sprintf("of 5 events, after a deletion up to %d, a replay from %d to %d that is left after %d (0: never) yields %s",
			r.deleteTo, r.from, r.to, r.limit, brief(r.want))
		out = append(out, check{name: r.name, rule: rule, run: func(f *fixture) {
			stored := eventsOf(baseline(f)...)
			if r.deleteTo > 0 {
				f.deleteTo(tckID, r.deleteTo)
			}
			got, err := f.collect(f.j.Replay(f.ctx, tckID, r.from, r.to), r.limit)
			if err != nil {
				f.Fatalf("Replay: %v", err)
			}
			var want []journal.Event
			for _, nr := range r.want {
				want = append(want, stored[nr-1])
			}
			f.wantEvents(tckID, got, want)
			f.wantHighest(tckID, 5)
		}})
	}
	return append(out,
		check{name: "TCK11NeverWritten", rule: "an ID never written has no events and highest number 0", run: func(f *fixture) {
			baseline(f)
			f.wantHistory("tck|2", 0)
		}},
		check{name: "TCK13DeletedAfterReplay", rule: "a deletion after a replay affects the next replay", run: func(f *fixture) {
			writes := baseline(f)
			f.wantHistory(tckID, 0, writes...)
			f.deleteTo(tckID, 3)
			f.wantHistory(tckID, 3, writes...)
		}},
		check{name: "TCK20Payload", rule: "a payload is returned unchanged", run: func(f *fixture) {
			writes := baseline(f)
			w := write(tckID, "w", 5, 1)
			w.Events[0].Payload = []byte("\x00\x01\xff a payload of its own \x00")
			f.store(w)
			f.wantEvents(tckID, f.replay(tckID, 6, maxSeq), eventsOf(w))
			f.wantHistory(tckID, 0, slices.Concat(writes, []journal.Write{w})...)
		}},
		check{name: "TCK21Metadata", rule: "metadata is returned unchanged", run: func(f *fixture) {
			baseline(f)
			w := write(tckID, "w", 5, 1)
			w.Events[0].Metadata = []byte("\x00metadata\xff")
			f.store(w)
			f.wantEvents(tckID, f.replay(tckID, 6, 6), eventsOf(w))
			f.wantHighest(tckID, 6)
		}},
	)
}
