// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projectiontest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/refold-io/refold/projection"
)

// TxConfig describes a store with transactions.
type TxConfig[Tx any] struct {
	// Open opens a store, which need not be empty. Required.
	Open func(t T) projection.TxStore[Tx]
	// Add inserts a key into the read model in a transaction. It fails if the key exists. Required.
	Add func(ctx context.Context, tx Tx, key string) error
	// Keys returns the committed keys with a prefix in the read model of a store.
	// Required.
	Keys func(t T, store projection.TxStore[Tx], prefix string) []string
}

// RunTx runs the cases about transactions as parallel subtests. Run has the other cases.
func RunTx[Tx any](t *testing.T, c TxConfig[Tx]) {
	t.Helper()
	if c.Open == nil || c.Add == nil || c.Keys == nil {
		t.Fatalf("projectiontest: all fields of TxConfig are required")
	}
	run(t, TxCases(c))
}

// TxCases returns the cases that RunTx would run.
func TxCases[Tx any](c TxConfig[Tx]) []Case {
	var cases []Case
	add := func(name, rule string, check func(p *txProbe[Tx])) {
		cases = append(cases, Case{Name: name, Rule: rule, run: func(t T) {
			store := c.Open(t)
			check(&txProbe[Tx]{probe: probe{T: t, store: store, name: name + " " + rand.Text()}, cfg: c, tx: store})
		}})
	}
	add("ApplyBoth", "the positions and the changes of f are stored", func(p *txProbe[Tx]) {
		p.save(nil, positions{at(0, 512, ""), at(512, 512, "2")})
		if err := p.tx.Apply(p.Context(), p.move(positions{at(0, 512, "")}, positions{at(0, 512, "1")}), p.add("a")); err != nil {
			p.Fatalf("Apply: %v", err)
		}
		p.want(at(0, 512, "1"), at(512, 512, "2"))
		p.wantKeys("a")
	})
	add("ApplyNeither", "if f fails, nothing is stored, and the error of Apply wraps the error of f", func(p *txProbe[Tx]) {
		from, to := positions{at(0, 1024, "1")}, positions{at(0, 1024, "2")}
		p.save(nil, from)
		cause := errors.New("no")
		err := p.tx.Apply(p.Context(), p.move(from, to), func(ctx context.Context, tx Tx) error {
			return errors.Join(p.add("a")(ctx, tx), cause)
		})
		if !errors.Is(err, cause) || errors.Is(err, projection.ErrUnavailable) || errors.Is(err, projection.ErrFenced) {
			p.Errorf("Apply: %v, want the error of f", err)
		}
		p.want(from...)
		p.wantKeys()
		if err := p.tx.Apply(p.Context(), p.move(from, to), p.add("a")); err != nil {
			p.Errorf("Apply after a failed one: %v", err)
		}
		p.wantKeys("a")
	})
	add("ApplyFenced", "after another move nothing is stored, and f is not called if the store has detected that move", func(p *txProbe[Tx]) {
		p.save(nil, positions{at(0, 1024, "1")})
		for _, from := range []positions{nil, {at(0, 1024, "0")}, {at(0, 512, "1")}} {
			err := p.tx.Apply(p.Context(), p.move(from, positions{at(0, 1024, "2")}), p.add("a"))
			if !errors.Is(err, projection.ErrFenced) {
				p.Errorf("Apply from %v: %v, want ErrFenced", from, err)
			}
		}
		p.want(at(0, 1024, "1"))
		p.wantKeys()
	})
	add("ApplyFirst", "the first positions can be stored with changes of f", func(p *txProbe[Tx]) {
		if err := p.tx.Apply(p.Context(), p.move(nil, positions{at(0, 1024, "1")}), p.add("a")); err != nil {
			p.Errorf("Apply: %v", err)
		}
		p.want(at(0, 1024, "1"))
		p.wantKeys("a")
	})
	add("ApplyFailsInside", "if f hides the failure of a statement, nothing is stored", func(p *txProbe[Tx]) {
		from := positions{at(0, 1024, "1")}
		p.save(nil, from)
		err := p.tx.Apply(p.Context(), p.move(from, positions{at(0, 1024, "2")}), func(ctx context.Context, tx Tx) error {
			if err := p.add("a")(ctx, tx); err != nil {
				return err
			}
			if err := p.add("a")(ctx, tx); err == nil {
				p.Errorf("TxConfig.Add entered a key twice")
			}
			return nil
		})
		if err == nil { // a store whose transactions continue after an error
			p.want(at(0, 1024, "2"))
			p.wantKeys("a")
			return
		}
		if !errors.Is(err, projection.ErrRefused) {
			p.Errorf("Apply: %v, want ErrRefused", err)
		}
		p.want(from...)
		p.wantKeys()
	})
	add("ApplyOneWinner", "one of several concurrent calls is stored, and nothing of the other calls", func(p *txProbe[Tx]) {
		from, to := positions{at(0, 1024, "1")}, positions{at(0, 1024, "2")}
		p.save(nil, from)
		keys := []string{"a", "b", "c", "d"}
		errs := make([]error, len(keys))
		var wg sync.WaitGroup
		for i, key := range keys {
			wg.Go(func() { errs[i] = p.tx.Apply(p.Context(), p.move(from, to), p.add(key)) })
		}
		wg.Wait()
		var won []string
		for i, err := range errs {
			if err == nil {
				won = append(won, keys[i])
			} else if !errors.Is(err, projection.ErrFenced) {
				p.Errorf("Apply: %v, want nil or ErrFenced", err)
			}
		}
		if len(won) != 1 {
			p.Errorf("%d of %d succeeded, want 1", len(won), len(keys))
		}
		p.want(to...)
		p.wantKeys(won...)
	})
	add("ApplyContextEnds", "if the context ends in f nothing is stored", func(p *txProbe[Tx]) {
		from := positions{at(0, 1024, "1")}
		p.save(nil, from)
		ctx, cancel := context.WithCancel(p.Context())
		defer cancel()
		err := p.tx.Apply(ctx, p.move(from, positions{at(0, 1024, "2")}), func(ctx context.Context, tx Tx) error {
			if err := p.add("a")(ctx, tx); err != nil {
				return err
			}
			cancel()
			return nil
		})
		if err == nil {
			p.Errorf("Apply returned nil after its context had ended")
		}
		p.want(from...)
		p.wantKeys()
	})
	add("ApplyPanics", "if f panics nothing is stored, and the store remains usable", func(p *txProbe[Tx]) {
		from, to := positions{at(0, 1024, "1")}, positions{at(0, 1024, "2")}
		p.save(nil, from)
		func() {
			defer func() {
				if recover() == nil {
					p.Errorf("Apply swallowed a panic of f")
				}
			}()
			_ = p.tx.Apply(p.Context(), p.move(from, to), func(ctx context.Context, tx Tx) error {
				if err := p.add("a")(ctx, tx); err != nil {
					return err
				}
				panic("f")
			})
		}()
		p.want(from...)
		p.wantKeys()
		if err := p.tx.Apply(p.Context(), p.move(from, to), p.add("b")); err != nil {
			p.Errorf("Apply after a panic: %v", err)
		}
		p.wantKeys("b")
	})
	return cases
}

type txProbe[Tx any] struct {
	probe

	cfg TxConfig[Tx]
	tx  projection.TxStore[Tx]
}

func (p *txProbe[Tx]) add(key string) func(ctx context.Context, tx Tx) error {
	return func(ctx context.Context, tx Tx) error { return p.cfg.Add(ctx, tx, p.name+key) }
}

func (p *txProbe[Tx]) wantKeys(want ...string) {
	p.Helper()
	for i := range want {
		want[i] = p.name + want[i]
	}
	got := p.cfg.Keys(p.T, p.tx, p.name)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		p.Errorf("the read model has %q, want %q", got, want)
	}
}
