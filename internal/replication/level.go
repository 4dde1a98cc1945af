// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"math"
)

// Level says how many replicas must have taken part in a request before it is
// answered. The node itself is one of them, but for a majority where it is Joining or WeaklyUp: as many others take part then
// as a majority of the others is. The zero value is Local.
type Level struct {
	Kind LevelKind
	// N is how many replicas, for Count; and how many more than the majority, for
	// MajorityPlus.
	N int
	// MinCap is what a majority is at least, as long as there are so many nodes.
	MinCap int
}

// LevelKind is a kind of levels.
type LevelKind uint8

// The kinds.
const (
	// Local is the node itself.
	Local LevelKind = iota
	// Count is a number of replicas, at least 2.
	Count
	// Majority is more than half of the nodes.
	Majority
	// MajorityPlus is some more than that. Nodes that are about to go do not count.
	MajorityPlus
	// All is all nodes. Nodes that are about to go do not count.
	All
)

func (k LevelKind) String() string {
	names := []string{"local", "count", "majority", "majority plus", "all"}
	if int(k) >= len(names) {
		return fmt.Sprintf("level(%d)", uint8(k))
	}
	return names[k]
}

// validate returns an error that matches ErrInvalid.
func (l Level) validate() error {
	switch {
	case l.Kind > All:
		return fmt.Errorf("%w: %v", ErrInvalid, l.Kind)
	case l.Kind == Count && l.N < 2:
		return fmt.Errorf("%w: a count of %d replicas, the least is 2", ErrInvalid, l.N)
	case l.N < 0 || l.N > math.MaxInt32 || l.MinCap < 0 || l.MinCap > math.MaxInt32:
		return fmt.Errorf("%w: level %v of %d, at least %d", ErrInvalid, l.Kind, l.N, l.MinCap)
	}
	return nil
}

// Required returns how many of n replicas must take part. For Count that may be
// more than there are.
func (l Level) Required(n int) int {
	switch l.Kind {
	case Count:
		return l.N
	case Majority:
		return min(n, max(n/2+1, l.MinCap))
	case MajorityPlus:
		return min(n, max(n/2+1+l.N, l.MinCap))
	case All:
		return n
	case Local:
	}
	return 1
}

// withoutExiting says that nodes that are about to go do not count.
func (l Level) withoutExiting() bool { return l.Kind == MajorityPlus || l.Kind == All }
