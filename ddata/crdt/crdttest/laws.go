// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// violation is the panic of a check: a law does not hold, or an operation of the type has failed.
type violation struct{ error }

func violate(format string, args ...any) { panic(violation{fmt.Errorf(format, args...)}) }

func must[V any](v V, err error) V {
	if err != nil {
		panic(violation{err})
	}
	return v
}

func merged(values ...crdt.Value) crdt.Value {
	m := values[0]
	for _, v := range values[1:] {
		m = must(m.Merge(v))
	}
	return m
}

func encoded(v interface{ AppendBinary([]byte) ([]byte, error) }) []byte {
	return must(v.AppendBinary(nil))
}

func (w *world) decoded(v crdt.Value) crdt.Value { return must(w.types.Decode(encoded(v))) }

func (w *world) show(v crdt.Value) string {
	switch {
	case v.IsZero():
		return "nothing"
	case w.read == nil:
		return fmt.Sprintf("%x", encoded(v))
	}
	return fmt.Sprint(w.read(v))
}

// equal checks that two values have equal bytes, or equal meanings if byValue is set.
func (w *world) equal(byValue bool, subject string, a, b crdt.Value) {
	same := crdt.Equal(a, b)
	if byValue {
		same = w.show(a) == w.show(b)
	}
	if !same {
		violate("%s:\n  %s (%x)\n  %s (%x)", subject, w.show(a), encoded(a), w.show(b), encoded(b))
	}
}

func (w *world) pairs(f func(a, b crdt.Value)) {
	for i, a := range w.values {
		for j, b := range w.values {
			if i != j {
				f(a, b)
			}
		}
	}
}

func (w *world) commutative() {
	w.pairs(func(a, b crdt.Value) { w.equal(false, "a+b and b+a differ", merged(a, b), merged(b, a)) })
}

func (w *world) associative() {
	a, b, c := w.values[0], w.values[1], w.values[2]
	w.equal(w.byValue, "(a+b)+c and a+(b+c) differ", merged(a, b, c), merged(a, merged(b, c)))
}

func (w *world) idempotent() {
	for _, v := range w.values { // merging a value with itself is trivial, so merge a copy
		w.equal(w.byValue, "a+a and a differ", merged(v, w.decoded(v)), v)
	}
}

func (w *world) absorbing() {
	w.pairs(func(a, b crdt.Value) { w.equal(w.byValue, "(a+b)+a and a+b differ", merged(a, b, a), merged(a, b)) })
}

// converge returns the value of all nodes after they have exchanged their values in some rounds.
func (w *world) converge() crdt.Value {
	const rounds = 4
	values := slices.Clone(w.values)
	for range rounds {
		for i := range values {
			for j := range values {
				values[i] = merged(values[i], values[j])
			}
		}
		if !slices.ContainsFunc(values, func(v crdt.Value) bool { return !crdt.Equal(v, values[0]) }) {
			break
		}
	}
	for _, v := range values[1:] {
		w.equal(false, "two nodes differ after all nodes have exchanged their values", v, values[0])
	}
	return values[0]
}

func (w *world) mergesChanges() {
	for _, c := range w.changes {
		w.equal(false, "a value merged with its change, and with the decoded form of its change, differ",
			merged(c.before, c.after), merged(c.before, w.decoded(c.after)))
	}
}

func (w *world) oneForm() {
	for _, v := range w.values {
		data := encoded(v)
		back := decodeOnce("value", data, w.types.Decode)
		w.equal(false, "a value and its decoded form differ", v, back)
		if got, want := w.show(back), w.show(v); got != want {
			violate("%s is decoded as %s", want, got)
		}
	}
	for _, c := range w.changes {
		if c.delta.IsZero() {
			continue
		}
		data := encoded(c.delta)
		back := decodeOnce("delta", data, w.types.DecodeDelta)
		if again := encoded(back); !bytes.Equal(again, data) {
			violate("a delta is encoded as %x, but as %x after decoding", data, again)
		}
		if back.NeedsCausal() != c.delta.NeedsCausal() || back.Ops() != c.delta.Ops() {
			violate("a delta and the decoded delta differ in NeedsCausal or Ops")
		}
		for _, v := range []crdt.Value{c.before, back.Zero()} {
			w.equal(false, "the results of a delta and of its decoded form differ", must(v.MergeDelta(c.delta)), must(v.MergeDelta(back)))
		}
	}
}

// decodeOnce decodes data, and checks that no prefix of data decodes and that the result does not
// retain data.
func decodeOnce[V any](subject string, data []byte, decode func([]byte) (V, error)) V {
	input := bytes.Clone(data)
	back := must(decode(input))
	clear(input)
	for i := range data {
		if _, err := decode(data[:i]); err == nil {
			violate("the first %d of the %d bytes of a %s decode without an error", i, len(data), subject)
		}
	}
	return back
}

func apply(v crdt.Value, list []change) crdt.Value {
	for _, c := range list {
		v = must(v.MergeDelta(c.delta))
	}
	return v
}

func (w *world) deltasFold() {
	w.replay(func(s step, list []change, before, from crdt.Value) {
		m := merged(before, from)
		w.equal(w.byValue, "the applied deltas and the merged values differ", apply(before, list), m)
		if before.Deltas() == crdt.FreeDeltas {
			twice := slices.Concat(list, list)
			s.random(1).Shuffle(len(twice), func(i, j int) { twice[i], twice[j] = twice[j], twice[i] })
			w.equal(w.byValue, "the deltas, applied twice and in another order, and the merged values differ", apply(before, twice), m)
		}
	})
}

func (w *world) deltasJoin() {
	w.replay(func(_ step, list []change, before, _ crdt.Value) {
		var joined []change
		for i, c := range list {
			if i > 0 && list[i-1].node == c.node {
				last := &joined[len(joined)-1]
				last.delta = must(last.delta.Merge(c.delta))
			} else {
				joined = append(joined, c)
			}
		}
		w.equal(w.byValue, "the joined deltas and the single deltas have different results", apply(before, joined), apply(before, list))
	})
}

// prunes removes the last node and lets the first node take over the history of the removed node.
func (w *world) prunes() {
	all := w.converge()
	leader, removed := w.selves[0], w.selves[len(w.selves)-1].Node()
	nodes := all.ModifiedBy()
	if all.NeedsPruning(removed) && !slices.Contains(nodes, removed) {
		violate("NeedsPruning is true for a node that has not modified the value")
	}
	if !slices.IsSortedFunc(nodes, identity.Node.Compare) {
		violate("ModifiedBy returns %v, which is not sorted", nodes)
	}
	without := func(v crdt.Value, after string) {
		if v.NeedsPruning(removed) || slices.Contains(v.ModifiedBy(), removed) {
			violate("history of the node remains after %s", after)
		}
	}
	pruned := must(all.Prune(leader, removed))
	without(pruned, "Prune")
	w.equal(false, "the pruned value and its decoded form differ", pruned, w.decoded(pruned))
	if got, want := w.show(pruned), w.show(all); w.read != nil && got != want {
		violate("%s means %s after pruning", want, got)
	}
	older := []crdt.Value{all}
	if w.except&Associative == 0 { // values of other types need not contain all changes
		older = append(older, w.older...)
	}
	for i, old := range older {
		clean := must(old.Cleanup(removed))
		without(clean, "Cleanup")
		for _, m := range []crdt.Value{merged(pruned, clean), merged(clean, pruned)} {
			w.equal(false, fmt.Sprintf("merging older value %d after Cleanup changes the pruned value", i), m, pruned)
		}
	}
	w.equal(false, "a second Prune changes the value", must(pruned.Prune(leader, removed)), pruned)
}
