// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/lease"
	"github.com/refold-io/refold/plugins/inmem"
)

// flaky is a store whose calls can fail before or after they change the entry.
type flaky struct {
	lease.Store

	mu     sync.Mutex
	before error
	after  error
	delay  time.Duration // between the store and the caller
	renews int
}

var errDown = errors.New("the store is unavailable")

func (f *flaky) set(change func(f *flaky)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func run[T any](ctx context.Context, f *flaky, call func() (T, error)) (T, error) {
	f.mu.Lock()
	before, after, delay := f.before, f.after, f.delay
	f.mu.Unlock()
	var zero T
	if before != nil {
		return zero, before
	}
	result, err := call()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return zero, context.Cause(ctx)
		}
	}
	if after != nil {
		return zero, after
	}
	return result, err
}

func (f *flaky) Create(ctx context.Context, name, owner string) (uint64, error) {
	return run(ctx, f, func() (uint64, error) { return f.Store.Create(ctx, name, owner) })
}

func (f *flaky) Renew(ctx context.Context, name, owner string, revision uint64) (uint64, error) {
	f.set(func(f *flaky) { f.renews++ })
	return run(ctx, f, func() (uint64, error) { return f.Store.Renew(ctx, name, owner, revision) })
}

func (f *flaky) Get(ctx context.Context, name string) (lease.Entry, error) {
	return run(ctx, f, func() (lease.Entry, error) { return f.Store.Get(ctx, name) })
}

func (f *flaky) Delete(ctx context.Context, name string, revision uint64) error {
	_, err := run(ctx, f, func() (struct{}, error) { return struct{}{}, f.Store.Delete(ctx, name, revision) })
	return err
}

const timeout = 120 * time.Second

func open(t *testing.T, store lease.Store, owner string) *lease.Lease {
	t.Helper()
	l, err := lease.New(store, lease.Config{Name: "n", Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func acquire(t *testing.T, l *lease.Lease, want bool) {
	t.Helper()
	if held, err := l.Acquire(t.Context()); held != want || err != nil {
		t.Errorf("Acquire = %t, %v, want %t", held, err, want)
	}
	if l.Check() != want {
		t.Errorf("Check = %t, want %t", l.Check(), want)
	}
}

func TestAcquire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: inmem.NewLeases(timeout)}
		a, b := open(t, store, "a"), open(t, store, "b")
		if a.Check() {
			t.Error("the lease is held before Acquire")
		}
		acquire(t, a, true)
		acquire(t, a, true) // the lease is held already
		acquire(t, b, false)
		time.Sleep(time.Hour)
		synctest.Wait()
		acquire(t, a, true)
		acquire(t, b, false)
		if n := store.renews; n != 300 {
			t.Errorf("%d renewals in an hour, want one every 12 s", n)
		}
		if err := a.Release(t.Context()); err != nil || a.Check() {
			t.Errorf("Release: %v, Check: %t", err, a.Check())
		}
		acquire(t, b, true)
		acquire(t, a, false)
		if err := a.Release(t.Context()); err != nil {
			t.Errorf("Release of a lease that another owner holds: %v", err)
		}
		acquire(t, b, true)
		if err := b.Close(); err != nil || b.Check() {
			t.Errorf("Close: %v, Check: %t", err, b.Check())
		}
		if _, err := b.Acquire(t.Context()); !errors.Is(err, lease.ErrClosed) {
			t.Errorf("Acquire after Close: %v, want ErrClosed", err)
		}
		acquire(t, a, false) // Close does not release
		time.Sleep(timeout)
		acquire(t, a, true)
	})
}

// A failed Acquire reports the holder if it is known.
func TestHeldBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: inmem.NewLeases(timeout)}
		a, b := open(t, store.Store, "a"), open(t, store, "b")
		want := func(owner string) {
			t.Helper()
			if got := b.HeldBy(); got != owner {
				t.Errorf("HeldBy = %q, want %q", got, owner)
			}
		}
		want("")
		acquire(t, a, true)
		acquire(t, b, false)
		want("a")
		store.set(func(f *flaky) { f.before = errDown })
		if _, err := b.Acquire(t.Context()); !errors.Is(err, errDown) {
			t.Errorf("Acquire: %v, want errDown", err)
		}
		want("")
	})
}

// Check returns false before another owner can acquire the lease.
func TestCheckEndsBeforeExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: inmem.NewLeases(timeout)}
		a, b := open(t, store, "a"), open(t, store.Store, "b")
		lost := make(chan error, 1)
		begin := time.Now()
		if held, err := a.AcquireWithLost(t.Context(), func(cause error) { lost <- cause }); !held || err != nil {
			t.Fatalf("AcquireWithLost = %t, %v, want true", held, err)
		}
		time.Sleep(20 * time.Second) // one renewal, at 12 s
		store.set(func(f *flaky) { f.before = errDown })
		for a.Check() {
			acquire(t, b, false)
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(begin).Round(time.Second); took != 120*time.Second { // 12 s + 90 % of 120 s
			t.Errorf("Check was true for %v, want 2m0s", took)
		}
		if cause := <-lost; cause == nil {
			t.Error("the cause of the loss is nil")
		}
		acquire(t, b, false)
		time.Sleep(12 * time.Second)
		acquire(t, b, true)
		if a.Check() {
			t.Error("both owners hold the lease")
		}
	})
}

// The validity counts from when a call was sent, not from when it returned.
func TestSlowStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: inmem.NewLeases(timeout), delay: 4 * time.Second}
		a := open(t, store, "a")
		begin := time.Now()
		acquire(t, a, true)
		store.set(func(f *flaky) { f.before, f.delay = errDown, 0 })
		for a.Check() {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(begin).Round(time.Second); took != 108*time.Second {
			t.Errorf("Check was true for %v after the call was sent, want 1m48s", took)
		}
	})
}

func TestUnknownOutcomes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: inmem.NewLeases(timeout), after: errDown}
		a, b := open(t, store, "a"), open(t, store.Store, "b")
		if held, err := a.Acquire(t.Context()); held || !errors.Is(err, errDown) || a.Check() {
			t.Errorf("Acquire with an unknown outcome = %t, %v, want false, errDown", held, err)
		}
		acquire(t, b, false) // the entry was created
		store.set(func(f *flaky) { f.after = nil })
		acquire(t, a, true) // an owner can acquire the entry that it has created
		store.set(func(f *flaky) { f.after = errDown })
		time.Sleep(30 * time.Second) // renewals are stored, but not acknowledged
		store.set(func(f *flaky) { f.after = nil })
		time.Sleep(10 * timeout)
		acquire(t, a, true)
		store.set(func(f *flaky) { f.after = errDown })
		if err := a.Release(t.Context()); !errors.Is(err, errDown) || a.Check() {
			t.Errorf("Release with an unknown outcome: %v, Check = %t, want errDown and false", err, a.Check())
		}
		store.set(func(f *flaky) { f.after = nil })
		acquire(t, b, true)

		// An acquisition with an unknown outcome can be released.
		if err := b.Release(t.Context()); err != nil {
			t.Error(err)
		}
		store.set(func(f *flaky) { f.after = errDown })
		if _, err := a.Acquire(t.Context()); !errors.Is(err, errDown) {
			t.Errorf("Acquire: %v, want errDown", err)
		}
		store.set(func(f *flaky) { f.after = nil })
		if err := a.Release(t.Context()); err != nil {
			t.Error(err)
		}
		acquire(t, b, true)
	})
}

func TestLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := inmem.NewLeases(timeout)
		a := open(t, store, "a")
		lost := make(chan error, 1)
		var wrong bool
		if _, err := a.AcquireWithLost(t.Context(), func(error) { wrong = true }); err != nil {
			t.Fatal(err)
		}
		held, err := a.AcquireWithLost(t.Context(), func(cause error) {
			if err := a.Release(context.Background()); err != nil {
				t.Error(err)
			}
			lost <- cause
		})
		if !held || err != nil {
			t.Fatalf("AcquireWithLost = %t, %v, want true", held, err)
		}
		e, err := store.Get(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Delete(t.Context(), "n", e.Revision); err != nil { // as an operator may do
			t.Fatal(err)
		}
		acquireOther := open(t, store, "b")
		acquire(t, acquireOther, true)
		if cause := <-lost; !errors.Is(cause, lease.ErrConflict) || a.Check() || wrong {
			t.Errorf("lost received %v, Check = %t, the replaced callback was called: %t; want ErrConflict, false, false", cause, a.Check(), wrong)
		}
		acquire(t, a, false)
		acquire(t, acquireOther, true)
		if err := acquireOther.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := a.AcquireWithLost(t.Context(), func(cause error) { lost <- cause }); err != nil {
			t.Error(err)
		}
		if err := a.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(timeout)
		if len(lost) != 0 {
			t.Error("lost was called for a released lease")
		}
	})
}

func TestCallTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: inmem.NewLeases(timeout), delay: time.Hour}
		a := open(t, store, "a")
		begin := time.Now()
		if held, err := a.Acquire(t.Context()); held || !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 5*time.Second {
			t.Errorf("Acquire while the store does not return = %t, %v after %v, want false, context.DeadlineExceeded after 5s", held, err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _, _ = a.Acquire(t.Context()) }()
		synctest.Wait()
		if _, err := a.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire during another call: %v, want context.DeadlineExceeded", err)
		}
		time.Sleep(time.Minute)
	})
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	store := inmem.NewLeases(time.Second)
	if _, err := lease.New(store, lease.Config{Interval: time.Second, OperationTimeout: -1}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("New with a negative time-out: %v, want ErrInvalid", err)
	} else {
		for _, field := range []string{"Name", "Owner", "Interval", "OperationTimeout"} {
			if !strings.Contains(err.Error(), field) {
				t.Errorf("the error does not name %s: %v", field, err)
			}
		}
	}
	if _, err := lease.New(store, lease.Config{Name: "n", Owner: "a"}); err != nil {
		t.Errorf("New with a short time-out and the default interval: %v", err)
	}
}

// panicking is a store whose calls panic.
type panicking struct{ lease.Store }

func (panicking) Create(context.Context, string, string) (uint64, error) { panic("no disk") }
func (panicking) Get(context.Context, string) (lease.Entry, error)       { panic("no disk") }

type panickingLater struct{ lease.Store }

func (panickingLater) Renew(context.Context, string, string, uint64) (uint64, error) {
	panic("no disk")
}
func (panickingLater) Delete(context.Context, string, uint64) error { panic("no disk") }

// A store that panics affects only the lease.
func TestPanickingStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := inmem.NewLeases(30 * time.Second)
		l, err := lease.New(panicking{store}, lease.Config{Name: "a", Owner: "me"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		held, err := l.Acquire(t.Context())
		if held || err == nil || !strings.Contains(err.Error(), "no disk") {
			t.Errorf("Acquire = %v, %v, want false and an error with the panic", held, err)
		}
		if err = l.Release(t.Context()); err == nil {
			t.Error("Release returned no error")
		}
		later, err := lease.New(panickingLater{store}, lease.Config{Name: "b", Owner: "me"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = later.Close() }()
		lost := make(chan error, 1)
		if held, err = later.AcquireWithLost(t.Context(), func(cause error) { lost <- cause }); !held || err != nil {
			t.Fatalf("AcquireWithLost = %v, %v, want true", held, err)
		}
		if cause := <-lost; cause == nil {
			t.Error("lost was called without a cause")
		}
		if held, err = later.Acquire(t.Context()); held || err == nil {
			t.Errorf("Acquire of a lease that could not be renewed = %v, %v, want false and an error", held, err)
		}
	})
}
