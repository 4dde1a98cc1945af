// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"iter"
	"slices"

	"github.com/refold-io/refold/identity"
)

// Order is the order of two vector clocks.
type Order uint8

// The orders: the first clock contains the same changes as the second clock, fewer, more, or each
// clock contains changes that the other one does not.
const (
	Same Order = iota
	Before
	After
	Concurrent
)

func (o Order) String() string {
	return [...]string{"same", "before", "after", "concurrent"}[o&3]
}

// Clock is a vector clock: the number of changes of each node that a state contains. It is sorted
// by node and immutable. A missing node has 0 changes.
type Clock []Tick

// Tick is the number of changes of a node, at least 1.
type Tick struct {
	Node  identity.Node
	Count uint64
}

// Compare returns the order of c and other, in one pass.
func (c Clock) Compare(other Clock) Order {
	less, more := false, false
	for x, y := range Pairs(c, other, compareTicks) {
		switch {
		case y == nil:
			more = true
		case x == nil:
			less = true
		default:
			less = less || x.Count < y.Count
			more = more || x.Count > y.Count
		}
		if less && more {
			return Concurrent
		}
	}
	switch {
	case less:
		return Before
	case more:
		return After
	}
	return Same
}

// Merge returns the maximum for each node.
func (c Clock) Merge(other Clock) Clock {
	return merge(c, other, compareTicks, func(x, y *Tick) Tick { return Tick{x.Node, max(x.Count, y.Count)} })
}

// Add returns a clock with one more change of a node.
func (c Clock) Add(n identity.Node) Clock {
	i, found := c.find(n)
	if !found {
		return slices.Insert(slices.Clone(c), i, Tick{n, 1})
	}
	added := slices.Clone(c)
	added[i].Count++
	return added
}

// Without returns a clock without the nodes for which gone returns true.
func (c Clock) Without(gone func(identity.Node) bool) Clock {
	if !slices.ContainsFunc(c, func(t Tick) bool { return gone(t.Node) }) {
		return c
	}
	return slices.DeleteFunc(slices.Clone(c), func(t Tick) bool { return gone(t.Node) })
}

// Of returns the number of changes of a node.
func (c Clock) Of(n identity.Node) uint64 {
	if i, found := c.find(n); found {
		return c[i].Count
	}
	return 0
}

func (c Clock) find(n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(c, n, func(t Tick, n identity.Node) int { return t.Node.Compare(n) })
}

// Digest represents a clock or a seen set in messages. Equal digests mean equal values. The zero
// value represents no value.
type Digest [16]byte

// String returns the first bytes in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:4]) }

// Digest returns the digest of the clock.
func (c Clock) Digest() (d Digest) {
	h := sha256.New()
	b := make([]byte, 0, digested)
	for _, t := range c {
		if len(b) > digested-identity.MaxNameLength-3*binary.MaxVarintLen64 {
			h.Write(b)
			b = b[:0]
		}
		b = binary.AppendUvarint(b, uint64(len(t.Node.Name)))
		b = append(b, t.Node.Name...)
		b = binary.LittleEndian.AppendUint64(b, t.Node.UID)
		b = binary.AppendUvarint(b, t.Count)
	}
	h.Write(b)
	copy(d[:], h.Sum(b[:0]))
	return d
}

// digested is how many bytes are hashed at a time.
const digested = 2048

// SeenDigest returns the digest of the set of members that have seen the gossip. The digest
// identifies these members only together with the clock.
func (g Gossip) SeenDigest() Digest { return digest(encodeBitmap(g.seen)) }

func digest(b []byte) (d Digest) {
	sum := sha256.Sum256(b)
	copy(d[:], sum[:])
	return d
}

// Pairs iterates over two lists with the same order. It yields each element of a with the matching
// element of b. If an element has no match, the other value is nil.
func Pairs[T any](a, b []T, compare func(a, b *T) int) iter.Seq2[*T, *T] {
	return func(yield func(a, b *T) bool) {
		for len(a)+len(b) > 0 {
			var ofA, ofB *T
			order := cmp.Compare(len(b), len(a)) // if one list has ended
			if len(a) > 0 && len(b) > 0 {
				order = compare(&a[0], &b[0])
			}
			if order <= 0 {
				ofA, a = &a[0], a[1:]
			}
			if order >= 0 {
				ofB, b = &b[0], b[1:]
			}
			if !yield(ofA, ofB) {
				return
			}
		}
	}
}

// merge returns the union of two lists with the same order. later chooses one of two matching
// elements.
func merge[T any](a, b []T, compare func(a, b *T) int, later func(a, b *T) T) []T {
	if len(a)+len(b) == 0 {
		return nil
	}
	merged := make([]T, 0, max(len(a), len(b)))
	for x, y := range Pairs(a, b, compare) {
		switch {
		case y == nil:
			merged = append(merged, *x)
		case x == nil:
			merged = append(merged, *y)
		default:
			merged = append(merged, later(x, y))
		}
	}
	return merged
}

func compareTicks(a, b *Tick) int { return a.Node.Compare(b.Node) }

// compareMembers is fast for shared members.
func compareMembers(a, b **identity.Member) int {
	if *a == *b {
		return 0
	}
	return (*a).Node.Compare((*b).Node)
}
