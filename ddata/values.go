// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/replication"
)

// shards is the number of parts of values. Readers of different keys rarely share a part.
const shards = 64

// values holds the current values of keys, for readers outside of the loop. A lock is held only for
// a map access, because values are immutable.
type values struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu sync.RWMutex
	by map[string]keyState
	_  [64]byte // own cache line
}

type keyState struct {
	value   crdt.Value
	deleted bool
}

func newValues() *values {
	v := &values{seed: maphash.MakeSeed()}
	for i := range v.shards {
		v.shards[i].by = map[string]keyState{}
	}
	return v
}

func (v *values) shard(key string) *shard {
	return &v.shards[maphash.String(v.seed, key)%shards]
}

func (v *values) publish(changes []replication.Change) {
	for i := range changes {
		c := &changes[i]
		s := v.shard(c.Key)
		s.mu.Lock()
		if c.Value.IsZero() && !c.Deleted {
			delete(s.by, c.Key)
		} else {
			s.by[c.Key] = keyState{c.Value, c.Deleted}
		}
		s.mu.Unlock()
	}
}

func (v *values) get(key string) (keyState, bool) {
	s := v.shard(key)
	s.mu.RLock()
	h, found := s.by[key]
	s.mu.RUnlock()
	return h, found
}

func (v *values) keys() []string {
	var keys []string
	for i := range v.shards {
		v.shards[i].each(func(key string, h keyState) {
			if !h.deleted {
				keys = append(keys, key)
			}
		})
	}
	slices.Sort(keys)
	return keys
}

func (s *shard) each(f func(key string, h keyState)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key, h := range s.by {
		f(key, h)
	}
}
