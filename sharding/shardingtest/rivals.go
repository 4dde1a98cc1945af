// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardingtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/refold-io/refold/sharding"
)

// rivals are coordinators that don't know of each other. Each claims terms and allocates shards, each shard
// once.
type rivals struct {
	*fixture
	trouble bool
	ready   sync.WaitGroup // all have loaded once, so that they claim one term

	mu     sync.Mutex
	terms  map[uint64]string // to whom terms were acknowledged
	shards map[shard]string  // what was acknowledged
}

func rivalsAtOnce(f *fixture) { compete(f, false) }

func rivalsInTrouble(f *fixture) { compete(f, true) }

// compete lets rivals act at once. Whoever loads must find all that was acknowledged before.
func compete(f *fixture, trouble bool) {
	const actors, rounds = 3, 16
	r := &rivals{fixture: f, trouble: trouble, terms: map[uint64]string{}, shards: map[shard]string{}}
	first := f.actor(0)
	first.lead()
	first.mustSave(first.change(registered("a")))
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

// act is what one of them does.
func (r *rivals) act(a *actor, node, rounds int) {
	rnd := rand.New(rand.NewPCG(uint64(node), 7)) //nolint:gosec // nodes have small numbers
	shards := span(node*1000, 1000)
	first := sync.OnceFunc(func() {
		r.ready.Done()
		r.ready.Wait()
	})
	for range rounds {
		mend := r.strike(a, node, rnd)
		for range 30 { // until it leads
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
			for range rnd.IntN(4) { // or they would stay in step
				r.check(a)
			}
		}
		mend()
	}
}

// strike lets something go wrong, or not.
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

// failed tells of an error that nothing explains.
func (r *rivals) failed(c sharding.Change, err error) {
	if !r.trouble && !errors.Is(err, sharding.ErrFenced) && !errors.Is(err, sharding.ErrConflict) {
		r.Errorf("Save of %s: %v", describe(c), err)
	}
}

// claim claims a term, and reports whether that was acknowledged.
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

// allocate saves the home of a shard, and reports whether that was acknowledged.
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

// check loads, and looks for what was acknowledged before.
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
			r.Errorf("shard %d, acknowledged to %s, is not in %s", s, r.shards[s], show(a.state))
			r.mu.Unlock()
			return false
		}
	}
	return true
}
