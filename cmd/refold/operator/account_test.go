// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"errors"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

// The entity of the tests is an account. The first version of its deposits had no currency.
type (
	event interface{ isEvent() }

	opened    struct{ Owner string }
	deposited struct {
		Amount   int64
		Currency string
	}
	depositedV1 struct{ Amount int64 }
	withdrawn   struct{ Amount int64 }

	account struct {
		Owner   string
		Balance map[string]int64
		Last    []int64
		rate    int64 `refold:"-"` // set by New
	}
)

func (opened) isEvent()    {}
func (deposited) isEvent() {}
func (withdrawn) isEvent() {}

func (a *account) apply(ev event) {
	switch e := ev.(type) {
	case opened:
		a.Owner, a.Balance = e.Owner, map[string]int64{}
	case deposited:
		a.Balance[e.Currency] += e.Amount // panics if the account is not open
		a.Last = append(a.Last, e.Amount)
	case withdrawn:
		a.Balance["USD"] -= e.Amount
		a.Last = append(a.Last, -e.Amount)
	}
}

var errVeto = errors.New("no such deposit")

func events() *codec.Registry {
	return codec.Types(
		codec.Name[opened]("opened"),
		codec.Name[deposited]("deposited").Version(2),
		codec.Upcast("deposited", 1, func(old depositedV1) (deposited, error) {
			if old.Amount < 0 {
				return deposited{}, errVeto
			}
			return deposited{Amount: old.Amount, Currency: "USD"}, nil
		}),
		codec.Name[withdrawn]("withdrawn"),
		codec.Removed("gone"),
	)
}

func accountType() eventsourcing.Type[account, event] {
	return eventsourcing.Type[account, event]{
		Name:      "account",
		New:       func(string) *account { return &account{rate: 30} },
		Apply:     (*account).apply,
		Events:    events(),
		Snapshots: eventsourcing.Snapshots[account, event]{Every: 100},
	}
}
