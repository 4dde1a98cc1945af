// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// standbys decides for which shards this node is a standby, see coordinator.IsStandby. Its methods are
// safe for concurrent use; only the loop calls update.
type standbys struct {
	self  identity.Node
	count int
	nodes atomic.Pointer[standbyNodes]
	known []atomic.Uint64 // by shard: twice a version of the nodes, plus 1 if this node is a standby
}

type standbyNodes struct {
	version uint64 // from 1
	all     []identity.Node
}

func newStandbys(self identity.Node, count, shards int) *standbys {
	s := &standbys{self: self, count: count, known: make([]atomic.Uint64, shards)}
	s.nodes.Store(&standbyNodes{version: 1})
	return s
}

// update sets the members that may host the type, and reports whether they differ from the last ones.
func (s *standbys) update(members []cluster.Member, role string) bool {
	var all []identity.Node
	for _, m := range members {
		if m.HasRole(role) && (m.Status == cluster.Up || m.Status == cluster.Leaving) {
			all = append(all, m.Node)
		}
	}
	last := s.nodes.Load()
	if slices.Equal(all, last.all) {
		return false
	}
	s.nodes.Store(&standbyNodes{last.version + 1, all})
	return true
}

// covers reports whether this node is a standby of a shard, or its home.
func (s *standbys) covers(shard Shard) bool {
	nodes := s.nodes.Load()
	if known := s.known[shard].Load(); known>>1 == nodes.version {
		return known&1 == 1
	}
	known := nodes.version << 1
	if slices.Contains(nodes.all, s.self) && coordinator.IsStandby(shard, s.self, nodes.all, s.count) {
		known |= 1
	}
	s.known[shard].Store(known)
	return known&1 == 1
}

// follow returns what the host of the entities keeps as a standby, nil for nothing.
func (s *shell) follow() *hosting.Follow {
	if s.standbys == nil {
		return nil
	}
	return &hosting.Follow{Limit: s.opts.Tuning.StandbyEntities, Covers: func(id string) bool {
		shard, err := s.shardOf(id)
		return err == nil && s.standbys.covers(shard)
	}}
}

// startFollowing runs the standby of a tenancy until the tenancy ends.
func (s *shell) startFollowing(t *tenancy) {
	if s.standbys == nil {
		return
	}
	var ctx context.Context
	ctx, t.stopFollowing = context.WithCancel(s.ctx)
	s.background.Go(func() { t.host.Follow(ctx) })
}

// ReadStandby passes the state of an entity to read, if this node keeps it as a standby (see
// Options.Standbys) and the state lacks no event that was stored longer ago than staleness. Otherwise
// it returns false, and the program asks the entity. The journal is examined at least twice a second,
// so a staleness below a second often returns false. A state exists only for an entity that has
// stored an event since this node became its standby.
//
// read must not change the state or keep a part of it, and must not block: the standby waits.
func (r *Region[S]) ReadStandby(id string, staleness time.Duration, read func(state *S)) bool {
	s := r.shell
	if s.standbys == nil {
		return false
	}
	return r.tenancy.host.Peek(id, staleness, func(state any) { read(state.(*S)) }) //nolint:errcheck,forcetypeassert // the region has the state type S
}
