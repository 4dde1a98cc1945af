// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// prunes removes the last node and lets the first one take over its history.
func (w *world[T]) prunes() error {
	all, err := w.converge()
	if err != nil {
		return err
	}
	leader, removed := w.selves[0], w.selves[len(w.selves)-1].Node()
	nodes := all.ModifiedBy()
	if needs := all.NeedsPruning(removed); needs && !slices.Contains(nodes, removed) {
		return errors.New("NeedsPruning is true for a node that has not modified the value")
	}
	if !slices.IsSortedFunc(nodes, identity.Node.Compare) {
		return fmt.Errorf("ModifiedBy returns %v, which is not sorted", nodes)
	}
	pruned, err := all.Prune(leader, removed)
	if err != nil {
		return err
	}
	if pruned.NeedsPruning(removed) || slices.Contains(pruned.ModifiedBy(), removed) {
		return errors.New("history of the node remains after Prune")
	}
	back, err := w.decoded(pruned)
	if err != nil {
		return fmt.Errorf("the pruned value cannot be decoded: %w", err)
	}
	if err = w.equal(false, "what is pruned and the same decoded differ", pruned, back); err != nil {
		return err
	}
	if got, want := w.show(pruned), w.show(all); w.Read != nil && got != want {
		return fmt.Errorf("%s means %s after pruning", want, got)
	}
	older := []crdt.Value{all}
	if w.Except&Associative == 0 { // otherwise the values are not even merges of all changes
		older = append(older, w.older...)
	}
	for i, old := range older {
		var clean crdt.Value
		if clean, err = old.Cleanup(removed); err != nil {
			return err
		}
		if clean.NeedsPruning(removed) || slices.Contains(clean.ModifiedBy(), removed) {
			return errors.New("history of the node remains after Cleanup")
		}
		for _, pair := range [][]crdt.Value{{pruned, clean}, {clean, pruned}} {
			var m crdt.Value
			if m, err = merged(pair...); err != nil {
				return err
			}
			if err = w.equal(false, fmt.Sprintf("older value %d is cleaned up, merged with the pruned one, and changes it", i), m, pruned); err != nil {
				return err
			}
		}
	}
	again, err := pruned.Prune(leader, removed)
	if err != nil {
		return err
	}
	return w.equal(false, "to prune again changes the value", again, pruned)
}
