// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/big"
	"slices"

	"github.com/refold-io/refold/identity"
)

// GCounter is a counter that only grows. Each node has its own count, and the value is their sum.
// The zero value is 0. It is immutable.
type GCounter struct{ handle[GCounter] }

func (GCounter) empty(*Types) shape { return shape{kind: kindGCounter} }

func (c GCounter) core() *counter { return coreOf[*counter](c.handle) }

// Add returns the counter increased by n.
func (c GCounter) Add(self *Self, n uint64) GCounter {
	if n == 0 {
		return c
	}
	return c.add(self, n, nil)
}

// AddBig is Add for a number of any size. The error reports a negative number, or matches ErrLimit
// if n has more than 1,000 bits.
func (c GCounter) AddBig(self *Self, n *big.Int) (GCounter, error) {
	switch {
	case n.Sign() < 0:
		return c, errors.New("crdt: GCounter: negative increment, use PNCounter")
	case n.BitLen() > maxAdd:
		return c, ErrLimit
	case n.Sign() == 0:
		return c, nil
	}
	return c.add(self, 0, new(big.Int).Set(n)), nil
}

// maxAdd is the maximum size of an increment in bits, well below the maximum size of a count.
const maxAdd = 1000

func (c GCounter) add(self *Self, n uint64, more *big.Int) GCounter {
	return GCounter{handle[GCounter]{v: c.core().add(self, false, n, more), types: c.types}}
}

// Value returns the sum, or the largest uint64 if the sum is larger; see Big.
func (c GCounter) Value() uint64 {
	sum, _ := c.core().up.sum()
	return sum
}

// Big returns the sum. The caller owns the result.
func (c GCounter) Big() *big.Int { return c.core().big() }

// PNCounter is a counter that grows and shrinks. The zero value is 0. It is immutable.
type PNCounter struct{ handle[PNCounter] }

func (PNCounter) empty(*Types) shape { return shape{kind: kindPNCounter} }

func (c PNCounter) core() *counter { return coreOf[*counter](c.handle) }

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
	down, ok2 := p.down().sum()
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
func (c PNCounter) Big() *big.Int { return c.core().big() }

// counter is the untyped value of a GCounter or PNCounter: the increments and the decrements of
// each node. A GCounter has no decrements.
type counter struct {
	up    tallies
	minus *tallies // the decrements, nil for a GCounter
	delta *counter // the changed counts, nil if nothing has changed
	base  *counter // the value before the changes in delta; nil if delta is nil
}

// newCounter returns a counter of the kind of c.
func (c *counter) newCounter(up, down tallies) *counter {
	if c.minus == nil {
		return &counter{up: up}
	}
	minus := down // only a PNCounter needs the allocation
	return &counter{up: up, minus: &minus}
}

func (c *counter) down() tallies {
	if c.minus == nil {
		return nil
	}
	return *c.minus
}

// add returns the counter with the count of self increased by more, or by n if more is nil.
func (c *counter) add(self *Self, negative bool, n uint64, more *big.Int) *counter {
	made := &struct { // one allocation for all parts
		next, delta counter
		one         [1]tally
	}{next: *c}
	next := &made.next
	if c.delta != nil {
		made.delta = *c.delta
	} else if c.minus != nil {
		made.delta.minus = new(tallies)
	}
	next.delta = &made.delta
	side, changed := &next.up, &next.delta.up
	if negative {
		minus := &[2]tallies{*next.minus, *next.delta.minus}
		next.minus, next.delta.minus = &minus[0], &minus[1]
		side, changed = next.minus, next.delta.minus
	}
	*side, made.one[0] = side.add(self.ref, n, more)
	*changed = changed.max(made.one[:])
	if next.base == nil {
		next.base = c
	}
	return next
}

func (c *counter) big() *big.Int {
	up := c.up.bigSum()
	return up.Sub(up, c.down().bigSum())
}

func (c *counter) shape() shape {
	if c.minus == nil {
		return shape{kind: kindGCounter}
	}
	return shape{kind: kindPNCounter}
}

func (c *counter) eachNode(t *nodeTable) {
	c.up.eachNode(t)
	c.down().eachNode(t)
}

func (c *counter) encode(e *encoder) {
	e.tallies(c.up)
	if c.minus != nil {
		e.tallies(*c.minus)
	}
}

func (c *counter) decode(d *decoder) {
	c.up = d.tallies()
	if c.minus != nil {
		*c.minus = d.tallies()
	}
}

func (c *counter) needsPruning(removed identity.Node) bool {
	_, up := c.up.find(refOf(removed))
	_, down := c.down().find(refOf(removed))
	return up || down
}

func (c *counter) merge(other core) (core, error) {
	o, _ := other.(*counter)
	if o.base == c {
		return &counter{up: o.up, minus: o.minus}, nil
	}
	up, down := c.up.max(o.up), c.down().max(o.down())
	switch {
	case sameTallies(up, c.up) && sameTallies(down, c.down()):
		return c.resetDelta(), nil
	case o.base == nil && sameTallies(up, o.up) && sameTallies(down, o.down()):
		return o, nil
	}
	return c.newCounter(up, down), nil
}

// sameTallies reports whether a and b share memory.
func sameTallies(a, b tallies) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (c *counter) changes() change {
	if c.delta == nil {
		return nil
	}
	return whole{c.delta}
}

func (c *counter) resetDelta() core {
	if c.base == nil {
		return c
	}
	return &counter{up: c.up, minus: c.minus}
}

func (c *counter) pruned(self *Self, removed identity.Node) (core, error) {
	gone := refOf(removed)
	return c.newCounter(c.up.prune(gone, self.ref), c.down().prune(gone, self.ref)), nil
}

func (c *counter) cleaned(removed identity.Node) (core, error) {
	gone := refOf(removed)
	return c.newCounter(c.up.without(gone), c.down().without(gone)), nil
}

// PNCounterMap is a map from keys to counters. The zero value is empty. It is immutable. The
// caveats of ORMap apply: if one node removes a key while another node changes its count, the key
// stays with its whole count.
//
// K is an element type as described at GSet.
type PNCounterMap[K any] struct{ keyed[PNCounterMap[K], K] }

func (PNCounterMap[K]) empty(*Types) shape {
	return shape{kind: kindCounterMap, elem: kindOf[K](), of: &shape{kind: kindPNCounter}}
}

// Add returns the map with the counter of a key changed by n, which may be negative. If n is 0 and
// the key is missing, the key is added.
func (m PNCounterMap[K]) Add(self *Self, key K, n int64) (PNCounterMap[K], error) {
	c, k, err := m.entry(key)
	if err != nil {
		return m, err
	}
	p, _ := c.valueOrEmpty(k).(*counter)
	switch {
	case n == 0 && c.keys.items.has(k):
		return m, nil
	case n != 0:
		p = p.add(self, n < 0, magnitude(n), nil)
	}
	return m.of(c.put(self, k, p)), nil
}

// Get returns the counter of a key, and whether the key exists.
func (m PNCounterMap[K]) Get(key K) (PNCounter, bool) { return valueOf[PNCounter](m.keyed, key) }

// Value returns the count of a key, 0 if the key does not exist.
func (m PNCounterMap[K]) Value(key K) int64 {
	c, _ := m.Get(key)
	return c.Value()
}

// All yields the keys with their counters, with the order and errors of ORMap.All.
func (m PNCounterMap[K]) All() iter.Seq2[Entry[K, PNCounter], error] {
	return typedEntries[PNCounter](m.keyed)
}

// tally is the count of one node: n, or big if the count exceeds n. It is immutable.
type tally struct {
	node nodeRef
	n    uint64
	big  *big.Int // nil unless the count is above the largest n
}

// tallies are sorted by node and contain no zeros.
type tallies []tally

func (t tally) owner() nodeRef { return t.node }

func (t tally) int() *big.Int {
	if t.big != nil {
		return t.big
	}
	return new(big.Int).SetUint64(t.n)
}

func (t tally) compare(other tally) int {
	switch {
	case t.big == nil && other.big == nil:
		return cmp.Compare(t.n, other.n)
	case t.big == nil:
		return -1
	case other.big == nil:
		return 1
	}
	return t.big.Cmp(other.big)
}

// plus adds more, or n if more is nil. The count saturates at 1,024 bits.
func (t tally) plus(n uint64, more *big.Int) tally {
	if sum := t.n + n; more == nil && t.big == nil && sum >= t.n {
		return tally{t.node, sum, nil}
	}
	if more == nil {
		more = new(big.Int).SetUint64(n)
	}
	sum := new(big.Int).Add(t.int(), more)
	switch {
	case sum.IsUint64():
		return tally{t.node, sum.Uint64(), nil}
	case sum.BitLen() > maxCount*8:
		sum.Sub(sum.Lsh(big.NewInt(1), maxCount*8), big.NewInt(1))
	}
	return tally{t.node, 0, sum}
}

func (t tallies) find(node nodeRef) (int, bool) {
	return slices.BinarySearchFunc(t, node, func(t tally, n nodeRef) int { return compareRefs(t.node, n) })
}

// add returns the tallies with the count of one node increased, and the new tally of that node.
func (t tallies) add(node nodeRef, n uint64, more *big.Int) (tallies, tally) {
	i, found := t.find(node)
	one := tally{node: node}
	if found {
		one = t[i]
	}
	one = one.plus(n, more)
	return with(t, i, found, one), one
}

func (t tallies) without(node nodeRef) tallies {
	i, found := t.find(node)
	if !found {
		return t
	}
	return slices.Concat(t[:i], t[i+1:])
}

// covers reports whether no tally of other is higher.
func (t tallies) covers(other tallies) bool {
	i := 0
	for j := range other {
		for i < len(t) && compareRefs(t[i].node, other[j].node) < 0 {
			i++
		}
		if i == len(t) || t[i].node != other[j].node || t[i].compare(other[j]) < 0 {
			return false
		}
	}
	return true
}

// max returns the higher tally of each node. If the result equals t or other, max returns that list itself.
func (t tallies) max(other tallies) tallies {
	switch {
	case t.covers(other):
		return t
	case other.covers(t):
		return other
	}
	return mergeByNode(t, other)
}

// perNode is an element of a list that is sorted by node and has one element per node.
type perNode[E any] interface {
	owner() nodeRef
	compare(other E) int
}

// mergeByNode merges two lists. If both lists have an element of a node, the result has the higher one.
func mergeByNode[L ~[]E, E perNode[E]](a, b L) L {
	next := make(L, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		one, c := a[0], compareRefs(a[0].owner(), b[0].owner())
		if c > 0 || c == 0 && one.compare(b[0]) < 0 {
			one = b[0]
		}
		next = append(next, one)
		if c <= 0 {
			a = a[1:]
		}
		if c >= 0 {
			b = b[1:]
		}
	}
	return append(append(next, a...), b...)
}

func (t tallies) prune(removed, into nodeRef) tallies {
	i, found := t.find(removed)
	if !found || removed == into {
		return t
	}
	next, _ := t.without(removed).add(into, t[i].n, t[i].big)
	return next
}

func (t tallies) sum() (uint64, bool) {
	var sum uint64
	for _, one := range t {
		if one.big != nil || sum > math.MaxUint64-one.n {
			return math.MaxUint64, false
		}
		sum += one.n
	}
	return sum, true
}

func (t tallies) bigSum() *big.Int {
	sum := new(big.Int)
	for _, one := range t {
		sum.Add(sum, one.int())
	}
	return sum
}

func (t tallies) eachNode(table *nodeTable) {
	for _, one := range t {
		table.add(one.node)
	}
}

func (e *encoder) tallies(t tallies) {
	e.count(len(t))
	for _, one := range t {
		e.uint(e.nodes.index(one.node))
		if one.big != nil {
			e.bytes(one.big.Bytes())
			continue
		}
		b := binary.BigEndian.AppendUint64(nil, one.n)
		for b[0] == 0 {
			b = b[1:]
		}
		e.bytes(b)
	}
}

func (d *decoder) tallies() tallies {
	return byNode(d, d.Count(MaxNodes, 3, "counts"), "counts", func(node nodeRef) tally {
		b := d.Text(maxCount, "count")
		if len(b) == 0 || b[0] == 0 {
			d.Fail("a count is 0, or not in its shortest form")
		}
		if len(b) > 8 {
			return tally{node: node, big: new(big.Int).SetBytes(b)}
		}
		one := tally{node: node}
		for _, c := range b {
			one.n = one.n<<8 | uint64(c)
		}
		return one
	})
}
