// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
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

// Law is one of the laws, or a set of them.
type Law uint

// The laws, about any values a, b and c that the nodes of a history hold. + is
// Merge.
const (
	// Commutative says: a+b = b+a, with the same bytes.
	Commutative Law = 1 << iota
	// Associative says: (a+b)+c = a+(b+c).
	Associative
	// Idempotent says: a+a = a.
	Idempotent
	// Absorbing says: (a+b)+a = a+b. What was merged is never lost again: values
	// only grow.
	Absorbing
	// Converges says: nodes that hear of each other's values in any order, again
	// and again, end with the same bytes.
	Converges
	// OneForm says: a value or a delta that is encoded and decoded is the same
	// and has the same bytes, and a part of the bytes is not taken for one.
	OneForm
	// MergesChanges says: to merge a value with one that was made from it gives
	// the same as to merge it with that one decoded. Types may take a short cut.
	MergesChanges
	// DeltasFold says: to apply the deltas of another node that are missing, in
	// causal order, gives the same as to merge its value; for FreeDeltas in any
	// order, and any number of times.
	DeltasFold
	// DeltasJoin says: to apply one delta made of several of a node gives the same
	// as to apply them one by one.
	DeltasJoin
	// Prunes says: once all nodes hold the same, one of them can take over the
	// history of another, and all can clean up what is left of it, and none of
	// that changes what the value means, nor does an older value that is
	// cleaned up and merged; that only for types that are Associative.
	Prunes
)

// String names a single law.
func (l Law) String() string {
	switch l {
	case Commutative:
		return "Commutative"
	case Associative:
		return "Associative"
	case Idempotent:
		return "Idempotent"
	case Absorbing:
		return "Absorbing"
	case Converges:
		return "Converges"
	case OneForm:
		return "OneForm"
	case MergesChanges:
		return "MergesChanges"
	case DeltasFold:
		return "DeltasFold"
	case DeltasJoin:
		return "DeltasJoin"
	case Prunes:
		return "Prunes"
	}
	return "several laws"
}

// Laws returns all laws, each by itself.
func Laws() []Law {
	return []Law{
		Commutative, Associative, Idempotent, Absorbing, Converges, OneForm, MergesChanges, DeltasFold, DeltasJoin, Prunes,
	}
}

// Config says what is checked and how. T is the type.
type Config[T any] struct {
	// Types knows T, if it is no type of package crdt. Defaults to nil.
	Types *crdt.Types
	// Empty is what nodes begin with. Defaults to the zero value.
	Empty T
	// Change makes one random change, drawn from r and from nothing else. What
	// it returns may be what it was given. Required.
	Change func(r *rand.Rand, self *crdt.Self, v T) (T, error)
	// Read returns what a value means, as something that fmt prints the same for
	// the same meaning. It is what failures show. Defaults to the encoded form.
	Read func(v T) any
	// ByValue compares meanings, as Read returns them, in the laws Idempotent,
	// Associative, Absorbing, DeltasFold and DeltasJoin: for types whose values
	// may hold history that does not matter any more. Defaults to the encoded
	// form.
	ByValue bool
	// Except are laws that the type does not keep. Converges can't be one.
	// Defaults to none.
	Except Law
	// Nodes is how many nodes there are, at least 3. Defaults to 3.
	Nodes int
	// Steps is how many steps a history has. Defaults to 14.
	Steps int
	// Histories is how many are tried for each law. Defaults to 200.
	Histories int
	// Seed makes other histories. Defaults to 1.
	Seed uint64
}

func (c Config[T]) withDefaults() Config[T] {
	c.Nodes = cmp.Or(c.Nodes, 3)
	c.Steps = cmp.Or(c.Steps, 14)
	c.Histories = cmp.Or(c.Histories, 200)
	c.Seed = cmp.Or(c.Seed, 1)
	return c
}

func (c Config[T]) validate() error {
	var errs []error
	if c.Change == nil {
		errs = append(errs, errors.New("crdttest: Config.Change is required"))
	}
	if c.Nodes < 3 || c.Nodes > 26 {
		errs = append(errs, errors.New("crdttest: Config.Nodes must be 3 to 26"))
	}
	if c.Steps < 1 || c.Histories < 1 {
		errs = append(errs, errors.New("crdttest: Config.Steps and Config.Histories must be above 0"))
	}
	if c.ByValue && c.Read == nil {
		errs = append(errs, errors.New("crdttest: Config.ByValue needs Config.Read"))
	}
	if c.Except&Converges != 0 {
		errs = append(errs, errors.New("crdttest: Config.Except: a type whose nodes don't converge is none"))
	}
	return errors.Join(errs...)
}
