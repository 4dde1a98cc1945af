// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"math"

	"github.com/refold-io/refold/internal/enum"
)

// Level is the number of replicas that must take part in a request before it is answered. The node
// itself is one of them, unless it is Joining or WeaklyUp and the level is a majority: then a
// majority of the other nodes takes part. The zero value is Local.
type Level struct {
	Kind LevelKind
	// N is the number of replicas for Count, and the number beyond the majority for MajorityPlus.
	N int
	// MinCap is the minimum of a majority, limited by the number of nodes.
	MinCap int
}

// LevelKind is the kind of a level.
type LevelKind uint8

// The kinds.
const (
	// Local is the node itself.
	Local LevelKind = iota
	// Count is a number of replicas, at least 2.
	Count
	// Majority is more than half of the nodes.
	Majority
	// MajorityPlus is N nodes more than a majority. Exiting nodes do not count.
	MajorityPlus
	// All is all nodes. Exiting nodes do not count.
	All
)

func (k LevelKind) String() string {
	return enum.Name(k, "level", "local", "count", "majority", "majority plus", "all")
}

func (l Level) validate() error {
	switch {
	case l.Kind > All:
		return Errorf(ErrInvalid, "%v", l.Kind)
	case l.Kind == Count && l.N < 2:
		return Errorf(ErrInvalid, "count of %d replicas, minimum 2", l.N)
	case l.N < 0 || l.N > math.MaxInt32 || l.MinCap < 0 || l.MinCap > math.MaxInt32:
		return Errorf(ErrInvalid, "level %v with N %d and MinCap %d", l.Kind, l.N, l.MinCap)
	}
	return nil
}

// Required returns how many of n replicas must take part. For Count it may exceed n.
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

func (l Level) withoutExiting() bool { return l.Kind == MajorityPlus || l.Kind == All }
