// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/refold-io/refold/lease"
)

// Leases keeps leases in memory. It implements lease.Store. Several owners share one value, as
// several processes share one server.
type Leases struct {
	timeout time.Duration

	mu       sync.Mutex
	entries  map[string]leaseEntry
	revision uint64
	closed   bool
}

type leaseEntry struct {
	lease.Entry

	expires time.Time
}

var _ lease.Store = (*Leases)(nil)

// NewLeases returns an empty store. The timeout is the lifetime of an entry without renewal; it
// must be positive.
func NewLeases(timeout time.Duration) *Leases {
	return &Leases{timeout: timeout, entries: make(map[string]leaseEntry)}
}

// Timeout implements lease.Store.
func (s *Leases) Timeout() time.Duration { return s.timeout }

// Create implements lease.Store.
func (s *Leases) Create(ctx context.Context, name, owner string) (uint64, error) {
	return s.change(ctx, name, owner, func(e leaseEntry, held bool) error {
		if held {
			return fmt.Errorf("inmem: create %q: %w", name, lease.ErrHeld)
		}
		return nil
	})
}

// Renew implements lease.Store.
func (s *Leases) Renew(ctx context.Context, name, owner string, revision uint64) (uint64, error) {
	return s.change(ctx, name, owner, func(e leaseEntry, held bool) error {
		if !held || e.Revision != revision {
			return fmt.Errorf("inmem: renew %q at %d: %w", name, revision, lease.ErrConflict)
		}
		return nil
	})
}

// change writes an entry unless check returns an error.
func (s *Leases) change(ctx context.Context, name, owner string, check func(e leaseEntry, held bool) error) (uint64, error) {
	if err := lease.Check("owner", owner); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, held, err := s.find(ctx, name)
	if err != nil {
		return 0, err
	}
	if err := check(e, held); err != nil {
		return 0, err
	}
	s.revision++
	s.entries[name] = leaseEntry{Entry: lease.Entry{Owner: owner, Revision: s.revision}, expires: time.Now().Add(s.timeout)}
	return s.revision, nil
}

// Delete implements lease.Store.
func (s *Leases) Delete(ctx context.Context, name string, revision uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, held, err := s.find(ctx, name)
	if err != nil {
		return err
	}
	if !held || e.Revision != revision {
		return fmt.Errorf("inmem: delete %q at %d: %w", name, revision, lease.ErrConflict)
	}
	delete(s.entries, name)
	return nil
}

// Get implements lease.Store.
func (s *Leases) Get(ctx context.Context, name string) (lease.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, held, err := s.find(ctx, name)
	if err == nil && !held {
		err = fmt.Errorf("inmem: get %q: %w", name, lease.ErrFree)
	}
	return e.Entry, err
}

// find returns an entry that has not expired. The caller holds the lock.
func (s *Leases) find(ctx context.Context, name string) (leaseEntry, bool, error) {
	if err := lease.Check("name", name); err != nil {
		return leaseEntry{}, false, err
	}
	if s.closed {
		return leaseEntry{}, false, lease.ErrClosed
	}
	if ctx.Err() != nil {
		return leaseEntry{}, false, fmt.Errorf("inmem: lease %q: %w", name, context.Cause(ctx))
	}
	e, held := s.entries[name]
	if held && !time.Now().Before(e.expires) {
		delete(s.entries, name)
		return leaseEntry{}, false, nil
	}
	return e, held, nil
}

// Close implements lease.Store.
func (s *Leases) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
