// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"fmt"

	"github.com/refold-io/refold/identity"
)

// Input is what a resolver is told: a View, a LeaseAnswer, a LeaseLost, a LeaseReleased or a
// Link.
type Input interface{ input() }

// LeaseAnswer answers AskLease. There must be exactly one for each.
type LeaseAnswer struct {
	// Held is true if the lease is surely held: an error is false.
	Held bool
	// Owner is the node that has it instead, zero if that is not known.
	Owner identity.Node
}

// LeaseLost says that the lease, which was held, is no longer. It is asked for again until it is
// released: the other side may still be about to decide, and must not get it.
type LeaseLost struct{}

// LeaseReleased answers ReleaseLease.
type LeaseReleased struct {
	// Done is false if the lease may still be held; the release is repeated then.
	Done bool
}

// Link says whether the node has a link to the others at all. Without it nothing
// is decided, and with it the time of stability begins anew. It is there at first.
type Link struct{ Up bool }

func (LeaseAnswer) input()   {}
func (LeaseLost) input()     {}
func (LeaseReleased) input() {}
func (Link) input()          {}

// Effects are what a resolver wants done, in the order of the fields.
type Effects struct {
	// Notes are for the log and the counters.
	Notes []Note
	// ReleaseLease: release the lease, and answer with LeaseReleased. Operations on the lease
	// are carried out one after the other.
	ReleaseLease bool
	// AskLease: acquire the lease in the name of this node, and answer with LeaseAnswer; at
	// once if Lease.Check says that it is held.
	AskLease bool
	// Down: mark these members as down, in this order. This node is the last, since it
	// ends itself then. The slice is the caller's.
	Down []identity.Node
}

// NoteKind tells the notes apart.
type NoteKind uint8

const (
	// Decided says that a decision downs nodes.
	Decided NoteKind = 1 + iota
	// Unstable says that the reachability does not come to rest, so all go down.
	Unstable
	// WithoutLease says that the lease was not to be had, so the decision was reversed.
	WithoutLease
	// Outgrown says that there are more members than a static quorum allows. As soon as one of them is
	// unreachable, all go down.
	Outgrown
	// Automatic says that nodes are downed without asking anybody. It comes once without nodes at the
	// start, as a warning.
	Automatic
	// Orphaned says that those who let this node in have all given up, so it does, too.
	Orphaned
	// LeftToOwner says that a member of this side has the lease, so the decision is waited for that it takes.
	LeftToOwner
)

func (k NoteKind) String() string {
	switch k {
	case Decided:
		return "decided"
	case Unstable:
		return "unstable"
	case WithoutLease:
		return "without lease"
	case Outgrown:
		return "outgrown"
	case Automatic:
		return "automatic"
	case Orphaned:
		return "orphaned"
	case LeftToOwner:
		return "left to the owner"
	}
	return fmt.Sprintf("note(%d)", uint8(k))
}

// Note tells an operator what a resolver did, and why.
type Note struct {
	Kind NoteKind
	// Decision is what was carried out, for all but Outgrown, Automatic and LeftToOwner.
	Decision Decision
	// Down is whom that downs, sorted.
	Down []identity.Node
	// Here and There are how many counted members this side has, and the other one.
	Here, There int
}
