// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/batch"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// builtInRates are the default exchange rates.
//
//go:embed rates.json
var builtInRates []byte

// bank is a runtime with the accounts, which the runtime or a cluster hosts.
type bank struct {
	runtime  *eventsourcing.Runtime
	accounts eventsourcing.Entities[Account] // on this node or, in a branch, in a cluster
	typ      eventsourcing.Type[Account, Event]
	journal  journal.Journal
	rates    rates.Rates
}

// A restarting database is back within seconds, so the bank retries sooner than by default.
const resetTimeout = time.Second

var hostOptions = eventsourcing.HostOptions{MinBackoff: 200 * time.Millisecond, MaxBackoff: 5 * time.Second}

func openBank(s store.DB, r rates.Rates, log *slog.Logger, observer eventsourcing.Observer) (*bank, error) {
	b, err := openRuntime(s, r, log, observer)
	if err != nil {
		return nil, err
	}
	if b.accounts, err = eventsourcing.HostWith(b.runtime, b.typ, hostOptions); err != nil {
		return nil, errors.Join(fmt.Errorf("open the bank: %w", err), b.runtime.Close(context.Background()))
	}
	return b, nil
}

// openRuntime opens the runtime of a bank, without accounts.
func openRuntime(s store.DB, r rates.Rates, log *slog.Logger, observer eventsourcing.Observer) (*bank, error) {
	rt, err := eventsourcing.Open(eventsourcing.Config{
		Store: s, JournalBreaker: journal.BreakerConfig{ResetTimeout: resetTimeout}, SnapshotBreaker: snapshot.BreakerConfig{ResetTimeout: resetTimeout},
		Logger: log, Observer: observer,
	})
	if err != nil {
		return nil, fmt.Errorf("open the bank: %w", err)
	}
	return &bank{runtime: rt, typ: AccountType(r), journal: s.Journal(), rates: r}, nil
}

// closePatience bounds how long closing the bank waits for pending commands.
const closePatience = 10 * time.Second

// askTimeout bounds how long a request waits for the reply of an account.
const askTimeout = 10 * time.Second

// close closes the bank. All acknowledged commands are stored.
func (b *bank) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	return b.runtime.Close(ctx)
}

func (b *bank) account(id string) eventsourcing.Ref[Account] { return b.accounts.Ref(id) }

// execute executes a line. A non-empty request identifies retries.
func (b *bank) execute(ctx context.Context, l batch.Line, request string) (Receipt, error) {
	to := b.account(l.Account)
	switch l.Command {
	case batch.Open:
		view, err := eventsourcing.Ask(ctx, to, Open{Request: request, Currency: l.Currency, Owner: l.To})
		return Receipt{Balance: view.Balance, Repeated: view.Repeated}, err
	case batch.Deposit:
		return eventsourcing.Ask(ctx, to, Deposit{Request: request, Amount: l.Amount})
	case batch.Withdraw:
		return eventsourcing.Ask(ctx, to, Withdraw{Request: request, Amount: l.Amount})
	case batch.Transfer:
		return eventsourcing.Ask(ctx, to, Transfer{Request: request, Amount: l.Amount, To: l.To})
	case batch.Close:
		return eventsourcing.Ask(ctx, to, Close{Request: request})
	}
	return Receipt{}, fmt.Errorf("%w: command %q", eventsourcing.ErrInvalid, l.Command)
}

// wake starts the accounts with pending transfers, so that transfers that a crash interrupted
// complete without a further command. It returns the number of started accounts. A branch of a cluster
// does not need it, see sharding.Options.Wake.
func (b *bank) wake(ctx context.Context) (started int, err error) { return b.accounts.Wake(ctx) }
