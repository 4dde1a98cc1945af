// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Run checks the laws, each as a parallel subtest, but for those that the Config
// excepts.
func Run[T any](t *testing.T, cfg Config[T]) {
	t.Helper()
	for _, law := range Laws() {
		if cfg.Except&law != 0 {
			t.Logf("%v is excepted", law)
			continue
		}
		t.Run(law.String(), func(t *testing.T) {
			t.Parallel()
			if err := Check(cfg, law); err != nil {
				t.Error(err)
			}
		})
	}
}

// Check tries to find a history that breaks one law. The error shows the
// shortest that it finds, or says what is wrong with the Config.
func Check[T any](cfg Config[T], law Law) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return err
	}
	for i := range uint64(cfg.Histories) { //nolint:gosec // validated
		steps := cfg.history(rand.New(rand.NewPCG(cfg.Seed, i)))
		err := cfg.try(law, steps, nil)
		if err == nil {
			continue
		}
		steps = cfg.shorten(law, steps)
		var shown []string
		if last := cfg.try(law, steps, &shown); last != nil {
			err = last
		}
		return fmt.Errorf("%v does not hold, seed %d, history %d:\n%s\n%w", law, cfg.Seed, i, strings.Join(shown, "\n"), err)
	}
	return nil
}

// shorten leaves out steps as long as the law does not hold.
func (c Config[T]) shorten(law Law, steps []step) []step {
	for again := true; again; {
		again = false
		for i := range slices.Backward(steps) {
			fewer := slices.Delete(slices.Clone(steps), i, i+1)
			if c.try(law, fewer, nil) != nil {
				steps, again = fewer, true
			}
		}
	}
	return steps
}

// try makes a history and checks one law on it. A panic counts.
func (c Config[T]) try(law Law, steps []step, shown *[]string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	w, err := c.play(steps, shown)
	if err != nil {
		return err
	}
	switch law {
	case Commutative:
		return w.commutative()
	case Associative:
		return w.associative()
	case Idempotent:
		return w.idempotent()
	case Absorbing:
		return w.absorbing()
	case Converges:
		_, err := w.converge()
		return err
	case OneForm:
		return w.oneForm()
	case MergesChanges:
		return w.mergesChanges()
	case DeltasFold:
		return w.deltasFold()
	case DeltasJoin:
		return w.deltasJoin()
	case Prunes:
		return w.prunes()
	}
	return fmt.Errorf("crdttest: %d is no law", law)
}
