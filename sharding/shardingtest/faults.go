// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardingtest

import (
	"context"
	"fmt"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding"
)

// faults injects a fault before each call in turn.
func faults(f *fixture) {
	const calls = 6
	scope := 0
	for _, fault := range f.place.Faults {
		for at := range calls {
			scope++
			s := sharding.Scope{Type: fmt.Sprint("account", scope)}
			a := f.actorOf(0, s)
			t := trouble{fault: fault, at: at}
			a.persist(&t)
			t.mend()
			f.storedIn(f.coordinators(1, s), a.state, fmt.Sprintf("%s at call %d: ", fault.Name, at))
		}
	}
	if len(f.place.Faults) == 0 {
		f.Errorf("Place.Faults is empty")
	}
}

type trouble struct {
	fault    Fault
	at, call int
	release  func()
}

// patience is the time limit of a call that cannot succeed.
const patience = 100 * time.Millisecond

// do makes a call. If it fails and a retry would fail, the fault is repaired.
func (t *trouble) do(ctx context.Context, subject func(ctx context.Context) error) error {
	if t.call == t.at {
		t.release = t.fault.Strike(0)
	}
	if t.release != nil && !t.fault.Once {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	t.call++
	err := subject(ctx)
	if err != nil && !t.fault.Once {
		t.mend()
	}
	return err
}

func (t *trouble) mend() {
	if t.release != nil {
		t.release()
	}
	t.release = nil
}

// persist acts like a coordinator: it loads, claims a term, and saves changes. It repeats each call
// until it is acknowledged.
func (a *actor) persist(t *trouble) {
	a.Helper()
	fault := t.fault
	do := func(subject func() error) error {
		return t.do(a.fixture.ctx, func(ctx context.Context) error {
			a.ctx = ctx
			defer func() { a.ctx = a.fixture.ctx }()
			return subject()
		})
	}
	tries := 0
	try := func() {
		if tries++; tries > 100 {
			a.Fatalf("%s: calls have failed 100 times", fault.Name)
		}
	}
	for {
		for do(a.load) != nil {
			try()
		}
		c := a.claim(a.state.Term() + 1)
		if do(func() error { return a.save(c) }) == nil {
			break
		}
		try()
	}
	for i := range 4 {
		events := []coordinator.Event{allocated("a", span(i*10, 3)...), allocated("b", span(i*10+3, 2)...)}
		if i == 0 {
			events = []coordinator.Event{registered("a"), registered("b")}
		}
		was, c := a.state, a.change(events...)
		for do(func() error { return a.save(c) }) != nil {
			for do(a.load) != nil {
				try()
			}
			if a.state.Equal(c.After) {
				break
			}
			if !a.state.Equal(was) {
				a.Fatalf("%s: Load: %s, want %s or %s", fault.Name, show(a.state), show(was), show(c.After))
			}
			c.Rev = a.rev
			try()
		}
		if !a.state.Equal(c.After) {
			a.Fatalf("%s: the state is %s after a Save of %s", fault.Name, show(a.state), describe(c))
		}
	}
}
