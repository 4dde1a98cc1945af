// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"sync"
	"sync/atomic"
)

// Budget bounds the memory of the input that waits on a node. The links to other nodes and the
// accounts share it. An account may hold as many bytes as are free. One account therefore gets at
// most half of the budget, and k accounts get equal shares and leave the same share free, so that
// no account uses up the room of the others. Package link applies the same rule to each name. A
// peer is at most three holders, two in package link and one for its commands, so it gets at most
// three quarters of the budget.
type Budget struct {
	limit int64
	links atomic.Int64
	// blocks is the sum of the accounts, each rounded down to a multiple of block. Most changes of
	// an account therefore do not touch this shared counter.
	blocks atomic.Int64
	byName sync.Map // string to *Account
}

const block = 4 << 10

// NewBudget returns a budget with a limit in bytes.
func NewBudget(limit int) *Budget { return &Budget{limit: int64(limit)} }

// Links records how many bytes the links hold and returns how many they may hold.
func (b *Budget) Links(held int) (limit int) {
	b.links.Store(int64(held))
	return int(b.limit - b.blocks.Load())
}

// Limit returns the limit in bytes.
func (b *Budget) Limit() int { return int(b.limit) }

// Held returns how many bytes are held. It is exact to a block for each account.
func (b *Budget) Held() int { return int(b.links.Load() + b.blocks.Load()) }

// Account returns the account with a name.
func (b *Budget) Account(name string) *Account {
	a, found := b.byName.Load(name)
	if !found {
		a, _ = b.byName.LoadOrStore(name, &Account{of: b})
	}
	return a.(*Account) //nolint:errcheck,forcetypeassert // nothing else is stored
}

// Account is a holder of bytes of a Budget. A nil Account has no limit.
type Account struct {
	of   *Budget
	held atomic.Int64
}

// Take takes bytes if the account may hold them, and reports whether it has taken them.
func (a *Account) Take(bytes int) bool {
	if a == nil {
		return true
	}
	held := a.add(int64(bytes))
	if held <= a.of.limit-a.of.links.Load()-a.of.blocks.Load() {
		return true
	}
	a.add(-int64(bytes))
	return false
}

// Hold takes bytes that are in memory whether they fit or not.
func (a *Account) Hold(bytes int) {
	if a != nil {
		a.add(int64(bytes))
	}
}

// Free returns bytes.
func (a *Account) Free(bytes int) {
	if a != nil {
		a.add(-int64(bytes))
	}
}

// Held returns how many bytes the account holds.
func (a *Account) Held() int { return int(a.held.Load()) }

func (a *Account) add(bytes int64) (held int64) {
	held = a.held.Add(bytes)
	if change := held/block - (held-bytes)/block; change != 0 {
		a.of.blocks.Add(change * block)
	}
	return held
}

// Charge holds bytes of an account for one message. The zero value holds none. It is used by one
// goroutine at a time. A nil Charge does nothing.
type Charge struct {
	account *Account
	bytes   int
	held    bool
}

// Take takes the bytes of a message from an account. It returns false if they do not fit.
func (c *Charge) Take(a *Account, bytes int) bool {
	c.account, c.bytes, c.held = a, bytes, a.Take(bytes)
	return c.held
}

// Free returns the bytes, if they are held.
func (c *Charge) Free() {
	if c != nil && c.held {
		c.held = false
		c.account.Free(c.bytes)
	}
}

// Hold takes the bytes again after Free: the message waits again.
func (c *Charge) Hold() {
	if c != nil && c.account != nil && !c.held {
		c.held = true
		c.account.Hold(c.bytes)
	}
}

// Budgeted is embedded, under an unexported name, in the type that owns the budget of a node.
type Budgeted struct{ budget *Budget }

// WithBudget returns a Budgeted.
func WithBudget(b *Budget) Budgeted { return Budgeted{b} }

func (b *Budgeted) owned() *Budget { return b.budget }

// BudgetOf returns the budget of its owner.
func BudgetOf(owner interface{ owned() *Budget }) *Budget { return owner.owned() }
