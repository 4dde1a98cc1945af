// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"cmp"
	"fmt"
	"slices"
)

// Receipt is the outcome of a delivery.
type Receipt[T any] struct {
	Nr      uint64 `msgpack:"n"`
	Outcome T      `msgpack:"o,omitempty"`
}

// Incoming is the state that a receiver keeps for one sender. The zero value is ready. Only Record
// changes its fields.
type Incoming[T any] struct {
	// Floor is the highest recorded floor: the sender waits for no delivery with a lower number.
	Floor uint64 `msgpack:"f,omitempty"`
	// Receipts are the outcomes of deliveries from Floor on, in ascending order.
	Receipts []Receipt[T] `msgpack:"r,omitempty"`
}

// Seen reports whether the delivery with this number has an outcome: it is recorded, or its number
// is below the floor.
func (in *Incoming[T]) Seen(nr uint64) bool {
	_, found := in.find(nr)
	return found || nr < in.Floor
}

// Outcome returns the outcome of a delivery, and false if the outcome was removed or does not exist
// yet.
func (in *Incoming[T]) Outcome(nr uint64) (outcome T, ok bool) {
	i, found := in.find(nr)
	if !found {
		return outcome, false
	}
	return in.Receipts[i].Outcome, true
}

// Record stores the outcome of a delivery and removes the outcomes below floor. The first outcome
// of a number is kept.
func (in *Incoming[T]) Record(nr, floor uint64, outcome T) {
	if floor = min(floor, nr); floor > in.Floor {
		in.raise(floor)
	}
	if i, found := in.find(nr); !found && nr >= in.Floor {
		in.Receipts = slices.Insert(in.Receipts, i, Receipt[T]{Nr: nr, Outcome: outcome})
	}
}

// Check returns an error if the fields cannot be the result of Record.
func (in *Incoming[T]) Check() error {
	for i, r := range in.Receipts {
		if r.Nr < in.Floor || r.Nr == 0 || i > 0 && r.Nr <= in.Receipts[i-1].Nr {
			return fmt.Errorf("receipt %d of number %d is out of order, the floor is %d", i, r.Nr, in.Floor)
		}
	}
	return nil
}

func (in *Incoming[T]) raise(floor uint64) {
	in.Floor = floor
	n, _ := in.find(floor)
	in.Receipts = slices.Delete(in.Receipts, 0, n)
	if cap(in.Receipts) > 32 && cap(in.Receipts) > 4*len(in.Receipts) {
		in.Receipts = slices.Clone(in.Receipts)
	}
}

// find returns the index of a number, or the index at which it would be inserted.
func (in *Incoming[T]) find(nr uint64) (int, bool) {
	return slices.BinarySearchFunc(in.Receipts, nr, func(r Receipt[T], nr uint64) int { return cmp.Compare(r.Nr, nr) })
}
