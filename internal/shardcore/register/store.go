// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package register keeps the state of a coordinator in two keys of replicated data: the claims of terms, and a register with the
// state. The store in package sharding and the simulation drive it, each with its own way to the data.
//
// Whoever begins a term first writes a claim to a majority, and reads the state from one behind that. Whoever writes the state, to a
// majority, reads the claims from one behind that, and is acknowledged only if there is no higher one. So of a write and
// a claim, one sees the other: either the claimant reads what was written, or the writer reads the claim.
// Two that claim the same term both see each other, or one of them is not acknowledged.
package register

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// Store keeps the state of a coordinator, as one node reaches it. All methods are safe for concurrent use.
type Store struct {
	data  Data
	nonce string

	mu     sync.Mutex
	loaded bool
	term   uint64            // the last one that was claimed with this store, 0 is none
	holds  bool              // nothing is known of a higher one
	begun  coordinator.State // the state of the last term whose claim was unrivaled: it may be stored without that being heard
}

// New returns a store. The nonce tells apart those who claim a term on one node.
func New(data Data, nonce string) *Store { return &Store{data: data, nonce: nonce} }

// Load returns what is stored, and the number of the last event that is in it. All changes that were acknowledged before it
// began are in it. Its term is the highest one that anybody has claimed. If it is the state that a claim of this store was to
// write, the store holds the term, whatever Save has returned.
func (r *Store) Load(ctx context.Context) (state coordinator.State, rev uint64, err error) {
	found, highest, err := r.readAll(ctx)
	if err == nil && r.checkLost(highest) {
		found, highest, err = r.readAll(ctx)
	}
	if err != nil {
		return coordinator.State{}, 0, err
	}
	if highest > found.term {
		// Somebody has claimed it, and nobody knows yet who will hold it: the next one has to be higher.
		if found.state, err = found.state.Apply(coordinator.Event{Kind: coordinator.Started, Term: highest}); err != nil {
			return coordinator.State{}, 0, fmt.Errorf("sharding: lift the state to term %d: %w", highest, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded = true
	if found.term > r.term && found.state.Equal(r.begun) { // whoever asked takes it for acknowledged
		r.term, r.holds = found.term, true
	}
	return found.state, found.rev, nil
}

// readAll returns the state and the highest term. What is found is written back, and the claims are read behind
// that: then it is as good as if it had been acknowledged.
func (r *Store) readAll(ctx context.Context) (storedState, uint64, error) {
	h, err := r.read(ctx, true)
	if err != nil {
		return storedState{}, 0, err
	}
	claims, err := r.readClaims(ctx)
	return h, max(h.term, claims.highest()), err
}

// lost reports whether this store held a term until a higher one was there.
func (r *Store) checkLost(highest uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.holds || highest <= r.term {
		return false
	}
	r.holds = false
	return true
}

// sees reports whether this store sees what it has written itself, by reading from a majority. Before it holds a term it reads
// from more.
func (r *Store) holdsTerm() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holds
}

// Save stores a change that is based on what is stored, and that is not empty. What nil and the errors say is what they say in
// package sharding.
func (r *Store) Save(ctx context.Context, c coordinator.Change) error {
	r.mu.Lock()
	loaded, term := r.loaded, r.term
	r.mu.Unlock()
	switch {
	case !loaded:
		return fmt.Errorf("%w: nothing was loaded", ErrConflict)
	case isClaim(&c):
		return r.claim(ctx, &c)
	case c.Term < term:
		return fmt.Errorf("%w: term %d, and there is term %d", ErrFenced, c.Term, term)
	case c.Term > term:
		return fmt.Errorf("%w: term %d was not claimed here", ErrConflict, c.Term)
	}
	return r.write(ctx, &c)
}

// claims reports whether a change begins its term.
func isClaim(c *coordinator.Change) bool { return c.Events[0].Kind == coordinator.Started }

var (
	// ErrFenced says that there is a higher term.
	ErrFenced = errors.New("sharding: fenced: another one has taken over")
	// ErrConflict says that a change was refused, since something else is stored than it is based on.
	ErrConflict = errors.New("sharding: conflict: something else is stored")
	// ErrInvalid is matched by the errors about arguments that can't be.
	ErrInvalid = errors.New("sharding: invalid argument")
)

// Data is the replicated data. Each read and each change is of a majority of the nodes, the oldest ones first, and is tried until
// there is one or the context ends. A key that is not there is empty.
type Data interface {
	// Self is the node that changes.
	Self() *crdt.Self
	// ReadClaims reads the claims of terms.
	ReadClaims(ctx context.Context) (crdt.ORSet[string], error)
	// ChangeClaims changes them. It may call modify again with what that has returned.
	ChangeClaims(ctx context.Context, modify func(crdt.ORSet[string]) (crdt.ORSet[string], error)) error
	// ReadState reads the state. More asks for ReadPlus nodes more than a majority, repair for as many nodes that have what is
	// returned.
	ReadState(ctx context.Context, more, repair bool) (crdt.LWWRegister[[]byte], error)
	// ChangeState changes it. It may call modify again with what that has returned.
	ChangeState(ctx context.Context, modify func(crdt.LWWRegister[[]byte]) (crdt.LWWRegister[[]byte], error)) error
}

// ReadPlus is how many nodes more than a majority are read before a term begins. That is rare, comes after
// nodes have left, and finds what was written while there were more of them, or others.
const ReadPlus = 5
