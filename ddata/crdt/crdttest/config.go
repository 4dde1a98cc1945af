// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest

import (
	"cmp"
	"errors"
	"math/rand/v2"

	"github.com/refold-io/refold/ddata/crdt"
)

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
