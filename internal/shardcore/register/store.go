// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package register stores the state of a coordinator in two keys of replicated data: the claims of
// terms, and a register with the state. The store of package sharding and the simulation use it
// with their own implementations of Data.
//
// To begin a term, a node writes a claim to a majority and then reads the state from a majority. To
// write the state, a node writes it to a majority and then reads the claims from a majority; the
// write is acknowledged only if there is no higher claim. Hence a write and a concurrent claim
// cannot miss each other: the claiming node reads the written state, or the writing node reads the
// claim. Of two claims of the same term, at most one is acknowledged.
package register

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// Store stores the state of a coordinator, as one node accesses it. All methods are safe for
// concurrent use.
type Store struct {
	data  Data
	nonce string

	mu     sync.Mutex
	loaded bool
	term   uint64            // last term claimed by this store, 0 if none
	holds  bool              // the store has found no higher term
	begun  coordinator.State // state of the last claim without a rival; it may be stored although it was not acknowledged
}

// New returns a store. The nonce distinguishes several stores of one node that claim the same term.
func New(data Data, nonce string) *Store { return &Store{data: data, nonce: nonce} }

// Load returns the stored state, the number of the last event in it, and the highest claimed term.
// The state includes all changes that were acknowledged before the call. If a claim of this store
// wrote the state, the store holds the term, even if Save returned an error.
func (r *Store) Load(ctx context.Context) (state coordinator.State, rev, claimed uint64, err error) {
	found, highest, err := r.readAll(ctx)
	if err == nil && r.checkLost(highest) {
		found, highest, err = r.readAll(ctx)
	}
	if err != nil {
		return coordinator.State{}, 0, 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded = true
	if found.term > r.term && found.state.Claimed(highest).Equal(r.begun) { // the caller regards the claim as acknowledged
		r.term, r.holds = found.term, true
	}
	return found.state, found.rev, highest, nil
}

// readAll returns the state and the highest term. It writes the state back to a majority before it
// reads the claims. Afterwards the state is as durable as an acknowledged state.
func (r *Store) readAll(ctx context.Context) (storedState, uint64, error) {
	h, err := r.read(ctx, true)
	if err != nil {
		return storedState{}, 0, err
	}
	claims, err := r.readClaims(ctx)
	return h, max(h.term, claims.highest()), err
}

// checkLost reports whether this store held a term that is lower than highest.
func (r *Store) checkLost(highest uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.holds || highest <= r.term {
		return false
	}
	r.holds = false
	return true
}

// Save stores a change that is based on the stored state and is not empty. Its results have the
// same meaning as in package sharding.
func (r *Store) Save(ctx context.Context, c coordinator.Change) error {
	r.mu.Lock()
	loaded, term := r.loaded, r.term
	r.mu.Unlock()
	switch {
	case !loaded:
		return fmt.Errorf("%w: not loaded", ErrConflict)
	case c.IsClaim():
		return r.claim(ctx, &c)
	case c.Term < term:
		return fmt.Errorf("%w: term %d: term %d exists", ErrFenced, c.Term, term)
	case c.Term > term:
		return fmt.Errorf("%w: term %d was not claimed by this node", ErrConflict, c.Term)
	}
	return r.write(ctx, &c)
}

var (
	// ErrFenced reports a higher term.
	ErrFenced = errors.New("sharding: fenced: a higher term or another owner has taken over")
	// ErrConflict reports that the change is not based on the stored data.
	ErrConflict = errors.New("sharding: conflict: the stored data has changed")
	// ErrInvalid is matched by errors about invalid arguments.
	ErrInvalid = errors.New("sharding: invalid argument")
)

// Data is the replicated data. Each read and each change involves a majority of the nodes, the
// oldest ones first, and is repeated until it succeeds or the context ends. A missing key is empty.
type Data interface {
	// Self identifies the node that writes.
	Self() *crdt.Self
	// ReadClaims reads the claims of terms.
	ReadClaims(ctx context.Context) (crdt.ORSet[string], error)
	// ChangeClaims updates the claims. It may call modify again with the result of the previous
	// call.
	ChangeClaims(ctx context.Context, modify func(crdt.ORSet[string]) (crdt.ORSet[string], error)) error
	// ReadState reads the state. If more is set, it reads from ReadPlus nodes in addition to a
	// majority. If repair is set, it writes the result back to the same number of nodes.
	ReadState(ctx context.Context, more, repair bool) (crdt.LWWRegister[[]byte], error)
	// ChangeState updates the state. It may call modify again with the result of the previous call.
	ChangeState(ctx context.Context, modify func(crdt.LWWRegister[[]byte]) (crdt.LWWRegister[[]byte], error)) error
}

// ReadPlus is the number of nodes that are read in addition to a majority before a term begins.
// Terms begin rarely, after nodes have left. The additional reads find data that was written while
// the cluster had more nodes, or other nodes.
const ReadPlus = 5
