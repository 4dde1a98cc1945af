// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"time"

	"github.com/refold-io/refold/lease"
)

// Store keeps entries that expire, as lease.Store promises.
type Store struct {
	w       *World
	timeout time.Duration
	entries map[string]entry
	written uint64

	// Away says that it answers nobody.
	Away bool
	// Loss is the probability that a request or an answer is lost, Late that a request takes up to
	// MaxLate.
	Loss, Late float64
}

// MaxLate is the longest that a request is on its way.
const MaxLate = 10 * time.Second

type entry struct {
	lease.Entry

	expires time.Duration
}

// NewStore returns an empty store.
func (w *World) NewStore(timeout time.Duration) *Store {
	return &Store{w: w, timeout: timeout, entries: map[string]entry{}}
}

// Timeout returns how long after its last write an entry expires.
func (s *Store) Timeout() time.Duration { return s.timeout }

// Heal ends all that ails the store.
func (s *Store) Heal() { s.Away, s.Loss, s.Late = false, 0, 0 }

func (s *Store) get(name string) (entry, bool) {
	e, found := s.entries[name]
	return e, found && s.w.now < e.expires
}

func (s *Store) put(name, owner string) uint64 {
	s.written++
	s.entries[name] = entry{lease.Entry{Owner: owner, Revision: s.written}, s.w.now + s.timeout}
	return s.written
}

// Create makes an entry, or returns lease.ErrHeld.
func (s *Store) Create(name, owner string) (uint64, error) {
	if _, held := s.get(name); held {
		return 0, lease.ErrHeld
	}
	return s.put(name, owner), nil
}

// Renew writes an entry again, or returns lease.ErrConflict.
func (s *Store) Renew(name, owner string, revision uint64) (uint64, error) {
	if e, held := s.get(name); !held || e.Revision != revision {
		return 0, lease.ErrConflict
	}
	return s.put(name, owner), nil
}

// Delete removes an entry, or returns lease.ErrConflict.
func (s *Store) Delete(name string, revision uint64) error {
	if e, held := s.get(name); !held || e.Revision != revision {
		return lease.ErrConflict
	}
	delete(s.entries, name)
	return nil
}

// Get returns an entry, or lease.ErrFree.
func (s *Store) Get(name string) (lease.Entry, error) {
	e, held := s.get(name)
	if !held {
		return lease.Entry{}, lease.ErrFree
	}
	return e.Entry, nil
}

// Call carries a request of a process to the store, and the answer back. Either may get lost: then nobody
// is told.
func (s *Store) Call(p *Process, request func() (answer func())) {
	w := s.w
	if s.Away || w.Network.Away || p.place.NoUp || s.Loss > 0 && w.Rand.Float64() < s.Loss {
		return
	}
	delay := w.Network.Delay.pick(w.Rand)
	if s.Late > 0 && w.Rand.Float64() < s.Late {
		delay += time.Duration(w.Rand.Int64N(int64(MaxLate)))
	}
	w.After(delay, func() {
		answer := request()
		if s.Away || w.Network.Away || p.place.NoDown || s.Loss > 0 && w.Rand.Float64() < s.Loss {
			return
		}
		w.After(w.Network.Delay.pick(w.Rand), func() { p.Do(answer) })
	})
}
