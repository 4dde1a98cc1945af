// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardingtest

import (
	"context"
	"fmt"
	"time"

	"github.com/refold-io/refold/sharding"
)

// claimLate lets claims fail at several moments. Of those that are stored nevertheless the coordinator finds out when it loads, takes them for
// acknowledged, and goes on in their terms.
func claimLate(f *fixture) {
	landed, scope := 0, 0
	for _, fault := range f.place.Faults {
		for _, moment := range moments(fault) {
			scope++
			s := sharding.Scope{Type: fmt.Sprint("account", scope)}
			a := f.actor(0)
			a.store = f.coordinators(0, s)
			a.mustLoad()
			c, err := a.claimInTrouble(fault, moment)
			f.quench(sharding.Scope{Type: fmt.Sprint("other", scope)})
			if err == nil {
				break // it was over before that
			}
			a.mustLoad()
			if !a.state.Equal(c.After) {
				continue
			}
			landed++
			if err = a.save(a.change(registered("a"))); err != nil {
				f.Errorf("%s %v after the claim has begun: the claim is stored, and a change of its term is refused: %v", fault.Name, moment, err)
				continue
			}
			l, err := f.coordinators(1, s).Load(f.ctx)
			if err != nil || !l.State.Equal(a.state) {
				f.Errorf("%s %v after the claim has begun: %s is stored, %v, want %s", fault.Name, moment, show(l.State), err, show(a.state))
			}
		}
	}
	if landed == 0 {
		f.Errorf("no fault has let a claim fail that was stored nevertheless: see Place.Faults")
	}
	f.Logf("%d claims were stored whose Save had failed", landed)
}

// moments are when a fault strikes, after a call has begun: between two steps of a store that is reached in whole milliseconds.
func moments(fault Fault) []time.Duration {
	all := []time.Duration{0}
	if fault.Once { // it strikes the next call
		return all
	}
	for i := range 12 {
		all = append(all, time.Duration(i)*time.Millisecond+time.Millisecond/2)
	}
	return all
}

// claimInTrouble claims the first term. What has struck meanwhile is mended.
func (a *actor) claimInTrouble(fault Fault, moment time.Duration) (sharding.Change, error) {
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
	err := a.store.Save(ctx, c)
	if !stop() { // it has struck, or does so now
		(<-struck)()
	}
	return c, err
}

// quench works elsewhere until nothing fails any more: a fault that was to strike once may not have struck yet.
func (f *fixture) quench(s sharding.Scope) {
	f.Helper()
	a := f.actor(0)
	a.store = f.coordinators(0, s)
	for range 20 {
		err := a.load()
		if err == nil {
			err = a.save(a.claim(a.state.Term() + 1))
		}
		if err == nil && a.load() == nil {
			return
		}
	}
	f.Fatalf("calls go on to fail though nothing strikes any more")
}
