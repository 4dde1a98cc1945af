// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"fmt"
	"slices"

	"github.com/refold-io/refold/journal"
)

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
		check{name: "TCK13DeletedAfterReplay", rule: "a deletion shows after a replay too", run: func(f *fixture) {
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
