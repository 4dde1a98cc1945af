// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/refold-io/refold/journal"
)

func concurrencyChecks() []check {
	return []check{
		{"VisibleOnReturn", "stored events are visible to the next Replay and HighestSequenceNr", base, func(f *fixture) {
			const writers, each = 4, 25
			f.together("Append, Replay or HighestSequenceNr", writers, func(k int) {
				id := fmt.Sprint("visible|", k)
				for n := range uint64(each) {
					w := write(id, "w", n, 1)
					if err := f.append1(w); err != nil {
						f.Errorf("Append: %v", err)
						return
					}
					if n%2 == 0 {
						f.wantHighest(id, n+1)
					}
					f.wantEvents(id, f.replay(id, n+1, maxSeq), eventsOf(w))
					if f.Failed() {
						return
					}
				}
			})
		}},
		{"UnitsUnderReads", "a reader never sees a part of a write", base, func(f *fixture) {
			const id, unit, units = "units", 3, 60
			var done atomic.Bool
			f.together("Append beside Replay", 3, func(k int) {
				if k == 0 {
					defer done.Store(true)
					for n := range uint64(units) {
						if err := f.append1(write(id, "w", n*unit, unit)); err != nil {
							f.Errorf("Append: %v", err)
							return
						}
					}
					return
				}
				for !done.Load() && !f.Failed() {
					before := f.highest(id)
					events := f.replay(id, 1, maxSeq)
					after := f.highest(id)
					n := uint64(len(events))
					if n > 0 && (events[0].SequenceNr != 1 || !gapless(events)) {
						f.Errorf("Replay yields %s", brief(numbers(events)))
					}
					if n%unit != 0 || before%unit != 0 {
						f.Errorf("a part of a unit of %d is visible: Replay yields %d events, the highest number is %d", unit, n, before)
					}
					if n < before || n > after {
						f.Errorf("Replay yields %d events, with %d stored before it and %d after it", n, before, after)
					}
				}
			})
			f.wantHighest(id, unit*units)
		}},
		{"Linearizable", "concurrent Append, Replay and HighestSequenceNr have an order that explains them", base, func(f *fixture) {
			// Clients append to and read the same few IDs. The check searches for an order of their calls.
			const clients, steps, ids = 6, 60, 3
			var (
				clock    atomic.Int64
				mu       sync.Mutex
				recorded []porcupine.Operation
			)
			f.together("a call among others", clients, func(client int) {
				random := rand.New(rand.NewPCG(uint64(client), 1)) //nolint:gosec // not a secret
				known := make([]uint64, ids)                       // the highest number that the client has heard of
				for step := range steps {
					k := random.IntN(ids)
					op := operation{id: fmt.Sprint("linearizable|", k)}
					switch n := random.IntN(4); {
					case n < 2:
						op.op, op.expect, op.events = OpAppend, known[k], 1+random.IntN(2)
						op.writer = string(rune(0x4e00 + client*steps + step)) //nolint:gosec // small; distinct
					case n < 3:
						op.op = OpReplay
					default:
						op.op = OpHighest
					}
					call := clock.Add(1)
					got, highest := f.perform(op)
					end := clock.Add(1)
					if got.unknown {
						end = math.MaxInt64 // it may happen at any time
					}
					known[k] = max(known[k], highest)
					mu.Lock()
					recorded = append(recorded, porcupine.Operation{ClientId: client, Input: op, Call: call, Output: got, Return: end})
					mu.Unlock()
				}
			})
			const limit = 20 * time.Second
			result, info := porcupine.CheckOperationsVerbose(model(), recorded, limit)
			switch result {
			case porcupine.Ok:
			case porcupine.Illegal:
				f.Errorf("no order of the calls explains their answers\n%s", unexplained(byID(recorded), info))
			case porcupine.Unknown:
				f.Logf("no answer within %s whether %d calls are linearizable", limit, len(recorded))
			}
		}},
		{"ParallelAppends", "MaxAppends calls in flight, with different IDs, do not disturb each other", parallel, func(f *fixture) {
			p, ok := journal.As[journal.Parallel](f.j)
			if !ok {
				f.Fatalf("%T does not implement journal.Parallel any more", f.j)
			}
			calls := p.MaxAppends()
			if calls < 1 {
				f.Fatalf("MaxAppends is %d, want at least 1", calls)
			}
			const ids, rounds = 20, 10
			id := func(call, k int) string { return fmt.Sprintf("parallel|%d|%d", call, k) }
			f.together("one of several Appends to different IDs", calls, func(call int) {
				for r := range uint64(rounds) {
					batch := make([]journal.Write, ids)
					for k := range batch {
						batch[k] = write(id(call, k), "w", 2*r, 2)
					}
					for k, err := range f.appendAll(f.ctx, batch...) {
						if err != nil {
							f.Errorf("Append to %q: %v", batch[k].ID, err)
						}
					}
				}
			})
			for call := range calls {
				for k := range ids {
					f.wantHistory(id(call, k), 0, write(id(call, k), "w", 0, 2*rounds))
				}
			}
		}},
	}
}

// reentrancyChecks use the journal in the body of a replay, where no resource may be held.
func reentrancyChecks() []check {
	return []check{
		{"AppendInReplay", "the body of a replay may append to the same ID", base, func(f *fixture) {
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
		}},
		{"ReplayInReplay", "the body of a replay may replay, to any depth", base, func(f *fixture) {
			// The depth exceeds the connections of a pool.
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
		}},
		{"OthersInReplay", "the body of a replay may ask for the highest number, and delete", base, func(f *fixture) {
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
		}},
		{"PrefixWhileAppending", "events that exist when a replay begins are yielded without a gap, despite concurrent appends", base, func(f *fixture) {
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
		}},
	}
}
