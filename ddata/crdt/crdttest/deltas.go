// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest

import (
	"fmt"
	"math/rand/v2"

	"github.com/refold-io/refold/ddata/crdt"
)

// deltaWorld is a world whose nodes exchange deltas.
type deltaWorld[T any] struct {
	*world[T]
	known []map[int]bool // for each node, the changes that it has
}

func (w *world[T]) byDeltas() (*deltaWorld[T], error) {
	inner, err := w.newWorld(w.steps)
	if err != nil {
		return nil, err
	}
	d := &deltaWorld[T]{world: inner}
	for range w.Nodes {
		d.known = append(d.known, make(map[int]bool))
	}
	return d, nil
}

// missing returns the changes that one node has and another lacks, in the order in which they were
// made, which is causal.
func (d *deltaWorld[T]) missing(node, from int) []change {
	var list []change
	for i, c := range d.changes {
		if d.known[from][i] && !d.known[node][i] && !c.delta.IsZero() {
			list = append(list, c)
		}
	}
	return list
}

// learn records that a node has all changes of another node.
func (d *deltaWorld[T]) learn(node, from int) {
	for i := range d.changes {
		if d.known[from][i] {
			d.known[node][i] = true
		}
	}
}

func apply(v crdt.Value, list []change) (crdt.Value, error) {
	for _, c := range list {
		var err error
		if v, err = v.MergeDelta(c.delta); err != nil {
			return v, fmt.Errorf("apply a delta: %w", err)
		}
	}
	return v, nil
}

// replay runs the history with deltas. f receives the changes that a node is about to apply.
func (w *world[T]) replay(f func(d *deltaWorld[T], s step, list []change) error) error {
	d, err := w.byDeltas()
	if err != nil {
		return err
	}
	for _, s := range w.steps {
		if s.from == s.node {
			if err = d.change(s); err != nil {
				return err
			}
			d.known[s.node][len(d.changes)-1] = true
			continue
		}
		list := d.missing(s.node, s.from)
		if err = f(d, s, list); err != nil {
			return err
		}
		if d.values[s.node], err = apply(d.values[s.node], list); err != nil {
			return err
		}
		d.learn(s.node, s.from)
	}
	return nil
}

func (w *world[T]) deltas() crdt.Deltas { return w.values[0].Deltas() }

func (w *world[T]) deltasFold() error {
	if w.deltas() == crdt.NoDeltas {
		return nil
	}
	return w.replay(func(d *deltaWorld[T], s step, list []change) error {
		before := d.values[s.node]
		folded, err := apply(before, list)
		if err != nil {
			return err
		}
		m, err := merged(before, d.values[s.from])
		if err != nil {
			return err
		}
		if err = w.equal(w.ByValue, "the deltas applied and the values merged differ", folded, m); err != nil {
			return err
		}
		if w.deltas() != crdt.FreeDeltas {
			return nil
		}
		r := rand.New(rand.NewPCG(s.seed, 1))
		twice := append(append([]change(nil), list...), list...)
		r.Shuffle(len(twice), func(i, j int) { twice[i], twice[j] = twice[j], twice[i] })
		if folded, err = apply(before, twice); err != nil {
			return err
		}
		return w.equal(w.ByValue, "the deltas applied twice and in another order, and the values merged differ", folded, m)
	})
}

func (w *world[T]) deltasJoin() error {
	if w.deltas() == crdt.NoDeltas {
		return nil
	}
	return w.replay(func(d *deltaWorld[T], s step, list []change) error {
		before := d.values[s.node]
		single, err := apply(before, list)
		if err != nil {
			return err
		}
		joined := before
		for i := 0; i < len(list); {
			delta := list[i].delta
			j := i + 1
			for ; j < len(list) && list[j].node == list[i].node; j++ {
				if delta, err = delta.Merge(list[j].delta); err != nil {
					return fmt.Errorf("merge deltas: %w", err)
				}
			}
			if joined, err = joined.MergeDelta(delta); err != nil {
				return fmt.Errorf("apply a delta: %w", err)
			}
			i = j
		}
		return w.equal(w.ByValue, "the deltas applied as one and one by one differ", joined, single)
	})
}
