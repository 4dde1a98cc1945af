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
	walletCommand interface {
		eventsourcing.Target[walletCommand]
	}
	walletCtx    = eventsourcing.Context[walletCommand, spent]
	walletEffect = eventsourcing.Effect[walletCommand, spent]

	spend struct { // is answered with what is left
		eventsourcing.For[walletCommand, int]
		Amount int
	}
	spent  struct{ Amount int }
	wallet struct{ Money int }
)

var errNoMoney = eventsourcing.NewRefusal("wallet/no_money", "not enough money in the wallet")

func (w *wallet) HandleCommand(ctx *walletCtx, cmd walletCommand) walletEffect {
	switch c := cmd.(type) {
	case spend:
		if c.Amount > w.Money {
			return ctx.Refuse(fmt.Errorf("%w: %d of %d", errNoMoney, w.Money, c.Amount))
		}
		return ctx.Persist(spent{c.Amount}).Reply(c.Answer(func() int { return w.Money }))
	}
	return ctx.Unhandled()
}

func (w *wallet) ApplyEvent(e spent) { w.Money -= e.Amount }

// Callers compare a refusal with errors.Is, or by its code. Both also work when
// the entity is on another node.
func ExampleNewRefusal() {
	ctx := context.Background()
	rt, wallets := hosted(eventsourcing.Type[walletCommand, spent]{
		Name:   "wallet",
		New:    func(string) eventsourcing.Aggregate[walletCommand, spent] { return &wallet{Money: 100} },
		Events: codec.Types(codec.Name[spent]("spent")),
	})
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	for range 2 {
		left, err := eventsourcing.Ask(ctx, wallets.Ref("ann"), spend{Amount: 60})
		switch {
		case errors.Is(err, errNoMoney):
			fmt.Println(eventsourcing.Code(err), "-", err)
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
