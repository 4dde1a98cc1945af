// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardingtest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding"
)

// bug describes the faults of a double. The zero value has none.
type bug struct {
	loaded                                          func(sharding.Loaded) sharding.Loaded
	key                                             func(sharding.Scope) string
	id                                              func(string) string
	limit                                           int
	apart, noRepeat, anyRev, unloaded, unchecked    bool
	lowerTerm, noFence, anyClaim, unclaimed         bool
	dropsFailedClaim                                bool
	anyScope, ignoresContext, hidesFailures         bool
	doubles, one, initialEntity, unfenced, replaces bool
}

// place is the storage of the doubles.
type place struct {
	mu     sync.Mutex
	states map[string]*state
	shards map[string]*entities
	lists  map[string][]sharding.Shard
}

type state struct {
	sharding.Loaded
	last string // the last change
}

type entities struct {
	ids    []string
	owner  *double
	owners []*double // owners that were replaced or have failed
}

// The faults of a node.
const (
	noFault = iota
	lost
	unanswered
	hangs
)

// node opens doubles.
type node struct {
	place *place
	bug   bug
	mu    sync.Mutex
	fault int
}

func (n *node) strike(fault int) (mend func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = fault
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.fault = noFault
	}
}

func (n *node) struck() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	fault := n.fault
	if fault != hangs {
		n.fault = noFault
	}
	return fault
}

func (*node) hide(b *bug, err error) error {
	if b.hidesFailures {
		return nil
	}
	return err
}

// double is a store in memory, with a bug.
type double struct {
	*node
	scope string
	known bool // Load was called
}

func (n *node) open(s sharding.Scope) (*double, error) {
	if !n.bug.anyScope {
		// Every store of this package checks the scope in this way.
		if _, err := (sharding.JournalStores{}).OpenCoordinator(s); strings.Contains(err.Error(), "Scope.") {
			return nil, err
		}
	}
	key := fmt.Sprint(s.Type, "|", s.Role, "|", s.Pending)
	if n.bug.key != nil {
		key = n.bug.key(s)
	}
	return &double{node: n, scope: key}, nil
}

func (n *node) OpenCoordinator(s sharding.Scope) (sharding.CoordinatorStore, error) {
	d, err := n.open(s)
	return &coordinators{double: d}, err
}

func (n *node) OpenEntities(s sharding.Scope) (sharding.RememberStore, error) {
	d, err := n.open(s)
	return &remembered{d}, err
}

func (d *double) Close() error { return nil }

type coordinators struct {
	*double

	claimFailed bool // the last claim failed
}

// state returns the stored state. The caller holds the lock of the place.
func (d *double) state() *state {
	if d.place.states == nil {
		d.place.states = map[string]*state{}
	}
	if d.place.states[d.scope] == nil {
		d.place.states[d.scope] = &state{}
	}
	return d.place.states[d.scope]
}

func (c *coordinators) Load(ctx context.Context) (l sharding.Loaded, err error) {
	err = c.call(ctx, &c.bug, func() error {
		c.place.mu.Lock()
		defer c.place.mu.Unlock()
		c.known = true
		l = c.state().Loaded
		return nil
	})
	if c.bug.loaded != nil {
		l = c.bug.loaded(l)
	}
	return l, err
}

func (c *coordinators) Save(ctx context.Context, change sharding.Change) error {
	err := c.call(ctx, &c.bug, func() error { return c.save(&change) })
	if change.Claim {
		c.claimFailed = c.bug.dropsFailedClaim && err != nil
	}
	return err
}

func (c *coordinators) save(change *sharding.Change) error {
	b, s := &c.bug, change
	if len(s.Events) == 0 || s.Term == 0 || len(s.After) == 0 {
		if !b.unchecked {
			return sharding.ErrInvalid
		}
		return nil
	}
	c.place.mu.Lock()
	defer c.place.mu.Unlock()
	held := c.state()
	text := fmt.Sprintf("%p %d %+v", c.double, s.Rev, s.Events)
	switch {
	case held.last == text && !b.noRepeat:
		return nil
	case c.claimFailed && !s.Claim:
		return sharding.ErrConflict
	case !c.known && !b.unloaded:
		return sharding.ErrConflict
	case s.Claim && s.Term <= held.Term && !b.anyClaim, !s.Claim && s.Term > held.Term && !b.unclaimed:
		return sharding.ErrConflict
	case !s.Claim && s.Term < held.Term && !b.lowerTerm && !b.noFence:
		return sharding.ErrFenced
	case s.Rev != held.Rev && !b.anyRev, !s.Claim && s.Term < held.Term && b.noFence:
		return sharding.ErrConflict
	}
	held.Term, held.State, held.Rev, held.last = s.Term, s.After, s.Rev+uint64(len(s.Events)), text
	return nil
}

type remembered struct{ *double }

// shard returns the stored entities. The caller holds the lock of the place.
func (r *remembered) shard(s sharding.Shard) *entities {
	if r.bug.one {
		s = 0
	}
	key := fmt.Sprint(r.scope, "|", s)
	if r.place.shards == nil {
		r.place.shards = map[string]*entities{}
	}
	if r.place.shards[key] == nil {
		r.place.shards[key] = &entities{}
		if r.bug.initialEntity {
			r.place.shards[key].ids = []string{"initialEntity"}
		}
	}
	return r.place.shards[key]
}

func (r *remembered) Load(ctx context.Context, shard sharding.Shard) (ids []string, err error) {
	if shard >= coordinator.MaxShards {
		return nil, sharding.ErrInvalid
	}
	err = r.call(ctx, &r.bug, func() error {
		r.place.mu.Lock()
		defer r.place.mu.Unlock()
		e := r.shard(shard)
		if e.owner != nil && e.owner != r.double {
			e.owners = append(e.owners, e.owner)
		}
		e.owner, ids = r.double, slices.Clone(e.ids)
		return nil
	})
	return ids, err
}

func (r *remembered) Update(ctx context.Context, shard sharding.Shard, started, stopped []string) error {
	for _, id := range slices.Concat(started, stopped) {
		if id == "" || len(id) > sharding.MaxEntityID {
			return sharding.ErrInvalid
		}
	}
	err := r.call(ctx, &r.bug, func() error {
		r.place.mu.Lock()
		defer r.place.mu.Unlock()
		e := r.shard(shard)
		switch {
		case e.owner == nil:
			return sharding.ErrConflict
		case e.owner != r.double && !r.bug.unfenced && slices.Contains(e.owners, r.double):
			return sharding.ErrFenced
		case e.owner != r.double && !r.bug.unfenced:
			return sharding.ErrConflict
		}
		for i, id := range started {
			if r.bug.limit > 0 && i >= r.bug.limit {
				break
			}
			if r.bug.id != nil {
				id = r.bug.id(id)
			}
			if r.bug.doubles || !slices.Contains(e.ids, id) {
				e.ids = append(e.ids, id)
			}
		}
		e.ids = slices.DeleteFunc(e.ids, func(id string) bool { return slices.Contains(stopped, id) })
		return nil
	})
	return err
}

func (r *remembered) Shards(ctx context.Context) (all []sharding.Shard, err error) {
	err = r.call(ctx, &r.bug, func() error {
		r.place.mu.Lock()
		defer r.place.mu.Unlock()
		all = slices.Clone(r.place.lists[r.scope])
		return nil
	})
	return all, err
}

func (r *remembered) AddShards(ctx context.Context, shards []sharding.Shard) error {
	for _, s := range shards {
		if s >= coordinator.MaxShards {
			return sharding.ErrInvalid
		}
	}
	return r.call(ctx, &r.bug, func() error {
		r.place.mu.Lock()
		defer r.place.mu.Unlock()
		if r.place.lists == nil {
			r.place.lists = map[string][]sharding.Shard{}
		}
		all := slices.Concat(r.place.lists[r.scope], shards)
		if r.bug.replaces {
			all = slices.Clone(shards)
		}
		slices.Sort(all)
		r.place.lists[r.scope] = slices.Compact(all)
		return nil
	})
}
