// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/lease"
)

// shardLease is the lease of a run of a shard.
type shardLease struct {
	lease *lease.Lease
	last  chan struct{} // closed at the end of the last call
}

// leaseName returns the name of the lease of a shard of a type.
func leaseName(cluster, typ string, n Shard) string {
	return fmt.Sprintf("%s-shard-%s-%d", cluster, typ, n)
}

// callLease acquires or releases the lease of a run of a shard, after the previous calls for it.
func (s *shell) callLease(c *shardcore.LeaseCall) {
	at, held := c.ShardRun, s.leases[c.ShardRun]
	if held == nil {
		l, err := s.node.NewLease(leaseName(s.node.Cluster(), s.name, at.Shard))
		if err != nil { // impossible: the settings were checked
			s.replyLease(at, err, shard.LeaseDenied{})
			return
		}
		held = &shardLease{lease: l}
		s.leases[at] = held
	}
	before, done := held.last, make(chan struct{})
	if held.last = done; c.Release {
		delete(s.leases, at)
	}
	s.background.Go(func() {
		defer close(done)
		if before != nil {
			<-before // the call returns soon after its time-out
		}
		if c.Release {
			err := held.lease.Release(context.WithoutCancel(s.ctx))
			_ = held.lease.Close() // Close never fails
			s.replyLease(at, err, shard.LeaseReleased{})
			return
		}
		// A loss is reported after the reply: done is closed then.
		ok, err := held.lease.AcquireWithLost(s.ctx, func(cause error) {
			<-done
			s.replyLease(at, cause, shard.LeaseLost{})
		})
		if !ok || err != nil {
			s.replyLease(at, err, shard.LeaseDenied{})
			return
		}
		s.replyLease(at, nil, shard.LeaseHeld{})
	})
}

// replyLease passes the result of a call, or the loss of a lease, to the machine.
func (s *shell) replyLease(at shardcore.ShardRun, err error, in shard.Input) {
	s.inbox.Add(item{input: shardcore.ShardInput{ShardRun: at, Input: in}})
	attrs := []slog.Attr{slog.Any("shard", at.Shard), slog.String("lease", leaseName(s.node.Cluster(), s.name, at.Shard))}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	switch in.(type) {
	case shard.LeaseDenied:
		s.log.LogAttrs(s.ctx, slog.LevelWarn, "shard waits for its lease", attrs...)
	case shard.LeaseLost:
		s.log.LogAttrs(s.ctx, slog.LevelError, "lease of a shard lost: its entities are killed", attrs...)
	case shard.LeaseReleased:
		if err != nil {
			s.log.LogAttrs(s.ctx, slog.LevelWarn, "lease of a shard not released: it expires", attrs...)
		}
	}
}

// closeLeases ends the renewals of leases that were not released, because the region has failed.
func (s *shell) closeLeases() {
	for _, held := range s.leases { // the order does not matter
		_ = held.lease.Close() // Close never fails
	}
}
