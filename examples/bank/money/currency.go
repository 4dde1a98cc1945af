// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package money

import (
	"errors"
	"fmt"
)

// Currency is the ISO 4217 code of a currency.
type Currency string

const (
	// USD is the US dollar.
	USD Currency = "USD"
	// TWD is the New Taiwan dollar.
	TWD Currency = "TWD"
)

// Digits is how many digits the minor unit has behind the point; it is the same
// for both currencies.
const Digits = 2

// ErrCurrency is wrapped by the error about a code that is no Currency.
var ErrCurrency = errors.New("unknown currency")

// Currencies returns all there are, in the order in which they are shown.
func Currencies() []Currency { return []Currency{TWD, USD} }

// ParseCurrency returns the currency with a code, which is in capitals.
func ParseCurrency(code string) (Currency, error) {
	if c := Currency(code); c.Known() {
		return c, nil
	}
	return "", fmt.Errorf("%w %.20q: want USD or TWD", ErrCurrency, code)
}

// Known reports whether c is one of the currencies.
func (c Currency) Known() bool { return c == USD || c == TWD }
