// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// store is a journal that all nodes reach, and the state of coordinators in it.
type store struct {
	state coordinator.State
	rev   uint64
}

func (s *store) load(id uint64) coordinator.Input {
	return coordinator.Loaded{ID: id, State: s.state, Rev: s.rev}
}

// save stores a change if it is based on what is stored, at once: only the answer takes its time.
func (c *cluster) save(save coordinator.Save) coordinator.Input {
	s := &c.store
	if save.Rev != s.rev || save.Term < s.state.Term() {
		return coordinator.SaveFailed{ID: save.ID, Fenced: save.Term < s.state.Term()}
	}
	after, err := s.state.Apply(save.Events...)
	if err != nil || !after.Equal(save.After) {
		c.violate("after %d events another state is stored than the coordinator says: %v", s.rev, err)
	}
	s.state, s.rev = after, s.rev+uint64(len(save.Events))
	return coordinator.Saved{ID: save.ID}
}

// spread is by how many shards the fullest and the emptiest region differ.
func (s *store) spread() int {
	least, most := int(^uint(0)>>1), 0
	for _, r := range s.state.Regions() {
		least, most = min(least, len(r.Shards)), max(most, len(r.Shards))
	}
	return max(0, most-least)
}
