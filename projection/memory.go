// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

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
