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
)

// claimed is the claims of terms that are held. Higher ones take the place of lower ones.
type claimed []string

func claimsOf(s crdt.ORSet[string]) (claimed, error) {
	all, err := s.Elements()
	for _, c := range all {
		if termOf(c) == 0 {
			err = errors.Join(err, fmt.Errorf("sharding: %.64q is no claim", c))
		}
	}
	return all, err
}

func (r *Store) readClaims(ctx context.Context) (claimed, error) {
	s, err := r.data.ReadClaims(ctx)
	if err != nil {
		return nil, fmt.Errorf("sharding: read the claims: %w", err)
	}
	c, err := claimsOf(s)
	if err != nil {
		return nil, fmt.Errorf("sharding: read what is claimed: %w", err)
	}
	return c, nil
}

// highest returns the highest term, 0 if there is none.
func (c claimed) highest() uint64 {
	term := uint64(0)
	for _, claim := range c {
		term = max(term, termOf(claim))
	}
	return term
}

// against returns a claim other than own that is not lower than a term.
func (c claimed) against(term uint64, own string) string {
	for _, claim := range c {
		if claim != own && termOf(claim) >= term {
			return claim
		}
	}
	return ""
}

// termOf returns the term of a claim, 0 if it is none.
func termOf(claim string) uint64 {
	text, _, _ := strings.Cut(claim, " ")
	term, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return term
}
