// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

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
					if !f.appended(w) {
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
			f.together("a concurrent Append or Replay", 3, func(k int) {
				if k == 0 {
					defer done.Store(true)
					for n := range uint64(units) {
						if !f.appended(write(id, "w", n*unit, unit)) {
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
		{"Linearizable", "the results of concurrent Append, Replay and HighestSequenceNr calls equal those of some sequential order", base, func(f *fixture) {
			// Clients append to and read the same few IDs. The check searches for a sequential
			// order of their calls.
			const clients, steps, ids = 6, 60, 3
			var (
				clock    atomic.Int64
				mu       sync.Mutex
				recorded []porcupine.Operation
			)
			f.together("a concurrent call", clients, func(client int) {
				random := rand.New(rand.NewPCG(uint64(client), 1)) //nolint:gosec // not a secret
				known := make([]uint64, ids)                       // the highest number that the client has observed
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
						end = math.MaxInt64 // the write may be stored at any later time
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
				f.Errorf("no sequential order of the calls explains their results\n%s", unexplained(byID(recorded), info))
			case porcupine.Unknown:
				f.Logf("could not determine within %s whether %d calls are linearizable", limit, len(recorded))
			}
		}},
		{"ParallelAppends", "MaxAppends calls in flight, with different IDs, do not affect each other", parallel, func(f *fixture) {
			calls := as[journal.Parallel](f).MaxAppends()
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

// reentrancyChecks returns the checks that call the journal in the body of a replay. While the body
// runs, a replay must hold no resource.
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
			// The depth exceeds the number of connections in a pool.
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
		{"OthersInReplay", "the body of a replay may call HighestSequenceNr and DeleteTo", base, func(f *fixture) {
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
						if !f.appended(w) {
							return
						}
					}
				}
			})
			if want <= before {
				f.Errorf("Replay ended after %d events, want at least the %d that were stored when it began", want-1, before)
			}
			f.wantHistory(id, 0, writes...)
		}},
	}
}

type operation struct {
	id     string
	op     Op
	expect uint64 // of an append
	events int    // of an append
	writer string // of an append
}

type answer struct {
	unknown, conflict bool
	highest           uint64
	writers           string // of a replay: the writer of each event
}

// history is the state of one ID in the model: the writer of each event, one character each.
type history string

func (h history) highest() uint64 { return uint64(utf8.RuneCountInString(string(h))) } //nolint:gosec // small

// perform executes an operation and returns the result and the highest sequence number that the
// client has observed.
func (f *fixture) perform(op operation) (answer, uint64) {
	switch op.op {
	case OpAppend:
		err := f.append1(write(op.id, op.writer, op.expect, op.events))
		conflict, ok := errors.AsType[*journal.ConflictError](err)
		switch {
		case err == nil:
			return answer{}, op.expect + uint64(op.events) //nolint:gosec // small
		case ok:
			return answer{conflict: true, highest: conflict.Highest}, conflict.Highest
		case journal.NotStored(err):
			f.Errorf("Append: %v", err)
		}
		return answer{unknown: true}, 0
	case OpReplay:
		events, err := f.collect(f.j.Replay(f.ctx, op.id, 1, maxSeq), 0)
		if err != nil || len(events) > 0 && (events[0].SequenceNr != 1 || !gapless(events)) {
			f.Errorf("Replay yields %s and %v", brief(numbers(events)), err)
			return answer{unknown: true}, 0
		}
		var a answer
		for i := range events {
			a.writers += events[i].Writer
		}
		return a, uint64(len(events))
	default:
		n := f.highest(op.id)
		return answer{highest: n}, n
	}
}

// model specifies a correct journal of one ID for the linearizability checker.
func model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: byID,
		Init:      func() []any { return []any{history("")} },
		Step: func(state, input, output any) []any {
			return next(state.(history), input.(operation), output.(answer)) //nolint:errcheck // always these
		},
	}
	return m.ToModel()
}

func byID(all []porcupine.Operation) [][]porcupine.Operation {
	parts := make(map[string][]porcupine.Operation)
	for _, o := range all {
		id := o.Input.(operation).id //nolint:errcheck // always one
		parts[id] = append(parts[id], o)
	}
	var out [][]porcupine.Operation
	for _, id := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, parts[id])
	}
	return out
}

// next returns the possible states of a history after an operation with this result, none if the
// result is wrong.
func next(h history, op operation, got answer) []any {
	var right bool
	after := h
	switch op.op {
	case OpAppend:
		fits := op.expect == h.highest()
		if fits {
			after += history(strings.Repeat(op.writer, op.events))
		}
		if got.unknown {
			return []any{h, after}
		}
		right = fits != got.conflict && (!got.conflict || got.highest == 0 || got.highest == h.highest())
	case OpReplay:
		right = got.unknown || got.writers == string(h)
	default:
		right = got.highest == h.highest()
	}
	if !right {
		return nil
	}
	return []any{after}
}

// unexplained describes for each ID the longest order of calls that the search found, and some of
// the remaining calls.
func unexplained(parts [][]porcupine.Operation, info porcupine.LinearizationInfo) string {
	var b strings.Builder
	for p, orders := range info.PartialLinearizationsOperations() {
		if len(orders) == 0 {
			continue
		}
		best := slices.MaxFunc(orders, func(a, b []porcupine.Operation) int { return len(a) - len(b) })
		if len(best) == len(parts[p]) {
			continue
		}
		fmt.Fprintf(&b, "%d of %d calls can be ordered; the last of them:\n", len(best), len(parts[p]))
		for _, o := range best[max(0, len(best)-5):] {
			fmt.Fprintf(&b, "\t%+v -> %+v\n", o.Input, o.Output)
		}
		b.WriteString("some of the remaining calls:\n")
		left := slices.DeleteFunc(slices.Clone(parts[p]), func(o porcupine.Operation) bool { return slices.Contains(best, o) })
		slices.SortFunc(left, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, o := range left[:min(5, len(left))] {
			fmt.Fprintf(&b, "\t%+v -> %+v\n", o.Input, o.Output)
		}
	}
	return b.String()
}
