// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/lease"
)

// leaseClient does the work of lease.Lease without threads: it holds a lease for a shorter time
// than the store, and performs one operation at a time.
type leaseClient struct {
	h    *host
	name string

	// The results of the operations, and the loss of the lease. They may step the node.
	answered func(held bool, owner string)
	released func(done bool)
	lost     func()

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
		l = &leaseClient{
			h: h, name: name,
			answered: func(held bool, owner string) { h.step(node.LeaseAnswer{Lease: name, Held: held, Owner: owner}) },
			released: func(done bool) { h.step(node.LeaseReleased{Lease: name, Done: done}) },
			lost:     func() { h.step(node.LeaseLost{Lease: name}) },
		}
		h.leases[name] = l
	}
	return l
}

func (l *leaseClient) store() *env.LeaseStore { return l.h.c.store }

func (l *leaseClient) owner() string { return l.h.p.Node().String() }

// certain reports whether the lease is certainly held, as Lease.Check does.
func (l *leaseClient) certain() bool { return l.held && l.h.p.Now() < l.until }

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

func (l *leaseClient) done(report func()) {
	l.busy = false
	report()
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
	l.done(func() { l.answered(held, "") })
}

// own calls write with a revision of the entry. If write fails and the entry is this node's own,
// own calls write again with the present revision, because an earlier call with an unknown outcome
// may have changed the entry.
func (l *leaseClient) own(revision uint64, write func(revision uint64) error) error {
	err := write(revision)
	if err == nil {
		return nil
	}
	e, failed := l.store().Get(l.name)
	if failed == nil && e.Owner == l.owner() {
		return write(e.Revision)
	}
	return err
}

func (l *leaseClient) acquire() {
	if l.certain() {
		l.answer(true, "still held")
		return
	}
	l.held = false
	var revision uint64
	sent, how, owner := l.h.p.Now(), "acquired", ""
	l.ask(func() (err error) {
		if revision, err = l.store().Create(l.name, l.owner()); err == nil {
			return nil
		}
		found, err := l.store().Get(l.name)
		if how, owner = "found again", found.Owner; err != nil || owner != l.owner() {
			return lease.ErrHeld
		}
		revision, err = l.store().Renew(l.name, l.owner(), found.Revision)
		return err
	}, func(err error) {
		if err != nil {
			l.h.c.hit("lease", "held by another")
			l.done(func() { l.answered(false, owner) })
			return
		}
		l.held, l.revision, l.until = true, revision, sent+l.h.c.store.Timeout/10*9
		l.hold++
		if !l.certain() {
			l.held = false
			l.answer(false, "acquired too late")
			return
		}
		l.renewAfter(l.hold, l.h.c.store.Timeout/4)
		l.expire(l.hold)
		l.answer(true, how)
	}, func() { l.answer(false, "acquire: unknown") })
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
	l.lost()
}

func (l *leaseClient) renewAfter(hold uint64, d time.Duration) {
	l.h.p.After(d, func() {
		switch {
		case !l.held || l.hold != hold:
		case l.busy:
			l.renewAfter(hold, 100*time.Millisecond)
		default:
			l.renew(hold)
		}
	})
}

func (l *leaseClient) renew(hold uint64) {
	sent := l.h.p.Now()
	var revision uint64
	l.ask(func() error {
		return l.own(l.revision, func(old uint64) (err error) {
			revision, err = l.store().Renew(l.name, l.owner(), old)
			return err
		})
	}, func(err error) {
		switch {
		case !l.held || l.hold != hold:
		case err != nil:
			l.lose("lost")
		default:
			l.h.c.hit("lease", "renewed")
			l.revision, l.until = revision, sent+l.h.c.store.Timeout/10*9
			l.renewAfter(hold, l.h.c.store.Timeout/4)
		}
	}, func() { l.renewAfter(hold, time.Second) })
}

func (l *leaseClient) release() {
	l.held = false
	l.ask(func() error {
		return l.own(l.revision, func(revision uint64) error { return l.store().Delete(l.name, revision) })
	}, func(error) {
		l.h.c.hit("lease", "released")
		l.done(func() { l.released(true) })
	}, func() {
		l.h.c.hit("lease", "release: unknown")
		l.done(func() { l.released(false) })
	})
}

// callLease acquires or releases the lease of a run of a shard. The calls of a run are carried out one
// after the other.
func (s *shardNode) callLease(c shardcore.LeaseCall) {
	l, at := s.leases[c.ShardRun], c.ShardRun
	reply := func(row string, in shard.Input) {
		s.d.hit("shard lease", row)
		if !s.gone {
			s.step(shardcore.ShardInput{ShardRun: at, Input: in})
		}
	}
	if l == nil {
		l = &leaseClient{
			h: s.h, name: fmt.Sprintf("%s-shard-%s-%d", s.h.c.plan.Config.Cluster, s.cfg.Region.Type, at.Shard),
			answered: func(held bool, _ string) {
				if held {
					reply("held", shard.LeaseHeld{})
				} else {
					reply("denied", shard.LeaseDenied{})
				}
			},
			released: func(done bool) {
				if done {
					reply("released", shard.LeaseReleased{})
				} else {
					reply("release failed", shard.LeaseReleased{})
				}
			},
			lost: func() { reply("lost", shard.LeaseLost{}) },
		}
		s.leases[at] = l
	}
	if c.Release {
		delete(s.leases, at)
	}
	l.queue = append(l.queue, c.Release)
	l.next()
}

// startsWithLease checks that an entity starts only while its node holds the lease of the shard.
func startsWithLease(e *entity) {
	if l := e.s.leases[e.at.ShardRun]; e.s.cfg.Shard.Lease && (l == nil || !l.certain()) && !e.s.stale() {
		e.s.h.violate("entities-have-a-lease", "%s starts without the lease of shard %d", e.a.id, e.at.Shard)
	}
}
