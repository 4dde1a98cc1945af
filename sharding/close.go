// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/shardcore"
)

// tenancy is the time from Host to the end of the region. The shell remains when a region is closed,
// because it routes the commands of the node, and runs the coordinator if the node is the oldest.
type tenancy struct {
	host          hosting.Host // nil on a proxy
	done          chan struct{}
	reason        atomic.Pointer[error] // of an escalation; nil for none
	stopFollowing context.CancelFunc    // nil without standbys
}

// host returns the entities of this node, nil on a proxy.
func (s *shell) host() hosting.Host { return s.hosted.Load().host }

// Close withdraws the type from this node: it hands off all shards without loss, as Drain does, and then
// stops hosting the type in the runtime. Done is closed at the end. The node and its other types
// continue. References still reach the entities on other nodes. If there is no other region, the shards
// have no home and their commands wait.
//
// If ctx ends first, the remaining entities are aborted: their callers get an error that matches
// ErrStopped or eventsourcing.ErrOutcomeUnknown. Close then returns the cause of ctx, and the hand-offs
// continue.
//
// After Close, the node can host the type again. Host then continues with the settings of the first call
// on this node, except Options.Host and the type: the other options must describe the same cluster, and
// are otherwise ignored. A node that restarts needs no such call.
func (r *Region[S]) Close(ctx context.Context) error {
	if err := r.shell.withdraw(ctx, r.tenancy); err != nil {
		return fmt.Errorf("sharding: close type %q on %v: %w", r.shell.name, r.shell.node.Self(), err)
	}
	return nil
}

// Err returns the error of the entity for which HostOptions.Supervise returned eventsourcing.Escalate,
// nil if there is none.
func (r *Region[S]) Err() error {
	if reason := r.tenancy.reason.Load(); reason != nil {
		return *reason
	}
	return nil
}

// escalate closes the region because of the error of an entity.
func (s *shell) escalate(t *tenancy, cause error) {
	t.reason.Store(&cause)
	s.post(func() {
		s.background.Go(func() {
			if err := s.withdraw(s.ctx, t); err != nil && s.ctx.Err() == nil {
				s.log.WarnContext(s.ctx, "cannot close the region of a failed entity", slog.Any("error", err))
			}
		})
	})
}

// withdraw ends a tenancy. It returns early if the shell ends.
func (s *shell) withdraw(ctx context.Context, t *tenancy) error {
	drained := make(chan error, 1)
	began := s.post(func() { //nolint:contextcheck // the loop uses its own context
		if s.proxy || s.hosted.Load() != t || isClosed(t.done) {
			close(drained)
			return
		}
		s.closing = true
		s.drainWaiters = append(s.drainWaiters, drained)
		s.step(shardcore.Leave{KeepRouting: true})
	})
	if !began {
		return nil
	}
	var err error
	select {
	case err = <-drained:
	case <-s.ctx.Done():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if t.stopFollowing != nil {
		t.stopFollowing()
	}
	if t.host != nil {
		if failed := t.host.Close(ctx); err == nil {
			err = failed
		}
	}
	s.post(func() {
		if s.hosted.Load() == t {
			s.closing, s.closed = true, true
		}
		closeOnce(t.done)
	})
	select {
	case <-t.done:
	case <-s.ctx.Done():
	}
	return err
}

// reopen hosts the type again after Region.Close.
func (s *shell) reopen(ctx context.Context, opts Options, proxy bool, t *tenancy, host func() error, r any) error {
	exists := fmt.Errorf("%w: the node already has a region or a proxy of the type: see RegionOf", ErrInvalid)
	if differ := s.opts.settings(s.store == nil).Differences(opts.settings(proxy)); len(differ) > 0 || (proxy || opts.ProxyOnly) != s.proxy {
		return fmt.Errorf("%w, with other settings: %s", exists, strings.Join(differ, ", "))
	}
	free := false
	if err := s.call(ctx, func() { free, s.closed = s.closed, false }); err != nil {
		return err
	}
	if !free {
		return exists
	}
	err := host()
	if err == nil {
		err = s.call(context.WithoutCancel(ctx), func() { //nolint:contextcheck // the loop uses its own context
			s.hosted.Store(t)
			s.closing = false
			s.step(shardcore.Undrain{})
		})
	}
	if err != nil {
		s.post(func() { s.closed = true })
		return err
	}
	s.router.mu.Lock()
	s.router.regions[s.name] = r
	s.router.mu.Unlock()
	s.log.LogAttrs(ctx, slog.LevelInfo, "region started again")
	return nil
}
