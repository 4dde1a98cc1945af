// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// step is one step of a history: a node changes its value, or merges the value of another node into
// it. Steps are independent of each other, so a history remains valid when steps are left out.
type step struct {
	node, from int // equal for a change
	seed       uint64
	now        time.Time
}

func (s *subject) history(r *rand.Rand) []step {
	now := time.UnixMilli(1_000)
	steps := make([]step, s.steps)
	for i := range steps {
		now = now.Add(time.Duration(r.IntN(3)-r.IntN(2)) * time.Millisecond)
		node := r.IntN(s.nodes)
		steps[i] = step{node: node, from: node, seed: r.Uint64(), now: now}
		if r.IntN(3) == 0 {
			steps[i].from = r.IntN(s.nodes)
		}
	}
	return steps
}

// change is one change of a history, with its delta if it has one.
type change struct {
	node          int
	before, after crdt.Value // after still contains the delta
	delta         crdt.Delta
}

type world struct {
	*subject
	history []step
	selves  []*crdt.Self
	values  []crdt.Value
	older   []crdt.Value // former values of nodes
	changes []change
}

func (s *subject) newWorld(history []step) *world {
	w := &world{subject: s, history: history}
	for i := range s.nodes {
		self := must(crdt.NewSelf(identity.Node{Name: string(rune('a' + i)), UID: uint64(i) + 1}))
		w.selves = append(w.selves, self)
		w.values = append(w.values, must(s.empty()))
	}
	return w
}

// play runs a history in which the nodes exchange whole values. It appends one line per step to
// shown, if shown is not nil.
func (s *subject) play(steps []step, shown *[]string) *world {
	w := s.newWorld(steps)
	for _, s := range steps {
		w.older = append(w.older, w.values[s.node])
		subject := "changes to"
		if s.from == s.node {
			w.change(s)
		} else {
			subject = fmt.Sprintf("merges %s:", w.selves[s.from].Node().Name)
			w.values[s.node] = merged(w.values[s.node], w.values[s.from])
		}
		if shown != nil {
			*shown = append(*shown, fmt.Sprintf("  %s %s %s", w.selves[s.node].Node().Name, subject, w.show(w.values[s.node])))
		}
	}
	return w
}

func (s step) random(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, purpose)) }

// change makes a change as a replicator does: it merges the result into the former value.
func (w *world) change(s step) {
	before, self := w.values[s.node], w.selves[s.node]
	self.Advance(s.now)
	after, err := w.modify(s.random(0), self, before)
	if err != nil {
		violate("make a change: %w", err)
	}
	w.values[s.node] = merged(before, after).ResetDelta()
	w.changes = append(w.changes, change{node: s.node, before: before, after: after, delta: after.Delta()})
}

// replay runs the history with deltas. In each merge step, a node applies the changes that another
// node has and this node lacks. Before that, replay calls f with these changes and with the values
// of both nodes. The changes are in the order in which they were made, which is a causal order.
func (w *world) replay(f func(s step, missing []change, value, from crdt.Value)) {
	if w.values[0].Deltas() == crdt.NoDeltas {
		return
	}
	d := w.newWorld(w.history)
	applied := make([]map[int]bool, w.nodes) // the changes that each node has
	for i := range applied {
		applied[i] = map[int]bool{}
	}
	for _, s := range w.history {
		if s.from == s.node {
			d.change(s)
			applied[s.node][len(d.changes)-1] = true
			continue
		}
		var missing []change
		for i, c := range d.changes {
			if applied[s.from][i] && !applied[s.node][i] && !c.delta.IsZero() {
				missing = append(missing, c)
			}
		}
		f(s, missing, d.values[s.node], d.values[s.from])
		d.values[s.node] = apply(d.values[s.node], missing)
		maps.Copy(applied[s.node], applied[s.from])
	}
}
