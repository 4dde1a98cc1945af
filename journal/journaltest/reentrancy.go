// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"github.com/refold-io/refold/journal"
)

// reentrancyChecks use the journal in the body of a replay's loop, where it must
// hold nothing.
func reentrancyChecks() []check {
	return []check{
		{name: "AppendInReplay", rule: "the body of a replay may append to the same ID", run: appendInReplay},
		{name: "ReplayInReplay", rule: "the body of a replay may replay, to any depth", run: replayInReplay},
		{name: "OthersInReplay", rule: "the body of a replay may ask for the highest number, and delete", run: othersInReplay},
		{name: "PrefixWhileAppending", rule: "what was there when a replay began is yielded without a gap, whatever is appended meanwhile", run: prefixWhileAppending},
	}
}

func appendInReplay(f *fixture) {
	const id = "append in replay"
	f.store(write(id, "w", 0, 5))
	f.within("Append in the body of a Replay", func() {
		for e, err := range f.j.Replay(f.ctx, id, 1, 5) {
			if err != nil {
				f.Errorf("Replay: %v", err)
				return
			}
			for i, err := range f.appendAll(f.ctx, write(id, "w", 4+e.SequenceNr, 1), write("other", "w", e.SequenceNr-1, 1)) {
				if err != nil {
					f.Errorf("Append in a replay, write %d: %v", i, err)
				}
			}
		}
	})
	f.wantHighest(id, 10)
	f.wantHighest("other", 5)
}

// replayInReplay goes deeper than any pool of connections is wide.
func replayInReplay(f *fixture) {
	const id, depth = "replay in replay", 50
	want := write(id, "w", 0, depth)
	f.store(want)
	var down func(from uint64)
	down = func(from uint64) {
		n := from
		for e, err := range f.j.Replay(f.ctx, id, from, maxSeq) {
			if err != nil || e.SequenceNr != n {
				f.Errorf("Replay from %d yields %d and %v, want %d", from, e.SequenceNr, err, n)
				return
			}
			if n++; n == from+1 && from < depth {
				down(from + 1)
			}
		}
		if n != depth+1 {
			f.Errorf("Replay from %d ends before %d", from, n)
		}
	}
	f.within("Replay in the body of a Replay", func() { down(1) })
}

func othersInReplay(f *fixture) {
	const id = "others in replay"
	f.store(write(id, "w", 0, 5))
	f.within("a call in the body of a Replay", func() {
		for e, err := range f.j.Replay(f.ctx, id, 1, maxSeq) {
			if err != nil {
				f.Errorf("Replay: %v", err)
				return
			}
			f.wantHighest(id, 5)
			f.deleteTo(id, e.SequenceNr)
		}
	})
	f.wantHistory(id, 5, write(id, "w", 0, 5))
}

// prefixWhileAppending appends and deletes nothing but what is long read: the
// replay yields every event that was there when it began, and no gap.
func prefixWhileAppending(f *fixture) {
	const id, before = "prefix", 2*pageRecords + 500
	writes := []journal.Write{write(id, "w", 0, before)}
	f.store(writes...)
	highest, want := uint64(before), uint64(1)
	f.within("Append in the body of a Replay", func() {
		for e, err := range f.j.Replay(f.ctx, id, 1, maxSeq) {
			if err != nil {
				f.Errorf("Replay: %v", err)
				return
			}
			if e.SequenceNr != want || e.SequenceNr > highest {
				f.Errorf("Replay yields %d, want %d, with %d stored", e.SequenceNr, want, highest)
				return
			}
			want++
			if e.SequenceNr <= before && e.SequenceNr%50 == 0 {
				w := write(id, "w", highest, 3)
				writes = append(writes, w)
				highest += 3
				if err := f.append1(w); err != nil {
					f.Errorf("Append: %v", err)
					return
				}
			}
		}
	})
	if want <= before {
		f.Errorf("Replay ends after %d events, %d were there when it began", want-1, before)
	}
	f.wantHistory(id, 0, writes...)
}
