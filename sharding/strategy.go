// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

// Strategy decides where shards are. Its methods are called by the coordinator, one at a time; they may take their time, up to
// Options.StrategyTimeout. One that fails or panics has decided nothing, and is asked again.
type Strategy interface {
	// Allocate returns the node that gets a shard, one of the regions of the view. The zero node says that there is none at the
	// moment.
	Allocate(ctx context.Context, view allocation.View, request allocation.Request) (identity.Node, error)
	// Rebalance returns the shards that are to move. They are allocated anew then.
	Rebalance(ctx context.Context, view allocation.View) ([]allocation.Shard, error)
}

// Arithmetic is a strategy that is a matter of arithmetic only: those of package allocation are. They can't fail and ask nobody, so that they
// can be simulated and tested as they are; a Strategy can, such as one that has the places from a service.
type Arithmetic interface {
	Allocate(view allocation.View, request allocation.Request) (identity.Node, bool)
	Rebalance(view allocation.View) []allocation.Shard
}

// By returns the strategy of some arithmetic, as in By(allocation.Threshold{}). If that has a method Validate() error, Start calls it.
func By(a Arithmetic) Strategy { return arithmetic{a} }

type arithmetic struct{ by Arithmetic }

// validate returns what is wrong with the settings.
func (a arithmetic) validate() error {
	if a.by == nil {
		return errors.New("By has no arithmetic")
	}
	if v, ok := a.by.(interface{ Validate() error }); ok {
		return contained(v.Validate) // a pointer in it may be nil
	}
	return nil
}

// Allocate is part of Strategy.
func (a arithmetic) Allocate(_ context.Context, view allocation.View, request allocation.Request) (identity.Node, error) {
	n, _ := a.by.Allocate(view, request)
	return n, nil
}

// Rebalance is part of Strategy.
func (a arithmetic) Rebalance(_ context.Context, view allocation.View) ([]allocation.Shard, error) {
	return a.by.Rebalance(view), nil
}
