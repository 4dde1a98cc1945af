// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"time"

	"github.com/refold-io/refold/lease"
)

// LeaseStore is a lease.LeaseStore whose entries expire.
type LeaseStore struct {
	w       *Env
	entries map[string]entry
	written uint64

	// Timeout is the time after which an entry expires without a write.
	Timeout time.Duration
	// Away drops all requests.
	Away bool
	// Loss is the probability that a request or an answer is lost. Late is the probability that a
	// request takes up to 10 s.
	Loss, Late float64
}

const maxLate = 10 * time.Second

type entry struct {
	lease.Entry

	expires time.Duration
}

// NewLeaseStore returns an empty store.
func (w *Env) NewLeaseStore(timeout time.Duration) *LeaseStore {
	return &LeaseStore{w: w, Timeout: timeout, entries: map[string]entry{}}
}

// Heal ends all faults of the store.
func (s *LeaseStore) Heal() { s.Away, s.Loss, s.Late = false, 0, 0 }

func (s *LeaseStore) get(name string) (entry, bool) {
	e, found := s.entries[name]
	return e, found && s.w.now < e.expires
}

func (s *LeaseStore) put(name, owner string) uint64 {
	s.written++
	s.entries[name] = entry{lease.Entry{Owner: owner, Revision: s.written}, s.w.now + s.Timeout}
	return s.written
}

// Create creates an entry, or returns lease.ErrHeld.
func (s *LeaseStore) Create(name, owner string) (uint64, error) {
	if _, held := s.get(name); held {
		return 0, lease.ErrHeld
	}
	return s.put(name, owner), nil
}

// Renew writes an entry again, or returns lease.ErrConflict.
func (s *LeaseStore) Renew(name, owner string, revision uint64) (uint64, error) {
	if e, held := s.get(name); !held || e.Revision != revision {
		return 0, lease.ErrConflict
	}
	return s.put(name, owner), nil
}

// Delete removes an entry, or returns lease.ErrConflict.
func (s *LeaseStore) Delete(name string, revision uint64) error {
	if e, held := s.get(name); !held || e.Revision != revision {
		return lease.ErrConflict
	}
	delete(s.entries, name)
	return nil
}

// Get returns an entry, or lease.ErrFree.
func (s *LeaseStore) Get(name string) (lease.Entry, error) {
	e, held := s.get(name)
	if !held {
		return lease.Entry{}, lease.ErrFree
	}
	return e.Entry, nil
}

// Call sends a request of a process to the store, and the answer back. Either may be lost without a
// notice.
func (s *LeaseStore) Call(p *Process, request func() (answer func())) {
	w := s.w
	if s.Away || w.Network.Away || p.place.NoUp || s.Loss > 0 && w.Rand.Float64() < s.Loss {
		return
	}
	delay := w.Network.Delay.pick(w.Rand)
	if s.Late > 0 && w.Rand.Float64() < s.Late {
		delay += time.Duration(w.Rand.Int64N(int64(maxLate)))
	}
	w.After(delay, func() {
		answer := request()
		if s.Away || w.Network.Away || p.place.NoDown || s.Loss > 0 && w.Rand.Float64() < s.Loss {
			return
		}
		w.After(w.Network.Delay.pick(w.Rand), func() { p.Do(answer) })
	})
}
