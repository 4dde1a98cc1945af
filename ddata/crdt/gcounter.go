// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"errors"
	"math/big"

	"github.com/refold-io/refold/identity"
)

// GCounter is a counter that only grows. Each node has its own count, and the value is their sum.
// The zero value is 0. It is immutable.
type GCounter struct{ handle[GCounter] }

func (GCounter) empty(*Types) shape { return shape{kind: kindGCounter} }

func (c GCounter) core() *gcounter {
	if g, ok := c.v.(*gcounter); ok {
		return g
	}
	return &gcounter{}
}

// Add returns the counter increased by n.
func (c GCounter) Add(self *Self, n uint64) GCounter { return c.add(self, n, nil) }

// AddBig is Add for a number of any size. The error reports a negative number, or matches ErrLimit
// if n has more than 1,000 bits.
func (c GCounter) AddBig(self *Self, n *big.Int) (GCounter, error) {
	switch {
	case n.Sign() < 0:
		return c, errors.New("crdt: GCounter: negative increment, use PNCounter")
	case n.BitLen() > maxAdd:
		return c, ErrLimit
	}
	return c.add(self, 0, new(big.Int).Set(n)), nil
}

// maxAdd is the maximum size of an increment in bits, well below the maximum size of a count.
const maxAdd = 1000

func (c GCounter) add(self *Self, n uint64, more *big.Int) GCounter {
	if n == 0 && (more == nil || more.Sign() == 0) {
		return c
	}
	g := c.core()
	made := &struct {
		next, delta gcounter
		one         [1]tally
	}{}
	next := &made.next
	next.tallies, made.one[0] = g.tallies.add(self.ref, n, more)
	made.delta.tallies = made.one[:]
	if g.delta != nil {
		made.delta.tallies = g.delta.tallies.max(made.one[:])
	}
	next.delta = &made.delta
	if next.base = g.base; next.base == nil {
		next.base = g
	}
	return GCounter{handle[GCounter]{v: next, types: c.types}}
}

// Value returns the sum, or the largest uint64 if the sum is larger; see Big.
func (c GCounter) Value() uint64 {
	sum, _ := c.core().tallies.sum()
	return sum
}

// Big returns the sum. The caller owns the result.
func (c GCounter) Big() *big.Int { return c.core().tallies.bigSum() }

// gcounter is the untyped value of a GCounter.
type gcounter struct {
	tallies tallies
	delta   *gcounter // the changed counts, nil if nothing has changed
	base    *gcounter // the value when delta was empty; nil if delta is empty
}

func (g *gcounter) needsPruning(removed identity.Node) bool { return g.tallies.has(refOf(removed)) }
func (g *gcounter) shape() shape                            { return shape{kind: kindGCounter} }
func (g *gcounter) eachNode(t *nodeTable)                   { g.tallies.eachNode(t) }
func (g *gcounter) encode(e *encoder)                       { e.tallies(g.tallies) }

func (g *gcounter) merge(other core) (core, error) {
	o, _ := other.(*gcounter)
	if o.base == g {
		return &gcounter{tallies: o.tallies}, nil
	}
	m := g.tallies.max(o.tallies)
	switch {
	case sameTallies(m, g.tallies):
		return g.resetDelta(), nil
	case o.base == nil && sameTallies(m, o.tallies):
		return o, nil
	}
	return &gcounter{tallies: m}, nil
}

func (g *gcounter) changes() change {
	if g.delta == nil {
		return nil
	}
	return whole{g.delta}
}

func (g *gcounter) resetDelta() core {
	if g.base == nil {
		return g
	}
	return &gcounter{tallies: g.tallies}
}

func (g *gcounter) pruned(self *Self, removed identity.Node) (core, error) {
	return &gcounter{tallies: g.tallies.prune(refOf(removed), self.ref)}, nil
}

func (g *gcounter) cleaned(removed identity.Node) (core, error) {
	return &gcounter{tallies: g.tallies.without(refOf(removed))}, nil
}
