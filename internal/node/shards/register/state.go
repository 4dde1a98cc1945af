// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package register

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// held is a state and its clock.
type held struct {
	state     coordinator.State
	term, rev uint64
}

func (r *Store) read(ctx context.Context, repair bool) (held, error) {
	register, err := r.data.ReadState(ctx, !r.sees(), repair)
	if err != nil {
		return held{}, fmt.Errorf("sharding: read the state: %w", err)
	}
	if !register.IsSet() {
		return held{}, nil
	}
	value, err := register.Value()
	if err != nil {
		return held{}, fmt.Errorf("sharding: read what the state is: %w", err)
	}
	var h held
	if h.state, err = coordinator.DecodeState(value); err != nil {
		return held{}, fmt.Errorf("sharding: read what the state is: %w", err)
	}
	h.term, h.rev = unpack(register.Timestamp())
	return h, nil
}

// The clock of a register is one number: the term above the number of the last event.
const (
	revBits = 36
	maxTerm = 1<<(63-revBits) - 1
	maxRev  = 1<<revBits - 1
)

func pack(term, rev uint64) (int64, error) {
	if term > maxTerm || rev > maxRev {
		return 0, fmt.Errorf("%w: term %d, event %d: the highest possible are %d and %d", ErrInvalid, term, rev, maxTerm, uint64(maxRev))
	}
	return int64(term<<revBits | rev), nil //nolint:gosec // it has 63 bits
}

func unpack(timestamp int64) (term, rev uint64) {
	t := uint64(max(timestamp, 0))
	return t >> revBits, t & maxRev
}
