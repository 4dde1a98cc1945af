// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardingtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding"
)

// rivals are coordinators that run concurrently. Each claims terms and allocates shards, each shard
// once.
type rivals struct {
	*fixture
	trouble bool
	ready   sync.WaitGroup // all rivals have loaded once, so that they claim the same term

	mu     sync.Mutex
	terms  map[uint64]string // owners of acknowledged terms
	shards map[shard]string  // acknowledged allocations
}

// compete runs rivals concurrently. Each load must return everything that was acknowledged before.
func compete(f *fixture, trouble bool) {
	const actors, rounds = 3, 16
	r := &rivals{fixture: f, trouble: trouble, terms: map[uint64]string{}, shards: map[shard]string{}}
	f.leader(0, registered("a"))
	var wg sync.WaitGroup
	r.ready.Add(actors)
	for i := range actors {
		a := f.actor(i)
		a.node.Name = fmt.Sprint("rival", i)
		wg.Go(func() { r.act(a, i, rounds) })
	}
	wg.Wait()
	r.check(f.actor(0))
	if len(r.shards) < rounds {
		f.Errorf("only %d changes were acknowledged", len(r.shards))
	}
}

func (r *rivals) act(a *actor, node, rounds int) {
	rnd := rand.New(rand.NewPCG(uint64(node), 7)) //nolint:gosec // nodes have small numbers
	shards := span(node*1000, 1000)
	first := sync.OnceFunc(func() {
		r.ready.Done()
		r.ready.Wait()
	})
	for range rounds {
		mend := r.strike(a, node, rnd)
		for range 30 { // until the coordinator holds a term
			loaded := r.check(a)
			first()
			if loaded && r.claim(a) {
				for range 1 + rnd.IntN(6) {
					s := shards[0]
					if shards = shards[1:]; !r.allocate(a, s) {
						break
					}
				}
				break
			}
			for range rnd.IntN(4) { // a random number of loads, so that the rivals do not stay in step
				r.check(a)
			}
		}
		mend()
	}
}

func (r *rivals) strike(a *actor, node int, rnd *rand.Rand) (mend func()) {
	if !r.trouble || rnd.IntN(3) == 0 || len(r.place.Faults) == 0 {
		return func() {}
	}
	fault := r.place.Faults[rnd.IntN(len(r.place.Faults))]
	release := fault.Strike(node)
	if fault.Once {
		return release
	}
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	a.ctx = ctx
	return func() {
		cancel()
		a.ctx = r.ctx
		release()
	}
}

func (r *rivals) failed(c coordinator.Change, err error) {
	if !r.trouble && !errors.Is(err, sharding.ErrFenced) && !errors.Is(err, sharding.ErrConflict) {
		r.Errorf("Save of %s: %v", describe(c), err)
	}
}

func (r *rivals) claim(a *actor) bool {
	c := a.claim(a.state.Term() + 1)
	if err := a.save(c); err != nil {
		r.failed(c, err)
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.terms[a.term]; other != "" {
		r.Errorf("term %d was acknowledged to %v and to %s", a.term, a.node, other)
	}
	r.terms[a.term] = a.node.String()
	return true
}

func (r *rivals) allocate(a *actor, s shard) bool {
	c := a.change(allocated("a", s))
	if err := a.save(c); err != nil {
		r.failed(c, err)
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shards[s] = fmt.Sprintf("%v in term %d", a.node, a.term)
	return true
}

// check loads the state and checks that it includes everything that was acknowledged before.
func (r *rivals) check(a *actor) bool {
	r.mu.Lock()
	var before []shard
	for s := range r.shards {
		before = append(before, s)
	}
	r.mu.Unlock()
	if err := a.load(); err != nil {
		if !r.trouble {
			r.Errorf("Load: %v", err)
		}
		return false
	}
	for _, s := range before {
		if _, found := a.state.Home(s); !found {
			r.mu.Lock()
			r.Errorf("shard %d was acknowledged to %s and is missing in %s", s, r.shards[s], show(a.state))
			r.mu.Unlock()
			return false
		}
	}
	return true
}

// claimLate lets claims fail at several moments. A coordinator that later loads its own failed
// claim regards it as acknowledged and continues in its term.
func claimLate(f *fixture) {
	landed, scope := 0, 0
	for _, fault := range f.place.Faults {
		for _, moment := range moments(fault) {
			scope++
			s := sharding.Scope{Type: fmt.Sprint("account", scope)}
			a := f.actorOf(0, s)
			a.mustLoad()
			c, err := a.claimInTrouble(fault, moment)
			f.quench(sharding.Scope{Type: fmt.Sprint("other", scope)})
			if err == nil {
				break // the call had ended before the fault
			}
			a.mustLoad()
			if !a.state.Equal(c.After) {
				continue
			}
			landed++
			if err = a.save(a.change(registered("a"))); err != nil {
				f.Errorf("%s %v after the start of the claim: the claim is stored, but a change of its term is refused: %v", fault.Name, moment, err)
				continue
			}
			f.storedIn(f.coordinators(1, s), a.state, fmt.Sprintf("%s %v after the start of the claim: ", fault.Name, moment))
		}
	}
	if landed == 0 {
		f.Errorf("no failed claim was stored: Place.Faults needs a fault that has this effect")
	}
	f.Logf("%d claims were stored although Save failed", landed)
}

// moments are the times after the start of a call at which a fault is injected: between two steps
// of a store with latencies of whole milliseconds.
func moments(fault Fault) []time.Duration {
	all := []time.Duration{0}
	if fault.Once { // applies to the next call
		return all
	}
	for i := range 12 {
		all = append(all, time.Duration(i)*time.Millisecond+time.Millisecond/2)
	}
	return all
}

// claimInTrouble claims the first term during a fault, and repairs the fault afterwards.
func (a *actor) claimInTrouble(fault Fault, moment time.Duration) (coordinator.Change, error) {
	struck := make(chan func(), 1)
	strike := func() { struck <- fault.Strike(0) }
	stop := func() bool { return false }
	if moment == 0 {
		strike()
	} else {
		later, cancel := context.WithTimeout(a.fixture.ctx, moment)
		defer cancel()
		stop = context.AfterFunc(later, strike)
	}
	ctx := a.fixture.ctx
	if !fault.Once {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	c := a.claim(1)
	err := a.store.Save(ctx, encode(&c))
	if !stop() { // injected, or about to be
		(<-struck)()
	}
	return c, err
}

// quench writes to another scope until no call fails: a fault that applies once may still be
// pending.
func (f *fixture) quench(s sharding.Scope) {
	f.Helper()
	a := f.actorOf(0, s)
	for range 20 {
		err := a.load()
		if err == nil {
			err = a.save(a.claim(a.state.Term() + 1))
		}
		if err == nil && a.load() == nil {
			return
		}
	}
	f.Fatalf("calls still fail without a fault")
}
