// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/anishathalye/porcupine"

	"github.com/refold-io/refold/journal"
)

// operation is a call of a client for one ID.
type operation struct {
	id     string
	op     Op
	expect uint64 // of an append
	events int    // of an append
	writer string // of an append
}

// answer is the result of an operation.
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

// model is a journal of one ID as it should be.
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

// unexplained prints where the search for an order got stuck, for each ID.
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
		fmt.Fprintf(&b, "%d of %d calls can be put in order, of which the last:\n", len(best), len(parts[p]))
		for _, o := range best[max(0, len(best)-5):] {
			fmt.Fprintf(&b, "\t%+v -> %+v\n", o.Input, o.Output)
		}
		b.WriteString("and some of the others:\n")
		left := slices.DeleteFunc(slices.Clone(parts[p]), func(o porcupine.Operation) bool { return slices.Contains(best, o) })
		slices.SortFunc(left, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, o := range left[:min(5, len(left))] {
			fmt.Fprintf(&b, "\t%+v -> %+v\n", o.Input, o.Output)
		}
	}
	return b.String()
}
