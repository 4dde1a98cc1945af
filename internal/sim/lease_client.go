// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"time"

	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/lease"
)

// leaseClient does the work of lease.Lease without threads: it holds a lease for a shorter time
// than the store, and performs one operation at a time.
type leaseClient struct {
	h    *host
	name string

	queue []bool // pending operations: true is a release
	busy  bool
	call  uint64 // answers to earlier calls are ignored

	held     bool
	hold     uint64 // number of the acquisition
	until    time.Duration
	revision uint64
}

func (h *host) lease(name string) *leaseClient {
	l := h.leases[name]
	if l == nil {
		l = &leaseClient{h: h, name: name}
		h.leases[name] = l
	}
	return l
}

func (l *leaseClient) store() *env.LeaseStore { return l.h.c.store }

func (l *leaseClient) owner() string { return l.h.p.Node().String() }

// certain reports whether the lease is certainly held, as Lease.Check does.
func (l *leaseClient) certain() bool { return l.held && l.h.p.Now() < l.until }

func (l *leaseClient) do(release bool) {
	l.queue = append(l.queue, release)
	l.next()
}

func (l *leaseClient) next() {
	if l.busy || len(l.queue) == 0 {
		return
	}
	l.busy = true
	release := l.queue[0]
	l.queue = l.queue[1:]
	l.h.p.After(0, func() {
		if release {
			l.release()
		} else {
			l.acquire()
		}
	})
}

func (l *leaseClient) done(in node.Input) {
	l.busy = false
	l.h.step(in)
	l.next()
}

// ask calls the store. It calls fail if no answer arrives in time.
func (l *leaseClient) ask(do func() error, answered func(err error), fail func()) {
	l.call++
	call := l.call
	current := func() bool { return l.call == call && !l.h.p.Dead() }
	l.h.c.store.Call(l.h.p, func() func() {
		err := do()
		return func() {
			if current() {
				l.call++
				answered(err)
			} else {
				l.h.c.hit("lease", "late answer")
			}
		}
	})
	l.h.p.After(l.h.c.plan.LeaseCall, func() {
		if current() {
			l.call++
			l.h.c.hit("lease", "no answer")
			fail()
		}
	})
}

func (l *leaseClient) answer(held bool, how string) {
	l.h.c.hit("lease", how)
	l.done(node.LeaseAnswer{Lease: l.name, Held: held})
}

func (l *leaseClient) refused(owner string) {
	l.h.c.hit("lease", "held by another")
	l.done(node.LeaseAnswer{Lease: l.name, Owner: owner})
}

func (l *leaseClient) acquire() {
	if l.certain() {
		l.answer(true, "still held")
		return
	}
	l.held = false
	unknown := func() { l.answer(false, "acquire: unknown") }
	var revision uint64
	sent := l.h.p.Now()
	create := func() (err error) {
		revision, err = l.store().Create(l.name, l.owner())
		return err
	}
	l.ask(create, func(err error) {
		if errors.Is(err, lease.ErrHeld) {
			l.reacquire()
			return
		}
		l.keep(revision, sent, "acquired")
	}, unknown)
}

// reacquire checks whether the entry is this node's own, from a call with an unknown outcome.
func (l *leaseClient) reacquire() {
	var found lease.Entry
	unknown := func() { l.answer(false, "acquire: unknown") }
	l.ask(func() (err error) {
		found, err = l.store().Get(l.name)
		return err
	}, func(err error) {
		if err != nil || found.Owner != l.owner() {
			l.refused(found.Owner)
			return
		}
		sent, revision := l.h.p.Now(), uint64(0)
		l.ask(func() (err error) {
			revision, err = l.store().Renew(l.name, l.owner(), found.Revision)
			return err
		}, func(err error) {
			if err != nil {
				unknown()
				return
			}
			l.keep(revision, sent, "found again")
		}, unknown)
	}, unknown)
}

func (l *leaseClient) keep(revision uint64, sent time.Duration, how string) {
	l.held, l.revision, l.until = true, revision, sent+l.h.c.store.Timeout()/10*9
	l.hold++
	if !l.certain() {
		l.held = false
		l.answer(false, "acquired too late")
		return
	}
	hold := l.hold
	l.renewAfter(hold, l.h.c.store.Timeout()/4)
	l.expire(hold)
	l.answer(true, how)
}

// expire loses the lease when it expires.
func (l *leaseClient) expire(hold uint64) {
	l.h.p.After(l.until-l.h.p.Now(), func() {
		switch {
		case !l.held || l.hold != hold:
		case l.certain():
			l.expire(hold)
		default:
			l.lose("expired")
		}
	})
}

func (l *leaseClient) lose(how string) {
	l.held = false
	l.h.c.hit("lease", how)
	l.h.step(node.LeaseLost{Lease: l.name})
}

func (l *leaseClient) renewAfter(hold uint64, d time.Duration) {
	l.h.p.After(d, func() {
		if !l.held || l.hold != hold {
			return
		}
		if l.busy {
			l.renewAfter(hold, 100*time.Millisecond)
			return
		}
		l.renew(hold)
	})
}

func (l *leaseClient) renew(hold uint64) {
	sent := l.h.p.Now()
	var revision uint64
	l.ask(func() (err error) {
		revision, err = l.store().Renew(l.name, l.owner(), l.revision)
		if err != nil { // an earlier renewal may have changed the revision
			if e, failed := l.store().Get(l.name); failed == nil && e.Owner == l.owner() {
				revision, err = l.store().Renew(l.name, l.owner(), e.Revision)
			}
		}
		return err
	}, func(err error) {
		switch {
		case !l.held || l.hold != hold:
		case err != nil:
			l.lose("lost")
		default:
			l.h.c.hit("lease", "renewed")
			l.revision, l.until = revision, sent+l.h.c.store.Timeout()/10*9
			l.renewAfter(hold, l.h.c.store.Timeout()/4)
		}
	}, func() { l.renewAfter(hold, time.Second) })
}

func (l *leaseClient) release() {
	revision, held := l.revision, l.held
	l.held = false
	l.ask(func() error {
		if held && l.store().Delete(l.name, revision) == nil {
			return nil
		}
		if e, err := l.store().Get(l.name); err == nil && e.Owner == l.owner() {
			return l.store().Delete(l.name, e.Revision)
		}
		return nil
	}, func(error) {
		l.h.c.hit("lease", "released")
		l.done(node.LeaseReleased{Lease: l.name, Done: true})
	}, func() {
		l.h.c.hit("lease", "release: unknown")
		l.done(node.LeaseReleased{Lease: l.name})
	})
}
