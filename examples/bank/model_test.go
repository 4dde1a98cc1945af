// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/requests"
)

// modelAccount is a simple model of an account.
type modelAccount struct {
	open, closed bool
	currency     money.Currency
	balance      int64
	transfers    uint64
	done         map[string]modelRequest
}

type modelRequest struct {
	asked  string
	answer Receipt
}

// convert converts an amount at the rates of the tests.
func convert(a money.Amount, to money.Currency) int64 {
	switch {
	case a.Currency() == to:
		return a.Minor()
	case to == money.TWD:
		return divide(a.Minor()*3215, 100)
	}
	return divide(a.Minor()*31, 1000)
}

// divide rounds half to even.
func divide(n, by int64) int64 {
	q, r := new(big.Int).QuoRem(big.NewInt(n), big.NewInt(by), new(big.Int))
	twice := 2 * r.Int64()
	if twice > by || twice == by && q.Bit(0) == 1 {
		return q.Int64() + 1
	}
	return q.Int64()
}

// change applies a request to the model and returns the expected reply.
func (m *modelAccount) change(request, asked string, original money.Amount, decide func(amount int64) error) (Receipt, error) {
	if r, ok := m.done[request]; ok && request != "" {
		if r.asked != asked {
			return Receipt{}, requests.ErrReused
		}
		r.answer.Repeated = true
		return r.answer, nil
	}
	amount := convert(original, m.currency)
	switch {
	case m.closed:
		return Receipt{}, ErrClosed
	case !m.open:
		return Receipt{}, ErrNotOpen
	case original.Minor() <= 0 && original.Currency() != "":
		return Receipt{}, ErrNotPositive
	case amount == 0 && original.Currency() != "":
		return Receipt{}, ErrTooSmall
	}
	if err := decide(amount); err != nil {
		return Receipt{}, err
	}
	answer := Receipt{Balance: money.New(m.balance, m.currency)}
	if m.done == nil {
		m.done = make(map[string]modelRequest)
	}
	m.done[request] = modelRequest{asked, answer}
	return answer, nil
}

// The accounts reply like the model, also after restarts.
func TestAccountsMatchModel(t *testing.T) {
	t.Parallel()
	ids := []string{"a", "b", "c"}
	rapid.Check(t, func(rt *rapid.T) {
		s := newStore(t, "inmem:")
		b := startBank(t, s, testRates)
		defer func() { stopBank(t, b) }()
		model := map[string]*modelAccount{}
		for _, id := range ids {
			model[id] = &modelAccount{}
		}
		one := rapid.SampledFrom(ids)
		request := rapid.SampledFrom([]string{"", "", "r1", "r2", "r3"})
		amount := rapid.Custom(func(t *rapid.T) money.Amount {
			return money.New(rapid.Int64Range(-1, 5000).Draw(t, "minor"), rapid.SampledFrom(money.Currencies()).Draw(t, "currency"))
		})
		compare := func(got Receipt, err error, want Receipt, wantErr error) {
			if !errors.Is(err, wantErr) || err == nil && got != want {
				rt.Fatalf("got %+v, %v; want %+v, %v", got, err, want, wantErr)
			}
		}
		ask := func(id string, command eventsourcing.Request[Account, Receipt]) (Receipt, error) {
			return eventsourcing.Ask(t.Context(), b.account(id), command)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"open": func(rt *rapid.T) {
				id, currency := one.Draw(rt, "id"), rapid.SampledFrom(money.Currencies()).Draw(rt, "currency")
				m := model[id]
				_, err := eventsourcing.Ask(t.Context(), b.account(id), Open{Currency: currency})
				switch {
				case m.closed:
					compare(Receipt{}, err, Receipt{}, ErrClosed)
				case m.open && m.currency != currency:
					compare(Receipt{}, err, Receipt{}, ErrOtherTerms)
				default:
					compare(Receipt{}, err, Receipt{}, nil)
					m.open, m.currency = true, currency
				}
			},
			"deposit": func(rt *rapid.T) {
				id, r, x := one.Draw(rt, "id"), request.Draw(rt, "request"), amount.Draw(rt, "amount")
				m := model[id]
				want, wantErr := m.change(r, fmt.Sprint("deposit", x), x, func(n int64) error {
					m.balance += n
					return nil
				})
				got, err := ask(id, Deposit{Request: r, Amount: x})
				compare(got, err, want, wantErr)
			},
			"withdraw": func(rt *rapid.T) {
				id, r, x := one.Draw(rt, "id"), request.Draw(rt, "request"), amount.Draw(rt, "amount")
				m := model[id]
				want, wantErr := m.change(r, fmt.Sprint("withdraw", x), x, func(n int64) error {
					if n > m.balance {
						return ErrInsufficient
					}
					m.balance -= n
					return nil
				})
				got, err := ask(id, Withdraw{Request: r, Amount: x})
				compare(got, err, want, wantErr)
			},
			"transfer": func(rt *rapid.T) {
				id, to, r, x := one.Draw(rt, "id"), one.Draw(rt, "to"), request.Draw(rt, "request"), amount.Draw(rt, "amount")
				if id == to {
					return
				}
				m := model[id]
				var debited int64
				want, wantErr := m.change(r, fmt.Sprint("transfer", x, to), x, func(n int64) error {
					if n > m.balance {
						return ErrInsufficient
					}
					m.balance, debited = m.balance-n, n
					m.transfers++
					return nil
				})
				if debited > 0 {
					want.Transfer = m.transfers
					m.done[r] = modelRequest{fmt.Sprint("transfer", x, to), want}
				}
				got, err := ask(id, Transfer{Request: r, Amount: x, To: to})
				compare(got, err, want, wantErr)
				if debited == 0 {
					return
				}
				settled(t, b, id)
				d := model[to]
				if credit := convert(money.New(debited, m.currency), d.currency); d.open && !d.closed && credit > 0 {
					d.balance += credit
				} else {
					m.balance += debited
				}
			},
			"close": func(rt *rapid.T) {
				id, r := one.Draw(rt, "id"), request.Draw(rt, "request")
				m := model[id]
				want, wantErr := m.change(r, "close", money.Amount{}, func(int64) error {
					if m.balance != 0 {
						return ErrNotEmpty
					}
					m.closed = true
					return nil
				})
				got, err := ask(id, Close{Request: r})
				compare(got, err, want, wantErr)
			},
			"restart": func(*rapid.T) {
				stopBank(t, b)
				b = startBank(t, s, testRates)
			},
			"": func(rt *rapid.T) {
				for _, id := range slices.Sorted(slices.Values(ids)) {
					view, err := eventsourcing.Ask(t.Context(), b.account(id), Lookup{})
					m := model[id]
					if !m.open {
						compare(Receipt{}, err, Receipt{}, ErrNotOpen)
					} else if err != nil || view.Balance != money.New(m.balance, m.currency) || view.Closed != m.closed {
						rt.Fatalf("%s is %+v, %v; want %+v", id, view, err, m)
					}
				}
			},
		})
		report, err := b.audit(t.Context())
		if err != nil || len(report.violations) > 0 {
			rt.Fatalf("audit: violations %v, error %v; want none", found(report), err)
		}
	})
}
