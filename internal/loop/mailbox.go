// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package loop has the building blocks of event loops that drive a single-threaded state machine: a
// Mailbox for the input, a Dispatcher that runs log and observer calls outside the loop, a Throttle
// for repeated log lines, the counter InFlight for running operations, the correlation table
// Pending, and the wake-up Signal.
//
// Packages cluster, ddata, sharding and transport use this package. All types are safe for
// concurrent use.
package loop

import (
	"context"
	"errors"
	"sync"
)

var (
	// ErrFull is returned by Mailbox.Offer if the mailbox has no room for the entry.
	ErrFull = errors.New("mailbox is full")
	// ErrClosed is returned if the mailbox is closed.
	ErrClosed = errors.New("mailbox is closed")
)

// maxReused is the largest capacity of a slice that Take reuses. A larger slice is left to the
// garbage collector.
const maxReused = 8192

// Limit bounds the entries of one class that wait in a Mailbox. Zero means no limit. A class
// without waiting entries accepts an entry of any size. Account is charged for the waiting entries.
type Limit struct {
	Count, Bytes int
	Account      *Account
}

// entryCost is the charge for an entry in addition to its bytes.
const entryCost = 128

// Mailbox holds the input of a loop in the order of arrival. Many goroutines add entries. One
// goroutine takes them. Each bounded entry belongs to a class, which is an index of the limits
// given to NewMailbox.
type Mailbox[T any] struct {
	// Ready is set whenever an entry was added.
	Ready Signal

	mu      sync.Mutex
	entries []T
	classes []class
	closed  bool
}

type class struct {
	limit        Limit
	count, bytes int
	room         chan struct{} // closed when entries are taken, nil if no sender waits
}

// NewMailbox returns an empty mailbox with one class for each limit. Several mailboxes of one loop
// may share a signal.
func NewMailbox[T any](ready Signal, limits ...Limit) *Mailbox[T] {
	m := &Mailbox[T]{Ready: ready, classes: make([]class, len(limits))}
	for i, l := range limits {
		m.classes[i].limit = l
	}
	return m
}

// Add appends an entry that is not subject to a limit. It returns false if the mailbox is closed.
func (m *Mailbox[T]) Add(v T) bool {
	defer m.Ready.Set() // after the unlock
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.entries = append(m.entries, v)
	}
	return !m.closed
}

// Offer appends an entry of a class. It returns ErrFull if the class is at its limit, and ErrClosed
// if the mailbox is closed.
func (m *Mailbox[T]) Offer(of, bytes int, v T) error {
	_, err := m.offer(of, bytes, v)
	return err
}

// Receive appends an entry of a class. It waits while the class is at its limit. It returns
// ErrClosed if the mailbox is closed, or the error of ctx.
func (m *Mailbox[T]) Receive(ctx context.Context, of, bytes int, v T) error {
	for {
		room, err := m.offer(of, bytes, v)
		if !errors.Is(err, ErrFull) {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// add adds an entry, or returns false at the limit.
func (c *class) add(bytes int) bool {
	l := c.limit
	switch {
	case c.count == 0:
		l.Account.Hold(bytes + entryCost)
	case l.Count > 0 && c.count >= l.Count, l.Bytes > 0 && c.bytes+bytes > l.Bytes, !l.Account.Take(bytes + entryCost):
		return false
	}
	c.count++
	c.bytes += bytes
	return true
}

func (c *class) remove(count, bytes int) {
	c.count -= count
	c.bytes -= bytes
	c.limit.Account.Free(bytes + count*entryCost)
	c.wake()
}

// offer implements Offer. With ErrFull it returns a channel that is closed when there is room.
func (m *Mailbox[T]) offer(of, bytes int, v T) (room <-chan struct{}, err error) {
	defer m.Ready.Set() // after the unlock
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	c := &m.classes[of]
	if !c.add(bytes) {
		if c.room == nil {
			c.room = make(chan struct{})
		}
		return c.room, ErrFull
	}
	m.entries = append(m.entries, v)
	return nil, nil
}

// Take removes and returns all entries. The mailbox reuses the memory of spare, which is usually
// the result of the previous call.
func (m *Mailbox[T]) Take(spare []T) []T {
	if cap(spare) > maxReused {
		spare = nil
	}
	clear(spare)
	m.mu.Lock()
	defer m.mu.Unlock()
	entries := m.entries
	m.entries = spare[:0]
	m.release()
	return entries
}

// TakeOne removes and returns the oldest entry. found reports whether there was an entry, more
// whether further entries wait. The function size returns the class and the size of an entry, as
// given to Offer or Receive.
func (m *Mailbox[T]) TakeOne(size func(T) (class, bytes int)) (v T, found, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.entries) == 0 {
		return v, false, false
	}
	var none T
	v, m.entries[0] = m.entries[0], none
	if m.entries = m.entries[1:]; len(m.entries) == 0 {
		m.entries = nil
	}
	of, bytes := size(v)
	m.classes[of].remove(1, bytes)
	return v, true, len(m.entries) > 0
}

// Len returns how many entries wait.
func (m *Mailbox[T]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

// Close closes the mailbox and returns the entries that were not taken. Waiting senders return
// ErrClosed.
func (m *Mailbox[T]) Close() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	entries := m.entries
	m.entries = nil
	m.release()
	return entries
}

// release frees the room of all classes. The caller holds m.mu.
func (m *Mailbox[T]) release() {
	for i := range m.classes {
		c := &m.classes[i]
		c.remove(c.count, c.bytes)
	}
}

func (c *class) wake() {
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
}

// Signal wakes up one goroutine. Several calls of Set before the receiver runs are one wake-up. The
// receiver waits with a receive from the channel, then looks for work.
type Signal chan struct{}

// NewSignal returns a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set wakes up the receiver. It does not block.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
