// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest

import (
	"errors"
	"fmt"

	"github.com/refold-io/refold/ddata/crdt"
)

// merged returns the values merged from left to right.
func merged(values ...crdt.Value) (crdt.Value, error) {
	m := values[0]
	for _, v := range values[1:] {
		var err error
		if m, err = m.Merge(v); err != nil {
			return m, fmt.Errorf("merge: %w", err)
		}
	}
	return m, nil
}

func (w *world[T]) commutative() error {
	return w.pairs(func(a, b crdt.Value) error {
		ab, err := merged(a, b)
		if err != nil {
			return err
		}
		ba, err := merged(b, a)
		if err != nil {
			return err
		}
		return w.equal(false, "a+b and b+a differ", ab, ba)
	})
}

// pairs calls f with each pair of values of the nodes.
func (w *world[T]) pairs(f func(a, b crdt.Value) error) error {
	for i, a := range w.values {
		for j, b := range w.values {
			if i == j {
				continue
			}
			if err := f(a, b); err != nil {
				return fmt.Errorf("a is %s, b is %s: %w", w.selves[i].Node().Name, w.selves[j].Node().Name, err)
			}
		}
	}
	return nil
}

func (w *world[T]) associative() error {
	a, b, c := w.values[0], w.values[1], w.values[2]
	left, err := merged(a, b, c)
	if err != nil {
		return err
	}
	bc, err := merged(b, c)
	if err != nil {
		return err
	}
	right, err := merged(a, bc)
	if err != nil {
		return err
	}
	return w.equal(w.ByValue, "(a+b)+c and a+(b+c) differ", left, right)
}

func (w *world[T]) idempotent() error {
	for _, v := range w.values {
		again, err := w.decoded(v) // a copy, because merging a value with itself is trivial
		if err != nil {
			return err
		}
		m, err := merged(v, again)
		if err != nil {
			return err
		}
		if err := w.equal(w.ByValue, "a+a and a differ", m, v); err != nil {
			return err
		}
	}
	return nil
}

func (w *world[T]) absorbing() error {
	return w.pairs(func(a, b crdt.Value) error {
		m, err := merged(a, b)
		if err != nil {
			return err
		}
		again, err := merged(m, a)
		if err != nil {
			return err
		}
		return w.equal(w.ByValue, "(a+b)+a and a+b differ", again, m)
	})
}

// rounds is the number of rounds, in which all nodes exchange values, after which they must be
// equal.
const rounds = 4

// converge returns the value of all nodes after convergence.
func (w *world[T]) converge() (crdt.Value, error) {
	values := append([]crdt.Value(nil), w.values...)
	var differ error
	for range rounds {
		for i := range values {
			for j := range values {
				var err error
				if values[i], err = merged(values[i], values[j]); err != nil {
					return crdt.Value{}, err
				}
			}
		}
		differ = nil
		for _, v := range values[1:] {
			differ = errors.Join(differ, w.equal(false, "after all nodes have heard of all, two differ", v, values[0]))
		}
		if differ == nil {
			break
		}
	}
	return values[0], differ
}

func (w *world[T]) mergesChanges() error {
	for _, c := range w.changes {
		short, err := merged(c.before, c.after)
		if err != nil {
			return err
		}
		after, err := w.decoded(c.after)
		if err != nil {
			return err
		}
		long, err := merged(c.before, after)
		if err != nil {
			return err
		}
		if err := w.equal(false, "a value merged with what was made of it, and the same decoded, differ", short, long); err != nil {
			return err
		}
	}
	return nil
}
