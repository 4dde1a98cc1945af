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

// Position is how far the events of a range of slices have been handled.
type Position struct {
	// Slices is the range. Its Count is at least 1.
	Slices journal.Slices
	// Offset is the position in the journal. Empty is the beginning, and so is
	// "begin-" and a random text, as it is after a rebuild. With Clear it is empty, or
	// names who is clearing. At most 64 bytes, printable.
	Offset journal.Offset
	// Clear says that the read model has to be cleared before anything is handled
	// from here on, because a rebuild was asked for.
	Clear bool
}

// Move is a change of the positions of a projection.
type Move struct {
	// Projection is its name: 1 to 255 bytes of valid UTF-8 without control
	// characters.
	Projection string
	// From are positions as they are stored, and To what takes their place. Both
	// cover the same slices, without overlap and in ascending order. No From
	// means that nothing is stored for the projection yet.
	From, To []Position
}

// Store keeps the positions of projections. It is the SPI that a plugin
// implements and that projectiontest checks. All methods are safe for concurrent
// use, also by several processes.
type Store interface {
	// Load returns the positions of a projection in ascending order of their
	// slices, none if nothing was saved yet.
	Load(ctx context.Context, projection string) ([]Position, error)

	// Save carries out a move: as a whole, and only if all of From are stored
	// exactly so; otherwise it changes nothing and the error matches ErrFenced.
	// When it returns nil the move is durable.
	Save(ctx context.Context, m Move) error

	// Reset puts all positions of a projection back to the beginning, with Clear
	// set, whatever they are. It does nothing if none are stored.
	Reset(ctx context.Context, projection string) error
}

// TxStore is a Store that keeps positions where the read model is, so that both
// change in one transaction.
type TxStore[Tx any] interface {
	Store

	// Apply carries out a move and what f does with the transaction: both or
	// nothing. It may call f more than once, each time with a fresh transaction
	// and never at the same time, and must not call it after it has seen that the
	// positions are others than From.
	//
	// Nil means that all of it is durable. An error matches ErrFenced as that of
	// Save does; ErrRefused if the transaction can't be committed because of what
	// f did; ErrUnavailable if f returned an error that is the store's fault. It
	// wraps the error of f in all other cases where f returned one. Anything else
	// leaves it open whether the transaction was committed.
	Apply(ctx context.Context, m Move, f func(ctx context.Context, tx Tx) error) error
}

// Memory is a Store that forgets everything when the process ends: for read
// models that are themselves kept in memory, and begin anew with it. The zero
// value is ready.
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
		stored[i].Offset, stored[i].Clear = "", true
	}
	return nil
}

// applied returns what is stored after a move, and whether it fits what is
// stored before.
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
