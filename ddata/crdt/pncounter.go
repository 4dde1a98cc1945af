// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"fmt"
	"math"
	"math/big"

	"github.com/refold-io/refold/identity"
)

// PNCounter is a counter that grows and shrinks. The zero value is 0. It is immutable.
type PNCounter struct{ handle[PNCounter] }

func (PNCounter) empty(*Types) shape { return shape{kind: kindPNCounter} }

func (c PNCounter) core() *pncounter {
	if p, ok := c.v.(*pncounter); ok {
		return p
	}
	return &pncounter{}
}

// Add returns the counter changed by n, which may be negative.
func (c PNCounter) Add(self *Self, n int64) PNCounter {
	if n == 0 {
		return c
	}
	return c.of(c.core().add(self, n < 0, magnitude(n), nil))
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n) //nolint:gosec // two's complement
	}
	return uint64(n)
}

// AddBig is Add for a number of any size. The error matches ErrLimit if n has more than 1,000 bits.
func (c PNCounter) AddBig(self *Self, n *big.Int) (PNCounter, error) {
	switch {
	case n.BitLen() > maxAdd:
		return c, fmt.Errorf("%w: increment has %d bits", ErrLimit, n.BitLen())
	case n.Sign() == 0:
		return c, nil
	}
	return c.of(c.core().add(self, n.Sign() < 0, 0, new(big.Int).Abs(n))), nil
}

// Value returns the count, or the nearest int64 if it does not fit; see Big.
func (c PNCounter) Value() int64 {
	p := c.core()
	up, ok1 := p.up.sum()
	down, ok2 := p.down.sum()
	switch {
	case !ok1 || !ok2:
		return clamp(c.Big())
	case up >= down:
		return int64(min(up-down, math.MaxInt64))
	case down-up > math.MaxInt64:
		return math.MinInt64
	}
	return -int64(down - up) //nolint:gosec // checked
}

func clamp(b *big.Int) int64 {
	switch {
	case b.IsInt64():
		return b.Int64()
	case b.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// Big returns the count. The caller owns the result.
func (c PNCounter) Big() *big.Int {
	p := c.core()
	up := p.up.bigSum()
	return up.Sub(up, p.down.bigSum())
}

// pncounter is the untyped value of a PNCounter: the increments and the decrements of each node.
type pncounter struct {
	up, down           tallies
	deltaUp, deltaDown tallies
	base               *pncounter // the value when both deltas were empty; nil if they are empty
}

func (p *pncounter) add(self *Self, negative bool, n uint64, more *big.Int) *pncounter {
	next := *p
	if next.base == nil {
		next.base = p
	}
	side, delta := &next.up, &next.deltaUp
	if negative {
		side, delta = &next.down, &next.deltaDown
	}
	var one tally
	*side, one = side.add(self.ref, n, more)
	if len(*delta) == 0 {
		*delta = tallies{one}
	} else {
		*delta = delta.max(tallies{one})
	}
	return &next
}

func (p *pncounter) shape() shape { return shape{kind: kindPNCounter} }

func (p *pncounter) eachNode(t *nodeTable) {
	p.up.eachNode(t)
	p.down.eachNode(t)
}

func (p *pncounter) encode(e *encoder) {
	e.tallies(p.up)
	e.tallies(p.down)
}

func (p *pncounter) needsPruning(removed identity.Node) bool {
	return p.up.has(refOf(removed)) || p.down.has(refOf(removed))
}

func (p *pncounter) merge(other core) (core, error) {
	o, _ := other.(*pncounter)
	m := &pncounter{up: p.up.max(o.up), down: p.down.max(o.down)}
	if sameTallies(m.up, p.up) && sameTallies(m.down, p.down) {
		return p.resetDelta(), nil
	}
	return m, nil
}

// sameTallies reports whether a and b share memory.
func sameTallies(a, b tallies) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (p *pncounter) changes() change {
	if len(p.deltaUp)+len(p.deltaDown) == 0 {
		return nil
	}
	return whole{&pncounter{up: p.deltaUp, down: p.deltaDown}}
}

func (p *pncounter) resetDelta() core {
	if p.base == nil {
		return p
	}
	return &pncounter{up: p.up, down: p.down}
}

func (p *pncounter) pruned(self *Self, removed identity.Node) (core, error) {
	return &pncounter{up: p.up.prune(refOf(removed), self.ref), down: p.down.prune(refOf(removed), self.ref)}, nil
}

func (p *pncounter) cleaned(removed identity.Node) (core, error) {
	return &pncounter{up: p.up.without(refOf(removed)), down: p.down.without(refOf(removed))}, nil
}
