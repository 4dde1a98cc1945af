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

// Self is the node on whose behalf values are changed: its identity, its change counter and its
// clock. Each incarnation of a node has exactly one Self, so that no two changes in a cluster have
// the same node and number. A replicator owns it and passes it to its users.
//
// Self changes with each use and is not safe for concurrent use. Only the loop of its replicator,
// and the functions that the loop calls, may use it.
type Self struct {
	node    identity.Node
	ref     nodeRef // the same node
	dots    uint64  // the number of the last change
	now     int64   // Unix milliseconds
	last    int64   // the highest timestamp of the default clock
	reverse int64   // the lowest timestamp of the reverse clock
}

// drift limits the effect of a wrong timestamp: one day, in milliseconds. A timestamp of a register
// advances the timestamps of other registers only if it is ahead of the clock by less than drift.
const drift = 24 * 60 * 60 * 1000

// NewSelf returns the Self of a node that has just started. The error matches identity.ErrInvalid
// if the node is invalid.
func NewSelf(node identity.Node) (*Self, error) {
	if err := identity.CheckName(node.Name); err != nil {
		return nil, fmt.Errorf("crdt: self: %w", err)
	}
	if node.UID == 0 {
		return nil, fmt.Errorf("crdt: self: %w: node %q has no UID", identity.ErrInvalid, node.Name)
	}
	return &Self{node: node, ref: refOf(node)}, nil
}

// Node returns the node.
func (s *Self) Node() identity.Node { return s.node }

// Advance sets the time for the clocks of registers. Call it before changing values. A clock that
// is set back is harmless.
func (s *Self) Advance(now time.Time) { s.now = now.UnixMilli() }

func (s *Self) next() dot {
	s.dots++
	return dot{s.ref, s.dots}
}

// after returns the current time, or a later time if that is necessary: the result is higher than
// current and than all timestamps that after has returned.
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

// before is like after, but for negated times: the result is lower than current and than all
// timestamps that before has returned.
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

// nodeRef is a node inside a value. Values refer to the same few nodes very often, so a reference
// is an interned handle of one word. The zero nodeRef stands for no node.
type nodeRef = unique.Handle[identity.Node]

func refOf(n identity.Node) nodeRef { return unique.Make(n) }

// nodeOf returns the node of a reference, the zero Node for the zero reference.
func nodeOf(m nodeRef) identity.Node {
	if m == (nodeRef{}) {
		return identity.Node{}
	}
	return m.Value()
}

// compareRefs compares two references like identity.Node.Compare. Either both references are zero or none is.
func compareRefs(a, b nodeRef) int {
	if a == b {
		return 0
	}
	return a.Value().Compare(b.Value())
}
