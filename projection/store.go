// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/refold-io/refold/journal"
)

// Position is the progress of a projection in a range of slices.
type Position struct {
	// Slices is the range. Its Count is at least 1.
	Slices journal.Slices
	// Offset is the position in the journal; empty is the beginning. At most 64 bytes, printable.
	Offset journal.Offset
	// Clear is set by a request for a rebuild: the read model must be cleared before events after
	// this position are handled.
	Clear bool
	// Claim identifies the process that clears, or cleared, the read model of the last rebuild. It
	// is empty if no process has claimed a rebuild since the last request. At most 64 bytes,
	// printable.
	Claim string
}

// Move is a change of the positions of a projection.
type Move struct {
	// Projection is its name: 1 to 255 bytes of valid UTF-8 without control characters.
	Projection string
	// From are the stored positions, To their replacements. Both cover the same slices in ascending
	// order without overlap. An empty From means that no position of the projection is stored yet.
	From, To []Position
}

// Store keeps the positions of projections. It is the interface that a plugin implements and that
// package projectiontest checks. All methods are safe for concurrent use, also by several
// processes.
type Store interface {
	// Load returns the positions of a projection in ascending order of their slices, none if
	// nothing was saved yet.
	Load(ctx context.Context, projection string) ([]Position, error)

	// Save replaces the positions From of a move by To, in one atomic step. If the stored positions
	// are not exactly From, Save changes nothing, and the error matches ErrFenced. When Save
	// returns nil, the move is durable.
	Save(ctx context.Context, m Move) error

	// Reset sets all positions of a projection to the beginning, with Clear set and without a
	// claim. It has no effect if no position is stored.
	Reset(ctx context.Context, projection string) error
}

// TxStore is a Store that keeps the positions in the database of the read model, so that both
// change in one transaction.
type TxStore[Tx any] interface {
	Store

	// Apply executes a move and the changes of f in one transaction: both or neither. It may call f
	// several times, each time with a new transaction and never concurrently. It must not call f
	// after it has found positions other than From.
	//
	// When Apply returns nil, the move and the changes are durable. The error matches ErrFenced as
	// for Save, ErrRefused if the changes of f prevent the commit, and ErrUnavailable if f returned
	// an error that the store caused. Any other error of f is wrapped. After any other error of
	// Apply it is unknown whether the transaction was committed.
	Apply(ctx context.Context, m Move, f func(ctx context.Context, tx Tx) error) error
}

// Memory is a Store that loses all positions at the end of the process. It suits read models that
// are also kept in memory. The zero value is ready to use.
type Memory struct {
	mu        sync.Mutex
	positions map[string][]Position
}

// Load implements Store.
func (m *Memory) Load(ctx context.Context, projection string) ([]Position, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.positions[projection]), nil
}

// Save implements Store.
func (m *Memory) Save(ctx context.Context, move Move) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	moved, ok := move.applied(m.positions[move.Projection])
	if !ok {
		return fmt.Errorf("save the positions of %q: %w", move.Projection, ErrFenced)
	}
	if m.positions == nil {
		m.positions = make(map[string][]Position)
	}
	m.positions[move.Projection] = moved
	return nil
}

// Reset implements Store.
func (m *Memory) Reset(ctx context.Context, projection string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := m.positions[projection]
	for i := range stored {
		stored[i] = Position{Slices: stored[i].Slices, Clear: true}
	}
	return nil
}

// applied returns the stored positions after a move, and whether the move fits the stored positions
// before it.
func (m Move) applied(stored []Position) ([]Position, bool) {
	if len(m.From) == 0 {
		return slices.Clone(m.To), len(stored) == 0
	}
	first := slices.Index(stored, m.From[0])
	if first < 0 || first+len(m.From) > len(stored) || !slices.Equal(stored[first:first+len(m.From)], m.From) {
		return nil, false
	}
	return slices.Replace(slices.Clone(stored), first, first+len(m.From), m.To...), true
}
