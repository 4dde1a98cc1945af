// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
)

// Input is an input of a resolver: a View, a LeaseAnswer, a LeaseLost, a LeaseReleased or a Link.
type Input interface{ input() }

// LeaseAnswer answers AskLease. There must be exactly one for each.
type LeaseAnswer struct {
	// Held is true if the lease is certainly held. After an error it is false.
	Held bool
	// Owner is the node that holds it instead, zero if unknown.
	Owner identity.Node
}

// LeaseLost reports the loss of the held lease. The resolver acquires it again until it is
// released: the other side may still be about to decide and must not acquire it.
type LeaseLost struct{}

// LeaseReleased answers ReleaseLease.
type LeaseReleased struct {
	// Done is false if the lease may still be held. Then the release is repeated.
	Done bool
}

// Link reports whether the node is connected. While it is not, the resolver takes no decision. When
// it is connected again, StableAfter restarts. The initial state is connected.
type Link struct{ Up bool }

func (LeaseAnswer) input()   {}
func (LeaseLost) input()     {}
func (LeaseReleased) input() {}
func (Link) input()          {}

// Effects are the effects of a resolver, in the order of the fields.
type Effects struct {
	// Notes are for the log and the counters.
	Notes []Note
	// ReleaseLease releases the lease. LeaseReleased is the answer. Operations on the lease run one
	// after another.
	ReleaseLease bool
	// AskLease acquires the lease in the name of this node. LeaseAnswer is the answer, at once if
	// the lease is held.
	AskLease bool
	// Down marks these members as down, in this order. This node is the last, because it ends then.
	// The caller owns the slice.
	Down []identity.Node
}

// NoteKind is the kind of a note.
type NoteKind uint8

const (
	// Decided means that a decision downs nodes.
	Decided NoteKind = 1 + iota
	// Unstable means that the reachability does not become stable, so all members are downed.
	Unstable
	// WithoutLease means that the lease was not acquired, so the decision was reversed.
	WithoutLease
	// Outgrown means that there are more members than a static quorum allows. The next unreachable
	// member downs all.
	Outgrown
	// Automatic means that nodes are downed without a strategy. It is also reported once at the
	// start, without nodes, as a warning.
	Automatic
	// Orphaned means that all members that accepted this node are Down, so it downs itself.
	Orphaned
	// LeftToOwner means that a member of this side holds the lease, so this node waits for its decision.
	LeftToOwner
)

func (k NoteKind) String() string {
	return enum.Name(k, "note",
		"", "decided", "unstable", "without lease", "outgrown", "automatic", "orphaned", "left to the owner")
}

// Note describes an action of a resolver.
type Note struct {
	Kind NoteKind
	// Decision is the decision, in all notes except Outgrown, Automatic and LeftToOwner.
	Decision Decision
	// Down are the downed nodes, sorted.
	Down []identity.Node
	// Here and There are the numbers of counted members on this side and on the other.
	Here, There int
}
