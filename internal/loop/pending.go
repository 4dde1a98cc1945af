// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"sync"
)

// Pending is a correlation table. It assigns a number to each question and stores the asker until
// the question is removed. The functions that its methods call run under its lock and must not
// block. The zero value is ready for use.
type Pending[A any] struct {
	// Limit is how many questions may be open. 0 means no limit.
	Limit int

	mu     sync.Mutex
	last   uint64
	open   map[uint64]A
	closed bool
}

// Add adds a question and returns its number, which is at least 1 and never used again. The error
// is ErrFull or ErrClosed.
func (p *Pending[A]) Add(asker A) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return 0, ErrClosed
	case p.Limit > 0 && len(p.open) >= p.Limit:
		return 0, ErrFull
	case p.open == nil:
		p.open = make(map[uint64]A)
	}
	p.last++
	p.open[p.last] = asker
	return p.last, nil
}

// Remove removes a question and reports whether it was open.
func (p *Pending[A]) Remove(number uint64) bool {
	return p.Answer(number, func(A) bool { return true })
}

// Answer calls f with the asker of an open question, and removes the question if f returns true. It
// reports whether the question was removed.
func (p *Pending[A]) Answer(number uint64, f func(A) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	asker, found := p.open[number]
	if !found || !f(asker) {
		return false
	}
	delete(p.open, number)
	return true
}

// AnswerAll calls f with the asker of each open question in any order, and removes the questions
// for which f returns true.
func (p *Pending[A]) AnswerAll(f func(A) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for number, asker := range p.open {
		if f(asker) {
			delete(p.open, number)
		}
	}
}

// Close makes later calls of Add fail.
func (p *Pending[A]) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// Len returns how many questions are open.
func (p *Pending[A]) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// Calls are calls in progress that can be made to fail together. The zero value is ready for use.
type Calls struct {
	open Pending[context.CancelCauseFunc]
}

// Begin returns the context of a call, and a function that ends the call.
func (c *Calls) Begin(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	number, _ := c.open.Add(cancel) // Add never fails without a limit
	return ctx, func() {
		c.open.Remove(number)
		cancel(nil)
	}
}

// Fail ends the contexts of all calls in progress with a cause.
func (c *Calls) Fail(cause error) {
	c.open.AnswerAll(func(cancel context.CancelCauseFunc) bool {
		cancel(cause)
		return true
	})
}
