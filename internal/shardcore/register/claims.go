// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package register

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// claimSet is the set of stored claims. Higher claims replace lower ones.
type claimSet []string

func claimsOf(s crdt.ORSet[string]) (claimSet, error) {
	all, err := s.Elements()
	for _, c := range all {
		if termOf(c) == 0 {
			err = errors.Join(err, fmt.Errorf("sharding: malformed claim %.64q", c))
		}
	}
	return all, err
}

func (r *Store) readClaims(ctx context.Context) (claimSet, error) {
	s, err := r.data.ReadClaims(ctx)
	if err != nil {
		return nil, fmt.Errorf("sharding: read the claims: %w", err)
	}
	c, err := claimsOf(s)
	if err != nil {
		return nil, fmt.Errorf("sharding: decode the claims: %w", err)
	}
	return c, nil
}

// highest returns the highest term, 0 without claims.
func (c claimSet) highest() uint64 {
	term := uint64(0)
	for _, claim := range c {
		term = max(term, termOf(claim))
	}
	return term
}

// conflicting returns a claim other than own whose term is not lower.
func (c claimSet) conflicting(term uint64, own string) string {
	for _, claim := range c {
		if claim != own && termOf(claim) >= term {
			return claim
		}
	}
	return ""
}

// termOf returns the term of a claim, 0 if it is malformed.
func termOf(claim string) uint64 {
	text, _, _ := strings.Cut(claim, " ")
	term, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return term
}

type storedState struct {
	state     coordinator.State
	term, rev uint64
}

func (r *Store) read(ctx context.Context, repair bool) (storedState, error) {
	r.mu.Lock()
	more := !r.holds // a store that holds a term is sure to find its own writes in a majority
	r.mu.Unlock()
	register, err := r.data.ReadState(ctx, false, repair)
	if err == nil && more {
		// Leaving nodes count in a majority, but not among more nodes. A write to a majority may have
		// reached leaving nodes only.
		majority := register
		if register, err = r.data.ReadState(ctx, true, repair); majority.Timestamp() > register.Timestamp() {
			register = majority
		}
	}
	if err != nil {
		return storedState{}, fmt.Errorf("sharding: read the state: %w", err)
	}
	if !register.IsSet() {
		return storedState{}, nil
	}
	value, err := register.Value()
	if err != nil {
		return storedState{}, fmt.Errorf("sharding: decode the state: %w", err)
	}
	var h storedState
	if h.state, err = coordinator.DecodeState(value); err != nil {
		return storedState{}, fmt.Errorf("sharding: decode the state: %w", err)
	}
	h.term, h.rev = unpack(register.Timestamp())
	return h, nil
}

// The clock of a register is one number: the term in the high bits, and the number of the last
// event.
const (
	revBits = 36
	maxTerm = 1<<(63-revBits) - 1
	maxRev  = 1<<revBits - 1
)

func pack(term, rev uint64) (int64, error) {
	if term > maxTerm || rev > maxRev {
		return 0, fmt.Errorf("%w: term %d, event %d: the limits are %d and %d", ErrInvalid, term, rev, maxTerm, uint64(maxRev))
	}
	return int64(term<<revBits | rev), nil //nolint:gosec // it has 63 bits
}

func unpack(timestamp int64) (term, rev uint64) {
	t := uint64(max(timestamp, 0))
	return t >> revBits, t & maxRev
}
