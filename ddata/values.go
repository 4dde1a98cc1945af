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

// shards is how many parts the values have, so that readers of different keys don't meet.
const shards = 64

// values are what keys hold now, for those who read without asking the loop. A lock is held for as long
// as a map takes; what is read is immutable.
type values struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu sync.RWMutex
	by map[string]keyState
	_  [64]byte // on a cache line of its own
}

// held is what a key holds.
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

// publish takes what keys hold now.
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

// keys returns those that are not deleted, sorted.
func (v *values) keys() []string {
	var keys []string
	for i := range v.shards {
		s := &v.shards[i]
		s.mu.RLock()
		for key, h := range s.by {
			if !h.deleted {
				keys = append(keys, key)
			}
		}
		s.mu.RUnlock()
	}
	slices.Sort(keys)
	return keys
}
