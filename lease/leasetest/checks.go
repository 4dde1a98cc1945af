// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leasetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/lease"
)

func checks() []check {
	return []check{
		{name: "Create", rule: "the first Create creates the entry", run: func(f *fixture) {
			revision := f.create("n", "a")
			for _, owner := range []string{"b", "a"} {
				f.want(lease.ErrHeld, fmt.Sprintf("Create by %q of the entry of a", owner))(f.s.Create(f.ctx, "n", owner))
			}
			f.wantEntry(f.s, "n", "a", revision)
		}},
		{name: "CreateOneWins", rule: "of concurrent creations through several handles one succeeds", run: func(f *fixture) {
			other := f.cfg.Attach(f.TB, f.s)
			defer func() { _ = other.Close() }()
			for round := range 10 {
				name := fmt.Sprint("n", round)
				var won atomic.Int64
				var winner atomic.Value
				var wg sync.WaitGroup
				for k := range 8 {
					wg.Go(func() {
						s := f.s
						if k%2 == 1 {
							s = other
						}
						owner := fmt.Sprint("owner", k)
						switch _, err := s.Create(f.ctx, name, owner); {
						case err == nil:
							won.Add(1)
							winner.Store(owner)
						case !errors.Is(err, lease.ErrHeld):
							f.Errorf("Create: %v, want ErrHeld", err)
						}
					})
				}
				wg.Wait()
				if won.Load() != 1 {
					f.Errorf("%d of 8 calls of Create succeeded, want 1", won.Load())
					return
				}
				if e, err := f.s.Get(f.ctx, name); err != nil || e.Owner != winner.Load() {
					f.Errorf("Get = %+v, %v, want %v", e, err, winner.Load())
				}
			}
		}},
		{name: "GetFree", rule: "Get of a missing entry returns ErrFree", run: func(f *fixture) {
			f.want(lease.ErrFree, "Get of an entry that never existed")(f.s.Get(f.ctx, "n"))
			if err := f.s.Delete(f.ctx, "n", f.create("n", "a")); err != nil {
				f.Fatalf("Delete: %v", err)
			}
			f.want(lease.ErrFree, "Get of a deleted entry")(f.s.Get(f.ctx, "n"))
			f.create("n", "b")
		}},
		{name: "Renew", rule: "an entry is renewed at its revision and no other", run: func(f *fixture) {
			first := f.create("n", "a")
			second, err := f.s.Renew(f.ctx, "n", "a", first)
			if err != nil || second == first {
				f.Fatalf("Renew at %d = %d, %v", first, second, err)
			}
			f.want(lease.ErrConflict, "Renew at an old revision")(f.s.Renew(f.ctx, "n", "b", first))
			f.want(lease.ErrConflict, "Renew at a revision that never existed")(f.s.Renew(f.ctx, "n", "b", second+1000))
			f.wantEntry(f.s, "n", "a", second)
		}},
		{name: "RenewAbsent", rule: "a missing entry cannot be renewed", run: func(f *fixture) {
			for _, revision := range []uint64{0, 1, 1000} {
				f.want(lease.ErrConflict, fmt.Sprintf("Renew at %d of a missing entry", revision))(f.s.Renew(f.ctx, "n", "a", revision))
			}
			f.want(lease.ErrFree, "Get")(f.s.Get(f.ctx, "n"))
		}},
		{name: "RenewEarlierLife", rule: "an entry that was deleted and created again has another revision", run: func(f *fixture) {
			first := f.create("n", "a")
			if err := f.s.Delete(f.ctx, "n", first); err != nil {
				f.Fatalf("Delete: %v", err)
			}
			second := f.create("n", "a")
			if second == first {
				f.Errorf("the entry has revision %d before and after its deletion", first)
			}
			f.want(lease.ErrConflict, "Renew at the revision of an earlier life")(f.s.Renew(f.ctx, "n", "a", first))
			f.want(lease.ErrConflict, "Delete at the revision of an earlier life")(nil, f.s.Delete(f.ctx, "n", first))
			f.wantEntry(f.s, "n", "a", second)
		}},
		{name: "Delete", rule: "an entry is deleted at its revision and no other", run: func(f *fixture) {
			first := f.create("n", "a")
			second, err := f.s.Renew(f.ctx, "n", "a", first)
			if err != nil {
				f.Fatalf("Renew: %v", err)
			}
			for _, revision := range []uint64{0, first, second + 1000} {
				f.want(lease.ErrConflict, fmt.Sprintf("Delete at %d of an entry at %d", revision, second))(nil, f.s.Delete(f.ctx, "n", revision))
			}
			f.wantEntry(f.s, "n", "a", second)
			if err := f.s.Delete(f.ctx, "n", second); err != nil {
				f.Errorf("Delete: %v", err)
			}
			f.want(lease.ErrConflict, "Delete of a missing entry")(nil, f.s.Delete(f.ctx, "n", second))
		}},
		{name: "Names", rule: "different names are different entries, with any characters", run: func(f *fixture) {
			all := []string{"n", "N", "n.n", "n n", "n/n", "n=2en", "n*", ">", "ü", "\x00", "a|b", strings.Repeat("x", lease.MaxLength), strings.Repeat("x", lease.MaxLength-1)}
			revisions := make([]uint64, len(all))
			for i, name := range all {
				revisions[i] = f.create(name, "owner of "+fmt.Sprint(i))
			}
			for i, name := range all {
				f.wantEntry(f.s, name, "owner of "+fmt.Sprint(i), revisions[i])
			}
		}},
		{name: "Invalid", rule: "invalid names and owners are rejected", run: func(f *fixture) {
			for _, bad := range []string{"", strings.Repeat("x", lease.MaxLength+1)} {
				f.want(lease.ErrInvalid, fmt.Sprintf("Create with a name of %d bytes", len(bad)))(f.s.Create(f.ctx, bad, "a"))
				f.want(lease.ErrInvalid, fmt.Sprintf("Create with an owner of %d bytes", len(bad)))(f.s.Create(f.ctx, "n", bad))
			}
		}},
		{name: "Attach", rule: "all handles access the same entries", run: func(f *fixture) {
			first := f.create("n", "a")
			other := f.cfg.Attach(f.TB, f.s)
			f.wantEntry(other, "n", "a", first)
			f.want(lease.ErrHeld, "Create through another handle")(other.Create(f.ctx, "n", "b"))
			second, err := other.Renew(f.ctx, "n", "a", first)
			if err != nil {
				f.Fatalf("Renew through another handle: %v", err)
			}
			if err := other.Close(); err != nil {
				f.Errorf("Close: %v", err)
			}
			f.wantEntry(f.s, "n", "a", second)
		}},
		{name: "Timeout", rule: "Timeout returns the time after which entries expire", run: func(f *fixture) {
			if got := f.s.Timeout(); got != long {
				f.Errorf("Timeout = %v, want %v", got, long)
			}
		}},
		{name: "Cancelled", rule: "a call whose context has ended returns the error of the context", run: func(f *fixture) {
			revision := f.create("n", "a")
			ctx, cancel := context.WithCancel(f.ctx)
			cancel()
			f.wantFromAll(ctx, context.Canceled, "with a canceled context", revision)
		}},
		{name: "Closed", rule: "calls after Close return ErrClosed", run: func(f *fixture) {
			revision := f.create("n", "a")
			if err := errors.Join(f.s.Close(), f.s.Close()); err != nil {
				f.Errorf("Close: %v", err)
			}
			f.wantFromAll(f.ctx, lease.ErrClosed, "after Close", revision)
		}},
		{name: "Expire", rule: "an entry that is not renewed is gone after its time-out, and no sooner", expires: true, run: func(f *fixture) {
			since := time.Now() // before the write
			f.create("n", "a")
			if took := f.untilFree("n", since); took < f.s.Timeout()*9/10 {
				f.Errorf("the entry is gone after %v, its time-out is %v", took, f.s.Timeout())
			}
			f.create("n", "b")
		}},
		{name: "RenewKeeps", rule: "an entry that is renewed does not expire", expires: true, run: func(f *fixture) {
			for round := 0; !f.keeps(fmt.Sprint("n", round)); round++ {
				f.Logf("the process was suspended for too long: repeating the check")
			}
		}},
		{name: "ExpiredIsAnother", rule: "an entry that expired cannot be renewed or deleted", expires: true, run: func(f *fixture) {
			revision := f.create("n", "a")
			f.untilFree("n", time.Now())
			f.want(lease.ErrConflict, "Renew of an expired entry")(f.s.Renew(f.ctx, "n", "a", revision))
			f.want(lease.ErrConflict, "Delete of an expired entry")(nil, f.s.Delete(f.ctx, "n", revision))
			since := time.Now()
			second := f.create("n", "b")
			f.want(lease.ErrConflict, "Renew of an expired entry that another owner holds")(f.s.Renew(f.ctx, "n", "a", revision))
			got, err := f.s.Get(f.ctx, "n")
			if errors.Is(err, lease.ErrFree) && f.stoodStill(since) {
				return
			}
			if err != nil || got != (lease.Entry{Owner: "b", Revision: second}) {
				f.Errorf("Get = %+v, %v, want b at %d", got, err, second)
			}
		}},
	}
}

// wantFromAll checks the error of each method of the store. The entry n has the revision.
func (f *fixture) wantFromAll(ctx context.Context, want error, when string, revision uint64) {
	f.Helper()
	f.want(want, "Create "+when)(f.s.Create(ctx, "other", "a"))
	f.want(want, "Renew "+when)(f.s.Renew(ctx, "n", "a", revision))
	f.want(want, "Delete "+when)(nil, f.s.Delete(ctx, "n", revision))
	f.want(want, "Get "+when)(f.s.Get(ctx, "n"))
}

// untilFree waits until an entry has expired. It returns the time that has passed since the given
// time.
func (f *fixture) untilFree(name string, since time.Time) time.Duration {
	f.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	begin := time.Now()
	for {
		asked := time.Since(begin)
		_, err := f.s.Get(f.ctx, name)
		if errors.Is(err, lease.ErrFree) {
			return time.Since(since)
		}
		if err != nil || asked > f.s.Timeout()+f.cfg.Late {
			f.Fatalf("the entry exists more than %v after it was written, with a time-out of %v: %v", asked, f.s.Timeout(), err)
		}
		<-ticker.C
	}
}

// stoodStill reports whether the test was suspended for so long that an entry written after the
// given time may have expired.
func (f *fixture) stoodStill(since time.Time) bool { return time.Since(since) >= f.s.Timeout()*9/10 }

// keeps checks that an entry that is renewed in time does not expire. It returns false if the entry
// was not renewed in time.
func (f *fixture) keeps(name string) bool {
	f.Helper()
	since := time.Now() // the entry was written later
	revision := f.create(name, "a")
	begin := time.Now()
	ticker := time.NewTicker(f.s.Timeout() / 5)
	defer ticker.Stop()
	for time.Since(begin) < 2*f.s.Timeout() {
		<-ticker.C
		now := time.Now()
		renewed, err := f.s.Renew(f.ctx, name, "a", revision)
		if err != nil {
			if errors.Is(err, lease.ErrConflict) && f.stoodStill(since) {
				return false
			}
			f.Fatalf("Renew after %v, with a time-out of %v: %v", time.Since(begin), f.s.Timeout(), err)
		}
		since, revision = now, renewed
	}
	if got, err := f.s.Get(f.ctx, name); err != nil || got != (lease.Entry{Owner: "a", Revision: revision}) {
		if errors.Is(err, lease.ErrFree) && f.stoodStill(since) {
			return false
		}
		f.Errorf("Get(%q) = %+v, %v, want a at %d", name, got, err, revision)
	}
	if took := f.untilFree(name, since); took < f.s.Timeout()*9/10 {
		f.Errorf("the entry is gone %v after it was renewed, its time-out is %v", took, f.s.Timeout())
	}
	return true
}
