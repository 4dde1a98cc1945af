// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

type (
	// spend is answered with the money that is left.
	spend struct {
		eventsourcing.Command[wallet, int]
		Amount int
	}
	spent  struct{ Amount int }
	wallet struct{ Money int }

	walletContext  = eventsourcing.Context[wallet, spent, int]
	walletDecision = eventsourcing.Decision[wallet, spent, int]
)

var errNoMoney = eventsourcing.NewRefusal("wallet/no_money", "not enough money in the wallet")

func (w *wallet) spend(ctx *walletContext, c spend) walletDecision {
	if c.Amount > w.Money {
		return ctx.Refuse(fmt.Errorf("%w: %d of %d", errNoMoney, w.Money, c.Amount))
	}
	return ctx.Persist(spent{c.Amount}).ReplyFunc(func() int { return w.Money })
}

func (w *wallet) apply(e spent) { w.Money -= e.Amount }

// Callers compare a refusal with errors.Is, or by its code. Both also work when the entity is on
// another node.
func ExampleNewRefusal() {
	ctx := context.Background()
	rt, wallets := hosted(eventsourcing.Type[wallet, spent]{
		Name:     "wallet",
		New:      func(string) *wallet { return &wallet{Money: 100} },
		Commands: eventsourcing.Commands(eventsourcing.On("spend", (*wallet).spend)),
		Apply:    (*wallet).apply,
		Events:   codec.Types(codec.Name[spent]("spent")),
	})
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	for range 2 {
		left, err := eventsourcing.Ask(ctx, wallets.Ref("ann"), spend{Amount: 60})
		switch {
		case errors.Is(err, errNoMoney):
			fmt.Println(eventsourcing.StatusOf(err).Code, "-", err)
		case err != nil:
			fmt.Println("failed:", err)
		default:
			fmt.Println("left:", left)
		}
	}
	// Output:
	// left: 40
	// wallet/no_money - not enough money in the wallet: 40 of 60
}
