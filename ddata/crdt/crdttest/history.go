// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// step is one step of a history: a node changes its value, or merges that of another node. Steps
// are independent, so that some can be left out.
type step struct {
	node, from int // equal for a change
	seed       uint64
	now        time.Time
}

func (c Config[T]) history(r *rand.Rand) []step {
	now := time.UnixMilli(1_000)
	steps := make([]step, c.Steps)
	for i := range steps {
		now = now.Add(time.Duration(r.IntN(3)-r.IntN(2)) * time.Millisecond)
		node := r.IntN(c.Nodes)
		steps[i] = step{node: node, from: node, seed: r.Uint64(), now: now}
		if r.IntN(3) == 0 {
			steps[i].from = r.IntN(c.Nodes)
		}
	}
	return steps
}

// change is one change of a history, with its delta if it has one.
type change struct {
	node          int
	before, after crdt.Value // after still has the delta
	delta         crdt.Delta
}

// world is a set of nodes and their values. They exchange whole values.
type world[T any] struct {
	Config[T]
	steps   []step
	selves  []*crdt.Self
	values  []crdt.Value
	older   []crdt.Value // former values of nodes
	changes []change
}

// newWorld returns a world in its initial state.
func (c Config[T]) newWorld(steps []step) (*world[T], error) {
	w := &world[T]{Config: c, steps: steps}
	empty, err := c.Types.Value(c.Empty)
	if err != nil {
		return nil, err
	}
	for i := range c.Nodes {
		self, err := crdt.NewSelf(identity.Node{Name: string(rune('a' + i)), UID: uint64(i) + 1})
		if err != nil {
			return nil, err
		}
		w.selves = append(w.selves, self)
		w.values = append(w.values, empty)
	}
	return w, nil
}

// play runs a history. It appends one line per step to shown.
func (c Config[T]) play(steps []step, shown *[]string) (*world[T], error) {
	w, err := c.newWorld(steps)
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		w.older = append(w.older, w.values[s.node])
		subject := "changes to"
		if s.from == s.node {
			err = w.change(s)
		} else {
			subject = fmt.Sprintf("hears of %s,", w.selves[s.from].Node().Name)
			w.values[s.node], err = w.values[s.node].Merge(w.values[s.from])
		}
		if shown != nil {
			*shown = append(*shown, fmt.Sprintf("  %s %s %s", w.selves[s.node].Node().Name, subject, w.show(w.values[s.node])))
		}
		if err != nil {
			return nil, err
		}
	}
	return w, nil
}

// change makes a change like a replicator: it merges the result into the former value.
func (w *world[T]) change(s step) error {
	before := w.values[s.node]
	v, err := crdt.As[T](w.Types, before)
	if err != nil {
		return err
	}
	self := w.selves[s.node]
	self.Advance(s.now)
	if v, err = w.Change(rand.New(rand.NewPCG(s.seed, 0)), self, v); err != nil {
		return fmt.Errorf("make a change: %w", err)
	}
	after, err := w.Types.Value(v)
	if err != nil {
		return err
	}
	merged, err := before.Merge(after)
	if err != nil {
		return err
	}
	w.values[s.node] = merged.ResetDelta()
	w.changes = append(w.changes, change{node: s.node, before: before, after: after, delta: after.Delta()})
	return nil
}

// show returns the meaning of a value.
func (w *world[T]) show(v crdt.Value) string {
	if v.IsZero() {
		return "nothing"
	}
	if w.Read == nil {
		b, err := v.AppendBinary(nil)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%x", b)
	}
	typed, err := crdt.As[T](w.Types, v)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(w.Read(typed))
}

// equal returns an error unless two values have equal bytes, or equal meanings if byValue is set.
func (w *world[T]) equal(byValue bool, subject string, a, b crdt.Value) error {
	same := crdt.Equal(a, b)
	if byValue {
		same = w.show(a) == w.show(b)
	}
	if same {
		return nil
	}
	x, err := a.AppendBinary(nil)
	if err != nil {
		return err
	}
	y, err := b.AppendBinary(nil)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s:\n  %s (%x)\n  %s (%x)", subject, w.show(a), x, w.show(b), y)
}
