// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leasetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/recorder"
	"github.com/refold-io/refold/lease"
	"github.com/refold-io/refold/lease/leasetest"
	"github.com/refold-io/refold/plugins/inmem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// double is a handle on an in-memory store with a bug.
type double struct {
	lease.Store
	bug    *bug
	mu     sync.Mutex
	closed bool
}

// bug replaces methods of a correct store. Nil fields leave them as they are.
type bug struct {
	timeout func(s lease.Store) time.Duration
	create  func(ctx context.Context, s lease.Store, name, owner string) (uint64, error)
	renew   func(ctx context.Context, s lease.Store, name, owner string, revision uint64) (uint64, error)
	delete  func(ctx context.Context, s lease.Store, name string, revision uint64) error
	get     func(ctx context.Context, s lease.Store, name string) (lease.Entry, error)
	key     func(name string) string
	expiry  func(timeout time.Duration) time.Duration
	open    bool // calls succeed after Close
	apart   bool // each handle has its own entries
}

func (d *double) ready() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed && !d.bug.open {
		return lease.ErrClosed
	}
	return nil
}

func (d *double) key(name string) string {
	if d.bug.key != nil {
		return d.bug.key(name)
	}
	return name
}

func (d *double) Timeout() time.Duration {
	if d.bug.timeout != nil {
		return d.bug.timeout(d.Store)
	}
	return d.Store.Timeout()
}

func (d *double) Create(ctx context.Context, name, owner string) (uint64, error) {
	if err := d.ready(); err != nil {
		return 0, err
	}
	if d.bug.create != nil {
		return d.bug.create(ctx, d.Store, name, owner)
	}
	return d.Store.Create(ctx, d.key(name), owner)
}

func (d *double) Renew(ctx context.Context, name, owner string, revision uint64) (uint64, error) {
	if err := d.ready(); err != nil {
		return 0, err
	}
	if d.bug.renew != nil {
		return d.bug.renew(ctx, d.Store, name, owner, revision)
	}
	return d.Store.Renew(ctx, d.key(name), owner, revision)
}

func (d *double) Delete(ctx context.Context, name string, revision uint64) error {
	if err := d.ready(); err != nil {
		return err
	}
	if d.bug.delete != nil {
		return d.bug.delete(ctx, d.Store, name, revision)
	}
	return d.Store.Delete(ctx, d.key(name), revision)
}

func (d *double) Get(ctx context.Context, name string) (lease.Entry, error) {
	if err := d.ready(); err != nil {
		return lease.Entry{}, err
	}
	if d.bug.get != nil {
		return d.bug.get(ctx, d.Store, name)
	}
	return d.Store.Get(ctx, d.key(name))
}

func (d *double) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return nil
}

func config(b bug) leasetest.Config {
	return leasetest.Config{
		Timeout: 100 * time.Millisecond, Late: 300 * time.Millisecond,
		Open: func(_ testing.TB, timeout time.Duration) lease.Store {
			if b.expiry != nil {
				claimed := timeout
				b := b
				b.timeout = func(lease.Store) time.Duration { return claimed }
				return &double{Store: inmem.NewLeases(b.expiry(timeout)), bug: &b}
			}
			return &double{Store: inmem.NewLeases(timeout), bug: &b}
		},
		Attach: func(tb testing.TB, s lease.Store) lease.Store {
			d, ok := s.(*double)
			if !ok {
				tb.Fatalf("Attach received a %T", s)
			}
			if b.apart {
				return &double{Store: inmem.NewLeases(s.Timeout()), bug: d.bug}
			}
			return &double{Store: d.Store, bug: d.bug}
		},
	}
}

// In a synctest bubble, entries expire exactly at their time-out.
func TestCorrectStore(t *testing.T) {
	t.Parallel()
	for _, name := range leasetest.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { leasetest.RunOne(t, config(bug{}), name) })
		})
	}
}

// A pause of the machine while an entry must be renewed is not a bug of the store.
func TestPausedMachine(t *testing.T) {
	t.Parallel()
	for _, calls := range []int64{1, 5, 11, 12, 13} {
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int64
			still := func() {
				if n.Add(1) == calls {
					time.Sleep(time.Second) // ten times the time-out
				}
			}
			leasetest.RunOne(t, config(bug{
				renew: func(ctx context.Context, s lease.Store, name, owner string, revision uint64) (uint64, error) {
					still()
					return s.Renew(ctx, name, owner, revision)
				},
				get: func(ctx context.Context, s lease.Store, name string) (lease.Entry, error) {
					still()
					return s.Get(ctx, name)
				},
			}), "RenewKeeps")
			if n.Load() < calls {
				t.Errorf("the check made only %d calls", n.Load())
			}
		})
	}
}

// current makes a call at the current revision of the entry.
func current(ctx context.Context, s lease.Store, name string) uint64 {
	e, _ := s.Get(ctx, name)
	return e.Revision
}

func bugs() map[string]struct {
	finds []string
	bug   bug
} {
	type planted = struct {
		finds []string
		bug   bug
	}
	return map[string]planted{
		"a later Create replaces the entry": {[]string{"Create", "CreateOneWins", "Attach"}, bug{create: func(ctx context.Context, s lease.Store, name, owner string) (uint64, error) {
			if revision := current(ctx, s, name); revision > 0 {
				return s.Renew(ctx, name, owner, revision)
			}
			return s.Create(ctx, name, owner)
		}}},
		"all calls of Create succeed": {[]string{"Create", "CreateOneWins"}, bug{create: func(ctx context.Context, s lease.Store, name, owner string) (uint64, error) {
			revision, err := s.Create(ctx, name, owner)
			if errors.Is(err, lease.ErrHeld) {
				return current(ctx, s, name), nil
			}
			return revision, err
		}}},
		"Get of a missing entry succeeds": {[]string{"GetFree", "RenewAbsent", "Expire"}, bug{get: func(ctx context.Context, s lease.Store, name string) (lease.Entry, error) {
			e, err := s.Get(ctx, name)
			if errors.Is(err, lease.ErrFree) {
				err = nil
			}
			return e, err
		}}},
		"renews at any revision": {[]string{"Renew", "RenewEarlierLife"}, bug{renew: func(ctx context.Context, s lease.Store, name, owner string, _ uint64) (uint64, error) {
			return s.Renew(ctx, name, owner, current(ctx, s, name))
		}}},
		"renewing creates": {[]string{"RenewAbsent", "ExpiredIsAnother"}, bug{renew: func(ctx context.Context, s lease.Store, name, owner string, revision uint64) (uint64, error) {
			if _, err := s.Get(ctx, name); errors.Is(err, lease.ErrFree) {
				return s.Create(ctx, name, owner)
			}
			return s.Renew(ctx, name, owner, revision)
		}}},
		"deletes at any revision": {[]string{"Delete", "RenewEarlierLife"}, bug{delete: func(ctx context.Context, s lease.Store, name string, _ uint64) error {
			return s.Delete(ctx, name, current(ctx, s, name))
		}}},
		"ignores case":  {[]string{"Names"}, bug{key: strings.ToLower}},
		"replaces dots": {[]string{"Names"}, bug{key: func(name string) string { return strings.ReplaceAll(name, ".", "=2e") }}},
		"accepts any owner": {[]string{"Invalid"}, bug{create: func(ctx context.Context, s lease.Store, name, owner string) (uint64, error) {
			return s.Create(ctx, name, (owner + "x")[:1])
		}}},
		"handles have separate entries": {[]string{"Attach", "CreateOneWins"}, bug{apart: true}},
		"another time-out":              {[]string{"Timeout"}, bug{timeout: func(lease.Store) time.Duration { return time.Second }}},
		"ignores the context": {[]string{"Cancelled"}, bug{get: func(ctx context.Context, s lease.Store, name string) (lease.Entry, error) {
			return s.Get(context.WithoutCancel(ctx), name)
		}}},
		"works after Close": {[]string{"Closed"}, bug{open: true}},
		"expires too soon":  {[]string{"Expire", "RenewKeeps"}, bug{expiry: func(timeout time.Duration) time.Duration { return timeout / 2 }}},
		"never expires":     {[]string{"Expire", "ExpiredIsAnother"}, bug{expiry: func(time.Duration) time.Duration { return time.Hour }}},
		"Renew does not extend the lifetime": {[]string{"RenewKeeps", "Renew"}, bug{renew: func(ctx context.Context, s lease.Store, name, _ string, revision uint64) (uint64, error) {
			return revision, nil
		}}},
	}
}

// Each check fails on the bugs that are planted for it, and each check finds at least one bug.
func TestBugs(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for name, planted := range bugs() {
		for _, check := range planted.finds {
			found[check] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, check := range planted.finds {
				synctest.Test(t, func(t *testing.T) {
					failures := recorder.Record(t, func(tb testing.TB) { leasetest.RunOne(tb, config(planted.bug), check) })
					if len(failures) == 0 {
						t.Errorf("%s did not find the bug", check)
						return
					}
					t.Logf("%s: %s", check, failures[0])
				})
			}
		})
	}
	for _, name := range leasetest.Names() {
		if !found[name] {
			t.Errorf("no bug is planted for %s", name)
		}
	}
	for name := range found {
		if !slices.Contains(leasetest.Names(), name) {
			t.Errorf("a bug is planted for %s, which does not exist", name)
		}
	}
}
