// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"errors"
	"slices"
	"strings"

	"github.com/refold-io/refold/journal"
)

const (
	// maxPart is how many bytes one statement carries, unless a single write
	// has more.
	maxPart = 64 << 20
	// maxSent is the most that a single write may have.
	maxSent = 256 << 20
	// rowOverhead is what an event has on its way besides its bytes.
	rowOverhead = 64
)

// chain is the writes of one ID that follow each other in one call: only the
// first can be in conflict with what is stored, so they are stored together or
// not at all.
type chain struct {
	id     string
	writes []int  // of the call
	one    [1]int // what writes usually is
	expect uint64 // of the first
	next   uint64 // what a further write must expect
	events int
	size   int
	broken bool // nothing can follow: a write behind it was refused
}

// batch is the writes of one call of Append on their way.
type batch struct {
	writes []journal.Write
	errs   []error // nil until a write has failed
	chains []*chain
	last   map[string]*chain // of each ID
}

// newBatch sorts out what can't be stored whatever the journal holds, and puts
// the rest in chains, ordered by ID: transactions that wait for
// each other's rows then do so in one direction.
func newBatch(writes []journal.Write) *batch {
	b := &batch{writes: writes, chains: make([]*chain, 0, len(writes))}
	if len(writes) > 1 {
		b.last = make(map[string]*chain, len(writes))
	}
	for i := range writes {
		if err := b.add(i, &writes[i]); err != nil {
			b.fail(i, err)
		}
	}
	slices.SortStableFunc(b.chains, func(x, y *chain) int { return strings.Compare(x.id, y.id) })
	return b
}

// add puts a write into a chain or says why it can't be stored.
func (b *batch) add(i int, w *journal.Write) error {
	before := b.last[w.ID]
	if before != nil && before.broken {
		return journal.ErrSkipped
	}
	size, err := checkWrite(w)
	if err == nil && before != nil && w.Expect != before.next {
		err = &journal.ConflictError{ID: w.ID, Expected: w.Expect, Highest: before.next}
	}
	switch {
	case err != nil && before != nil:
		before.broken = true
		return err
	case err != nil:
		if b.last != nil {
			b.last[w.ID] = &chain{broken: true}
		}
		return err
	case before == nil || before.size+size > maxPart:
		before = &chain{id: w.ID, expect: w.Expect}
		before.writes = before.one[:0]
		b.chains = append(b.chains, before)
		if b.last != nil {
			b.last[w.ID] = before
		}
	}
	before.writes = append(before.writes, i)
	before.events += len(w.Events)
	before.size += size
	before.next = w.Expect + uint64(len(w.Events))
	return nil
}

// parts yields groups of chains, each for one statement. Two chains of one ID
// never share a group, because together they are too large for it.
func (b *batch) parts(yield func([]*chain) bool) {
	rest := b.chains
	for len(rest) > 0 {
		n, size := 1, rest[0].size
		for n < len(rest) && size+rest[n].size <= maxPart {
			size += rest[n].size
			n++
		}
		if part := slices.DeleteFunc(slices.Clone(rest[:n]), b.failed); len(part) > 0 && !yield(part) {
			return
		}
		rest = rest[n:]
	}
}

// failed reports whether a chain stands behind one of its ID that has failed.
func (b *batch) failed(c *chain) bool { return b.errs != nil && b.errs[c.writes[0]] != nil }

// fail sets the outcome of a write.
func (b *batch) fail(i int, err error) {
	if b.errs == nil {
		b.errs = make([]error, len(b.writes))
	}
	b.errs[i] = err
}

// failChain sets the outcome of a chain that was not stored, or may not have
// been, and skips what stands behind it.
func (b *batch) failChain(c *chain, err error) {
	first := c.writes[0]
	if b.last != nil {
		for i := first + 1; i < len(b.writes); i++ {
			if b.writes[i].ID == c.id {
				b.fail(i, journal.ErrSkipped)
			}
		}
	}
	b.fail(first, err)
	if !journal.NotStored(err) || errors.Is(err, journal.ErrNotSent) {
		for _, i := range c.writes { // they share its fate
			b.fail(i, err)
		}
	}
}
