// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/refold-io/refold/journal"
)

// writerChecks have several incarnations write to one ID.
func writerChecks() []check {
	return []check{
		{"TwoIncarnations", "a writer that has not read the events of the other cannot append", base, func(f *fixture) {
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
		{"OneWinner", "of several appends at one number exactly one is stored, the others are in conflict", base, func(f *fixture) {
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
		{"CrossedCalls", "calls with the same IDs in another order end, and each ID has one winner", base, func(f *fixture) {
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
		{"FenceIsStored", "an empty record takes a number and is yielded", base, func(f *fixture) {
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
		{"FenceBlocks", "after a fence no write that expected its number is stored", base, func(f *fixture) {
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

// winner returns which of several appends at one number was stored.
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
