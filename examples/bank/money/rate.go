// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package money

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/apd/v3"
)

// Rounding is the name of the rounding mode of conversions.
const Rounding = "half-even"

// ErrRate reports text that is not a positive decimal.
var ErrRate = errors.New("not a rate")

// Rate is the price of one unit of a currency in another one: a positive decimal such as "32.15",
// stored as written.
type Rate string

// ParseRate parses a rate: at most 18 digits, at most one point, no exponent, and greater than 0.
func ParseRate(text string) (Rate, error) {
	if _, err := Rate(text).decimal(); err != nil {
		return "", err
	}
	return Rate(text), nil
}

func (r Rate) decimal() (*apd.Decimal, error) {
	whole, fraction, point := strings.Cut(string(r), ".")
	if len(whole)+len(fraction) > 18 || !digits(whole) || point && !digits(fraction) {
		return nil, fmt.Errorf("%w: %.40q", ErrRate, string(r))
	}
	d, _, err := apd.NewFromString(string(r))
	if err != nil {
		return nil, fmt.Errorf("%w: %.40q: %w", ErrRate, string(r), err)
	}
	if d.Sign() <= 0 {
		return nil, fmt.Errorf("%w: %s is not positive", ErrRate, string(r))
	}
	return d, nil
}

// Convert converts an amount to another currency, and rounds half to even to the minor unit. The
// error matches ErrRate or ErrOverflow.
func (r Rate) Convert(a Amount, to Currency) (Amount, error) {
	rate, err := r.decimal()
	if err != nil {
		return Amount{}, err
	}
	// The product has at most 19 + 18 digits, so only Quantize rounds.
	exact := apd.BaseContext.WithPrecision(19 + 18)
	exact.Rounding = apd.RoundHalfEven
	value := apd.New(a.minor, -Digits)
	if _, err = exact.Mul(value, value, rate); err != nil {
		return Amount{}, fmt.Errorf("%w: %v at %s: %w", ErrOverflow, a, r, err)
	}
	if _, err = exact.Quantize(value, value, -Digits); err != nil {
		return Amount{}, fmt.Errorf("%w: %v at %s: %w", ErrOverflow, a, r, err)
	}
	value.Exponent = 0 // minor units
	minor, err := value.Int64()
	if err != nil {
		return Amount{}, fmt.Errorf("%w: %v at %s", ErrOverflow, a, r)
	}
	return New(minor, to), nil
}
