// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rates

import (
	"time"

	"github.com/refold-io/refold/examples/bank/money"
)

// Rates say what currencies are worth. They must not block. Table and File are
// Rates.
type Rates interface {
	// Quote returns what one unit of a currency is worth in another at a time.
	Quote(from, to money.Currency, at time.Time) (Quote, error)
}

// Exchange says how an amount became one in another currency, with all that is
// needed to compute it again. Without a rate both amounts are the same.
type Exchange struct {
	Original, Amount money.Amount
	Rate             money.Rate `msgpack:",omitempty"`
	Rounding         string     `msgpack:",omitempty"`
	Source           string     `msgpack:",omitempty"`
	AsOf             time.Time  `msgpack:",omitempty"`
}

// Convert converts an amount at the rate of now. An amount that has the currency
// already needs no rate.
func Convert(r Rates, original money.Amount, to money.Currency, now time.Time) (Exchange, error) {
	if original.Currency() == to {
		return Exchange{Original: original, Amount: original}, nil
	}
	q, err := r.Quote(original.Currency(), to, now)
	if err != nil {
		return Exchange{}, err
	}
	amount, err := q.Rate.Convert(original, to)
	if err != nil {
		return Exchange{}, err
	}
	return Exchange{Original: original, Amount: amount, Rate: q.Rate, Rounding: money.Rounding, Source: q.Source, AsOf: q.AsOf}, nil
}
