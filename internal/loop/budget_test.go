// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package loop_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/refold-io/refold/internal/loop"
)

// An account may hold as many bytes as are free. Later accounts find room.
func TestShares(t *testing.T) {
	t.Parallel()
	const limit = 60 << 20
	b := loop.NewBudget(limit)
	fill := func(name string) (held int) {
		a := b.Account(name)
		before := a.Held()
		for a.Take(1 << 20) {
			held++
		}
		if a.Held() != before+held<<20 {
			t.Errorf("account %s holds %d bytes, want %d", name, a.Held(), before+held<<20)
		}
		return held
	}
	if first, second := fill("a"), fill("b"); first != 30 || second != 15 {
		t.Errorf("two accounts hold %d and %d MiB of 60, want 30 and 15", first, second)
	}
	if left := b.Links(10 << 20); left != 15<<20 {
		t.Errorf("the links may hold %d bytes, want %d", left, 15<<20)
	}
	if third := fill("c"); third != 2 || b.Held() != 57<<20 {
		t.Errorf("a third account holds %d MiB and %d bytes are held, want 2 and %d", third, b.Held(), 57<<20)
	}
	b.Account("a").Free(30 << 20)
	if more := fill("c"); more != 15 {
		t.Errorf("the third account has taken %d MiB more, want 15", more)
	}
}

// Concurrent accounts never hold more than the limit, and their charges end with nothing held.
func TestAccountsAreExact(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	b := loop.NewBudget(limit)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			a := b.Account([]string{"x", "y"}[i%2])
			charges := make([]loop.Charge, 100)
			for range 20_000 {
				c := &charges[r.IntN(len(charges))]
				switch r.IntN(3) {
				case 0:
					c.Free()
					c.Take(a, r.IntN(20_000))
				case 1:
					c.Free()
					c.Free()
				case 2:
					c.Free()
					c.Hold()
				}
				if held := b.Held(); held > limit+2<<20 { // Hold ignores the limit
					t.Errorf("%d bytes are held, the limit is %d", held, limit)
					return
				}
			}
			for i := range charges {
				charges[i].Free()
			}
		})
	}
	group.Wait()
	if x, y := b.Account("x").Held(), b.Account("y").Held(); x != 0 || y != 0 || b.Held() != 0 {
		t.Errorf("the accounts hold %d and %d bytes at the end, and %d are counted, want 0", x, y, b.Held())
	}
}

// A mailbox charges its account for the waiting entries. An empty class accepts any entry.
func TestMailboxAccount(t *testing.T) {
	t.Parallel()
	b := loop.NewBudget(100_000)
	a := b.Account("mailbox")
	m := loop.NewMailbox[int](loop.NewSignal(), loop.Limit{Account: a})
	size := func(int) (class, bytes int) { return 0, 30_000 }
	for i, want := range []error{nil, loop.ErrFull} {
		if err := m.Offer(0, 30_000, i); !errors.Is(err, want) {
			t.Errorf("entry %d of 30,000 bytes with a budget of 100,000: %v, want %v", i, err, want)
		}
	}
	if held := a.Held(); held < 30_000 || held > 31_000 {
		t.Errorf("%d bytes are held for an entry of 30,000", held)
	}
	m.Take(nil)
	if err := m.Offer(0, 200_000, 0); err != nil || a.Held() < 200_000 {
		t.Errorf("an entry that exceeds the budget in an empty mailbox: %v, %d bytes are held", err, a.Held())
	}
	m.Take(nil)
	for range 3 {
		if err := m.Offer(0, 10_000, 0); err != nil {
			t.Error(err)
		}
	}
	before := a.Held()
	if m.Close(); before < 30_000 || a.Held() != 0 {
		t.Errorf("%d bytes are held with 3 entries and %d after Close, want 30,000 and 0", before, a.Held())
	}
	m = loop.NewMailbox[int](loop.NewSignal(), loop.Limit{Account: a})
	if err := m.Offer(0, 30_000, 0); err != nil {
		t.Error(err)
	}
	if m.TakeOne(size); a.Held() != 0 {
		t.Errorf("%d bytes are held after TakeOne, want 0", a.Held())
	}
}
