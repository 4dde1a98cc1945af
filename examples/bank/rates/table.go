// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package rates provides exchange rates from a file that may change while it is in use:
//
//	{
//	  "source": "example",
//	  "rates": [
//	    {"pair": "USD/TWD", "rate": "32.15", "as_of": "2026-07-01T00:00:00Z"},
//	    {"pair": "TWD/USD", "rate": "0.0309", "as_of": "2026-07-01T00:00:00Z"}
//	  ]
//	}
//
// "USD/TWD" is the price of one USD in TWD. The two directions have independent rates.
package rates

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/refold-io/refold/examples/bank/money"
)

var (
	// ErrMissing reports a pair without a rate.
	ErrMissing = errors.New("no rate")
	// ErrStale reports a rate that is too old.
	ErrStale = errors.New("rate too old")
	// ErrFormat reports invalid JSON of a table.
	ErrFormat = errors.New("not a table of rates")
)

// Quote is a rate with its source and time.
type Quote struct {
	Rate   money.Rate
	Source string
	AsOf   time.Time
}

// Table is an immutable table of rates. The zero value has no rates.
type Table struct {
	source string
	maxAge time.Duration
	quotes map[pair]entry
}

type pair struct{ from, to money.Currency }

func (p pair) String() string { return string(p.from) + "/" + string(p.to) }

type entry struct {
	rate string // checked on use, so that an invalid rate affects only its pair
	asOf time.Time
}

// Parse parses a table from JSON; see the package comment for its form. The error matches
// ErrFormat. Parse accepts a rate that is not positive; Quote then returns an error for it.
func Parse(data []byte) (*Table, error) {
	var doc struct {
		Source string `json:"source"`
		Rates  []struct {
			Pair string    `json:"pair"`
			Rate string    `json:"rate"`
			AsOf time.Time `json:"as_of"`
		} `json:"rates"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: more than one value", ErrFormat)
	}
	t := &Table{source: doc.Source, quotes: make(map[pair]entry, len(doc.Rates))}
	for i, r := range doc.Rates {
		p, err := parsePair(r.Pair)
		if err != nil {
			return nil, fmt.Errorf("%w: rates[%d].pair: %w", ErrFormat, i, err)
		}
		if _, ok := t.quotes[p]; ok {
			return nil, fmt.Errorf("%w: rates[%d].pair: duplicate %v", ErrFormat, i, p)
		}
		t.quotes[p] = entry{rate: r.Rate, asOf: r.AsOf.UTC()}
	}
	return t, nil
}

func parsePair(text string) (pair, error) {
	from, to, ok := strings.Cut(text, "/")
	if !ok {
		return pair{}, fmt.Errorf("%.20q is not of the form USD/TWD", text)
	}
	var p pair
	var err error
	if p.from, err = money.ParseCurrency(from); err != nil {
		return pair{}, err
	}
	if p.to, err = money.ParseCurrency(to); err != nil {
		return pair{}, err
	}
	if p.from == p.to {
		return pair{}, fmt.Errorf("%v has only one currency", p)
	}
	return p, nil
}

// WithMaxAge returns a copy whose rates are valid for d after their as-of time; 0 means no limit.
func (t *Table) WithMaxAge(d time.Duration) *Table {
	limited := *t
	limited.maxAge = d
	return &limited
}

// Quote returns the rate for a conversion at a time. The error matches ErrMissing, ErrStale or
// money.ErrRate. Quote does not block.
func (t *Table) Quote(from, to money.Currency, at time.Time) (Quote, error) {
	p := pair{from, to}
	e, ok := t.quotes[p]
	if !ok {
		return Quote{}, fmt.Errorf("%w for %v", ErrMissing, p)
	}
	if age := at.Sub(e.asOf); t.maxAge > 0 && age > t.maxAge {
		return Quote{}, fmt.Errorf("%w: %v is from %s, the maximum age is %v", ErrStale, p, e.asOf.Format(time.RFC3339), t.maxAge)
	}
	rate, err := money.ParseRate(e.rate)
	if err != nil {
		return Quote{}, fmt.Errorf("%v: %w", p, err)
	}
	return Quote{Rate: rate, Source: t.source, AsOf: e.asOf}, nil
}

// Rates provides exchange rates. Table and File implement it. Methods must not block.
type Rates interface {
	// Quote returns the price of one unit of a currency in another one, at a time.
	Quote(from, to money.Currency, at time.Time) (Quote, error)
}

// Exchange documents a conversion, with all data to compute it again. Without a rate, both amounts
// are equal.
type Exchange struct {
	Original, Amount money.Amount
	Rate             money.Rate `msgpack:",omitempty"`
	Rounding         string     `msgpack:",omitempty"`
	Source           string     `msgpack:",omitempty"`
	AsOf             time.Time  `msgpack:",omitempty"`
}

// Convert converts an amount at the current rate. An amount in the target currency needs no rate.
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
