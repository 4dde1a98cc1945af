// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/refold-io/refold/journal"
)

func appendChecks() []check {
	return []check{
		{"AppendNothing", "Append of no writes returns no error", base, func(f *fixture) {
			for _, writes := range [][]journal.Write{nil, {}} {
				if errs := f.j.Append(f.ctx, writes); len(errs) != 0 {
					f.Errorf("Append of no writes returned %v", errs)
				}
			}
			f.wantHistory("nothing", 0)
		}},
		{"AppendWithoutEvents", "a write without events is rejected", base, func(f *fixture) {
			empty := journal.Write{ID: "empty", Writer: "w"}
			before, after := write("before", "w", 0, 1), write("after", "w", 0, 1)
			errs := f.appendAll(f.ctx, before, empty, after)
			f.wantRejected(errs[1], empty)
			f.wantStored(errs, 0, 2)
			f.wantHistory(empty.ID, 0)
			f.wantHistory(before.ID, 0, before)
			f.wantHistory(after.ID, 0, after)
		}},
		{"AppendNumbering", "a write is rejected unless its events are numbered from Expect+1 without a gap, up to MaxSequenceNr", base, func(f *fixture) {
			stored := write("numbered", "w", 0, 3)
			f.store(stored)
			for _, c := range []struct {
				name   string
				expect uint64
				nrs    []uint64
			}{
				{"too low", 3, []uint64{3}},
				{"too high", 3, []uint64{5}},
				{"zero", 3, []uint64{0}},
				{"with a gap", 3, []uint64{4, 6}},
				{"repeated", 3, []uint64{4, 4}},
				{"descending", 3, []uint64{5, 4}},
				{"above all numbers", maxSeq, []uint64{maxSeq + 1}},
				{"across the highest number", maxSeq - 1, []uint64{maxSeq, maxSeq + 1}},
				{"wrapping around", 1<<64 - 1, []uint64{0}},
			} {
				w := write(stored.ID, "w", c.expect, len(c.nrs))
				for i, nr := range c.nrs {
					w.Events[i].SequenceNr = nr
				}
				neighbour := write("beside "+c.name, "w", 0, 1)
				errs := f.appendAll(f.ctx, w, neighbour)
				if !errors.Is(errs[0], journal.ErrRejected) {
					f.Errorf("numbers %s: Append returned %v, want a rejection", c.name, errs[0])
				}
				f.wantStored(errs, 1)
			}
			f.wantHistory(stored.ID, 0, stored)
		}},
		{"AppendConflict", "a write that expects another highest number fails with a *ConflictError and is not stored", base, func(f *fixture) {
			const id = "conflict"
			first := write(id, "first", 0, 3)
			f.store(first)
			for _, expect := range []uint64{0, 1, 2, 4, 5, 1000, maxSeq - 1} {
				w := write(id, "second", expect, 1)
				f.wantConflict(f.append1(w), w, 3)
			}
			unborn := write("unborn", "second", 1, 1)
			f.wantConflict(f.append1(unborn), unborn, 0)
			f.wantHistory(unborn.ID, 0)
			f.wantHistory(id, 0, first)

			next := write(id, "second", 3, 1)
			f.store(next)
			f.wantHistory(id, 0, first, next)
		}},
		{"AppendIsolation", "a conflict or a rejection of one write does not affect the other writes", base, func(f *fixture) {
			old := write("conflicting", "w", 0, 1)
			f.store(old)
			conflicting, rejected := write("conflicting", "w", 0, 2), write("rejected", "w", 0, 2)
			rejected.Events[1].SequenceNr = 7
			good := []journal.Write{write("a", "w", 0, 1), write("b", "w", 0, 2), write("c", "w", 0, 1)}
			errs := f.appendAll(f.ctx, good[0], conflicting, good[1], rejected, good[2])
			f.wantConflict(errs[1], conflicting, 1)
			f.wantRejected(errs[3], rejected)
			f.wantStored(errs, 0, 2, 4)
			for _, w := range good {
				f.wantHistory(w.ID, 0, w)
			}
			f.wantHistory(rejected.ID, 0)
			f.wantHistory(old.ID, 0, old)
		}},
		{"AppendSkipped", "after a failed write later writes of its ID fail with ErrSkipped, even if they could be stored", base, func(f *fixture) {
			rejected := write("rejected", "w", 1, 1)
			rejected.Events[0].SequenceNr = 9
			good := []journal.Write{write("conflicting", "w", 0, 1), write("rejected", "w", 0, 1), write("good", "w", 0, 1), write("good", "w", 1, 1)}
			behind := []journal.Write{write("conflicting", "w", 1, 1), write("rejected", "w", 1, 1), write("conflicting", "w", 2, 1)}
			conflicting := write("conflicting", "w", 5, 1)
			errs := f.appendAll(f.ctx, good[0], conflicting, good[1], good[2], rejected, behind[0], behind[1], good[3], behind[2])
			f.wantConflict(errs[1], conflicting, 1)
			f.wantRejected(errs[4], rejected)
			for _, i := range []int{5, 6, 8} {
				if !errors.Is(errs[i], journal.ErrSkipped) {
					f.Errorf("write %d, after a failed write of its ID: got %v, want ErrSkipped", i, errs[i])
				}
			}
			f.wantStored(errs, 0, 2, 3, 7)
			f.wantHistory("conflicting", 0, good[0])
			f.wantHistory("rejected", 0, good[1])
			f.wantHistory("good", 0, good[2], good[3])
		}},
		{"AppendSeveralOfOneID", "several writes of one ID in a call are stored in order", base, func(f *fixture) {
			a := []journal.Write{write("a", "w", 0, 1), write("a", "w", 1, 3), write("a", "w", 4, 1), write("a", "w", 5, 2)}
			b := []journal.Write{write("b", "w", 0, 2), write("b", "w", 2, 1)}
			f.store(a[0], b[0], a[1], a[2], b[1], a[3])
			f.wantHistory("a", 0, a...)
			f.wantHistory("b", 0, b...)
		}},
		{"AppendManyIDs", "a call may have many writes of many IDs", base, func(f *fixture) {
			const ids, rounds = 300, 3
			all := make(map[string][]journal.Write)
			for r := range rounds {
				var batch []journal.Write
				for k := range ids {
					id := fmt.Sprintf("many|%d", (k*7+r)%ids)
					for n := range 2 {
						w := write(id, fmt.Sprint("w", r), uint64(3*r+n), n+1)
						batch = append(batch, w)
						all[id] = append(all[id], w)
					}
				}
				f.store(batch...)
			}
			for id, writes := range all {
				f.wantHistory(id, 0, writes...)
			}
		}},
		{"AppendUnitIsAtomic", "a write is stored as a whole or not at all", base, func(f *fixture) {
			first := write("unit", "w", 0, 2)
			f.store(first)
			spoilt := write("unit", "w", 2, 4)
			spoilt.Events[3].SequenceNr = 40
			f.wantRejected(f.append1(spoilt), spoilt)
			f.wantHistory("unit", 0, first)

			tooLarge := write("unit", "w", 2, 3)
			tooLarge.Events[2].Payload = make([]byte, f.cfg.MaxPayload+1)
			f.wantRejected(f.append1(tooLarge), tooLarge)
			f.wantHistory("unit", 0, first)

			overlapping := write("unit", "other", 1, 3) // its first number is taken, the others are free
			f.wantConflict(f.append1(overlapping), overlapping, 2)
			f.wantHistory("unit", 0, first)
		}},
		{"AppendRetainsNoSlices", "the slices of writes and of events belong to the caller again when Append returns", base, func(f *fixture) {
			const id = "retained"
			var stored []journal.Write
			writes := make([]journal.Write, 2)
			events := make([]journal.Event, 4)
			for n := uint64(0); n < 200; n += 4 {
				for i := range writes {
					w := write(id, "w", n+2*uint64(i), 2)
					stored = append(stored, w)
					writes[i] = w
					writes[i].Events = events[2*i : 2*i+2]
					copy(writes[i].Events, w.Events)
				}
				f.store(writes...)
				for i := range writes {
					writes[i] = journal.Write{ID: "overwritten", Expect: 77}
				}
				for i := range events {
					events[i] = journal.Event{SequenceNr: 99, Manifest: "overwritten", Payload: []byte("overwritten")}
				}
			}
			f.wantHistory(id, 0, stored...)
			f.wantHistory("overwritten", 0)
		}},
		{"AppendSharedPayload", "writes may share payloads, tags and metadata, and the journal does not change them", base, func(f *fixture) {
			shared := func(k int) journal.Write {
				w := write("shared", fmt.Sprint("w", k), 0, 3)
				w.ID = fmt.Sprint("shared|", k)
				for i := range w.Events {
					w.Events[i].Payload = []byte("the same for all")
					w.Events[i].Tags = []string{"shared"}
					w.Events[i].Metadata = w.Events[i].Payload[4:8]
				}
				return w
			}
			writes := []journal.Write{shared(0)}
			for k := range 20 {
				w := shared(k + 1)
				w.Events = writes[0].Events
				writes = append(writes, w)
			}
			f.store(writes...)
			for k, w := range writes {
				f.wantHistory(w.ID, 0, shared(k))
			}
			f.wantEvents("given", writes[0].Events, shared(0).Events)
		}},
	}
}

// writerChecks returns the checks in which several incarnations write to one ID.
func writerChecks() []check {
	return []check{
		{"TwoIncarnations", "a writer that has not read the events of another writer cannot append", base, func(f *fixture) {
			const id = "two incarnations"
			first := write(id, "old", 0, 3)
			f.store(first)
			taken := write(id, "new", 3, 1)
			f.store(taken)
			for range 3 {
				late := write(id, "old", 3, 2)
				f.wantConflict(f.append1(late), late, 4)
			}
			informed := write(id, "old", 4, 2)
			f.store(informed)
			late := write(id, "new", 4, 1)
			f.wantConflict(f.append1(late), late, 6)
			f.wantHistory(id, 0, first, taken, informed)
		}},
		{"OneWinner", "of several appends at one number exactly one is stored and the others conflict", base, func(f *fixture) {
			const id, writers, rounds = "one winner", 8, 25
			var history []journal.Write
			var next uint64
			for range rounds {
				writes := make([]journal.Write, writers)
				errs := make([]error, writers)
				f.together("one of several Appends at the same number", writers, func(k int) {
					writes[k] = write(id, fmt.Sprint("writer ", k), next, 1+k%2)
					errs[k] = f.append1(writes[k])
				})
				winner := f.winner(errs)
				history = append(history, writes[winner])
				for k, err := range errs {
					if k != winner && !errors.Is(err, journal.ErrConflict) {
						f.Fatalf("the loser of a race got %v, want ErrConflict", err)
					}
				}
				next += uint64(len(writes[winner].Events))
			}
			f.wantHistory(id, 0, history...)
		}},
		{"CrossedCalls", "two calls with the same IDs in opposite order do not deadlock, and one write per ID is stored", base, func(f *fixture) {
			const ids, rounds = 10, 20
			for r := range uint64(rounds) {
				var calls [2][]journal.Write
				var errs [2][]error
				for k := range ids {
					calls[0] = append(calls[0], write(fmt.Sprint("crossed|", k), "forwards", r, 1))
					calls[1] = append(calls[1], write(fmt.Sprint("crossed|", k), "backwards", r, 1))
				}
				slices.Reverse(calls[1])
				f.together("one of two crossed Appends", 2, func(k int) {
					errs[k] = f.appendAll(f.ctx, calls[k]...)
				})
				for k := range ids {
					a, b := errs[0][k], errs[1][ids-1-k]
					if won := f.winner([]error{a, b}); !errors.Is([]error{b, a}[won], journal.ErrConflict) {
						f.Fatalf("of two crossed appends one got %v and the other %v, want ErrConflict for one", a, b)
					}
				}
			}
			for k := range ids {
				id := fmt.Sprint("crossed|", k)
				if got := f.replay(id, 1, maxSeq); len(got) != rounds || !gapless(got) {
					f.Errorf("Replay of %q yields %s, want 1-%d", id, brief(numbers(got)), rounds)
				}
			}
		}},
		{"FenceIsStored", "a fence occupies a sequence number, and Replay yields it", base, func(f *fixture) {
			const id = "fenced"
			event := write(id, "w", 0, 1)
			lost := write(id, "w", 1, 3)
			first, second := fence(lost), fence(write(id, "w", 2, 1))
			after := write(id, "w", 3, 1)
			f.store(event)
			f.store(first)
			f.store(second)
			f.store(after)
			f.wantHistory(id, 0, event, first, second, after)
			for _, e := range f.replay(id, 1, maxSeq) {
				if want := e.SequenceNr == 2 || e.SequenceNr == 3; e.IsFence() != want {
					f.Errorf("IsFence of event %d is %t, want %t", e.SequenceNr, e.IsFence(), want)
				}
			}
			f.deleteTo(id, 2)
			f.wantHistory(id, 2, event, first, second, after)
			f.store(fence(write("only fenced", "w", 0, 1)))
			f.wantHighest("only fenced", 1)
		}},
		{"FenceBlocks", "after a fence, no write that expected its number is stored", base, func(f *fixture) {
			const id = "blocked"
			event, lost := write(id, "w", 0, 2), write(id, "w", 2, 2)
			f.store(event)
			blocker := fence(lost)
			f.store(blocker)
			f.wantConflict(f.append1(lost), lost, 3)
			f.wantConflict(f.append1(blocker), blocker, 3)
			retry := write(id, "w", 3, 2)
			f.store(retry)
			f.wantConflict(f.append1(lost), lost, 5)
			f.wantHistory(id, 0, event, blocker, retry)
		}},
	}
}

// winner returns the index of the stored append among several appends at one number.
func (f *fixture) winner(errs []error) int {
	f.Helper()
	winner := -1
	for k, err := range errs {
		if err == nil && winner >= 0 {
			f.Fatalf("two appends at the same number were stored")
		}
		if err == nil {
			winner = k
		}
	}
	if winner < 0 {
		f.Fatalf("of several appends at the same number none was stored: %v", errors.Join(errs...))
	}
	return winner
}
