// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"fmt"
	"math"
	"time"
	"unique"

	"github.com/refold-io/refold/identity"
)

// Self is the node on whose behalf values are changed: who it is, the numbers of
// its changes, and its clock. There is one for each incarnation of a node, and
// all that it changes is numbered by it, so that no two changes of a cluster have
// the same number and node. A replicator has one; its users take that.
//
// Self changes with each use. It is not safe for concurrent use: only the loop
// of its replicator uses it, and what that calls.
type Self struct {
	node    identity.Node
	ref     nodeRef // the same
	dots    uint64  // the number of the last change
	now     int64   // Unix milliseconds
	last    int64   // the highest timestamp of the default clock
	reverse int64   // the lowest one of the reverse clock
}

// drift is how far a register's timestamp may be ahead of the clock to be carried
// over to other registers: a day. One damaged register does not spoil the others.
const drift = 24 * 60 * 60 * 1000

// NewSelf returns the Self of a node that has just started. The error matches
// identity.ErrInvalid if there can't be such a node.
func NewSelf(node identity.Node) (*Self, error) {
	if err := identity.CheckName(node.Name); err != nil {
		return nil, fmt.Errorf("crdt: self: %w", err)
	}
	if node.UID == 0 {
		return nil, fmt.Errorf("crdt: self: %w: node %q has no UID", identity.ErrInvalid, node.Name)
	}
	return &Self{node: node, ref: refOf(node)}, nil
}

// Node returns who it is.
func (s *Self) Node() identity.Node { return s.node }

// Advance says what time it is, for the clocks of registers. It is called before
// values are changed; a clock that goes back does no harm.
func (s *Self) Advance(now time.Time) { s.now = now.UnixMilli() }

// next numbers one change.
func (s *Self) next() dot {
	s.dots++
	return dot{s.ref, s.dots}
}

// after returns a timestamp above current and above all that it has returned, the
// time if that is higher.
func (s *Self) after(current int64) (int64, error) {
	if current == math.MaxInt64 {
		return 0, ErrClock
	}
	s.last = max(s.now, s.last+1)
	t := max(s.last, current+1)
	if t-s.last < drift {
		s.last = t
	}
	return t, nil
}

// before is after with the time running backwards.
func (s *Self) before(current int64) (int64, error) {
	if current == math.MinInt64 {
		return 0, ErrClock
	}
	s.reverse = min(-s.now, s.reverse-1)
	t := min(s.reverse, current-1)
	if s.reverse-t < drift {
		s.reverse = t
	}
	return t, nil
}

// member is a node within a value. Values are full of the same few nodes: as one word each they take little memory, and the
// garbage collector does not have to look at each of their names. The zero member is no node.
type nodeRef = unique.Handle[identity.Node]

func refOf(n identity.Node) nodeRef { return unique.Make(n) }

// nodeOf returns the node of a member, the zero Node if it is none.
func nodeOf(m nodeRef) identity.Node {
	if m == (nodeRef{}) {
		return identity.Node{}
	}
	return m.Value()
}

// compareRefs is identity.Node.Compare. None of them may be the zero member, unless both are.
func compareRefs(a, b nodeRef) int {
	if a == b {
		return 0
	}
	return a.Value().Compare(b.Value())
}
