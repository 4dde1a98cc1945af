// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package money implements exact money: integer amounts of minor units, and exchange rates.
//
//	fare, err := money.Parse("12.50", money.USD)
//	local, err := money.Rate("32.15").Convert(fare, money.TWD) // 401.88 TWD
//
// # Guarantees
//
// The package uses no binary floating point. An Amount is an integer, so sums are exact; an
// overflow is an error that matches ErrOverflow. A conversion multiplies exactly and rounds once,
// half to even, to the minor unit. Amounts and rates are comparable with ==. They are stored as
// short text such as "12.50 USD", and equal values have equal bytes.
package money

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

var (
	// ErrSyntax reports text that is not an amount.
	ErrSyntax = errors.New("not an amount")
	// ErrTooFine reports an amount with more decimal places than the currency has.
	ErrTooFine = errors.New("amount finer than the minor unit")
	// ErrOverflow reports an amount that is too large.
	ErrOverflow = errors.New("amount too large")
	// ErrMixed reports a sum of different currencies.
	ErrMixed = errors.New("amounts of different currencies")
)

// Amount is an amount of money in one currency: a number of minor units, which may be negative. The
// zero value has no currency. Equal amounts are ==.
type Amount struct {
	minor    int64
	currency Currency
}

// New returns an amount of minor units.
func New(minor int64, c Currency) Amount { return Amount{minor: minor, currency: c} }

// Zero returns zero in a currency.
func Zero(c Currency) Amount { return Amount{currency: c} }

// maxText bounds the length of parsed text.
const maxText = 40

// Parse parses an amount such as "12", "12.5" or "-0.07": digits, and optionally a point with at
// least one digit on each side. Blanks, separators and exponents are not allowed. The error matches
// ErrSyntax, ErrTooFine or ErrOverflow.
func Parse(text string, c Currency) (Amount, error) {
	unsigned := strings.TrimPrefix(text, "-")
	sign := text[:len(text)-len(unsigned)]
	whole, fraction, point := strings.Cut(unsigned, ".")
	if len(text) > maxText || !digits(whole) || point && !digits(fraction) {
		return Amount{}, fmt.Errorf("%w: %.40q", ErrSyntax, text)
	}
	if strings.Trim(fraction[min(Digits, len(fraction)):], "0") != "" {
		return Amount{}, fmt.Errorf("%w: %s has more than %d decimal places", ErrTooFine, text, Digits)
	}
	fraction = (fraction + "00")[:Digits]
	minor, err := strconv.ParseInt(sign+whole+fraction, 10, 64)
	if err != nil {
		return Amount{}, fmt.Errorf("%w: %s", ErrOverflow, text)
	}
	return New(minor, c), nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Minor returns the number of minor units.
func (a Amount) Minor() int64 { return a.minor }

// Currency returns the currency of the amount.
func (a Amount) Currency() Currency { return a.currency }

// Positive reports whether the amount is greater than zero.
func (a Amount) Positive() bool { return a.minor > 0 }

// IsZero reports whether the amount is zero, in any currency.
func (a Amount) IsZero() bool { return a.minor == 0 }

// Less reports whether a is less than b. Both must have the same currency.
func (a Amount) Less(b Amount) bool { return a.minor < b.minor }

// Add returns the sum. The error matches ErrMixed or ErrOverflow.
func (a Amount) Add(b Amount) (Amount, error) {
	sum := a.minor + b.minor
	switch {
	case a.currency != b.currency:
		return Amount{}, fmt.Errorf("%w: %v and %v", ErrMixed, a, b)
	case (sum > a.minor) != (b.minor > 0):
		return Amount{}, fmt.Errorf("%w: %v and %v", ErrOverflow, a, b)
	}
	return New(sum, a.currency), nil
}

// Sub returns the difference. The error matches ErrMixed or ErrOverflow.
func (a Amount) Sub(b Amount) (Amount, error) {
	if b.minor == math.MinInt64 {
		return Amount{}, fmt.Errorf("%w: %v less %v", ErrOverflow, a, b)
	}
	return a.Add(New(-b.minor, b.currency))
}

// Decimal formats the number without the currency, such as "12.50".
func (a Amount) Decimal() string {
	text, sign := strconv.FormatInt(a.minor, 10), ""
	if a.minor < 0 {
		text, sign = text[1:], "-"
	}
	if len(text) <= Digits {
		text = strings.Repeat("0", Digits+1-len(text)) + text
	}
	return sign + text[:len(text)-Digits] + "." + text[len(text)-Digits:]
}

// String formats the number with the currency, such as "12.50 USD".
func (a Amount) String() string {
	if a.currency == "" {
		return a.Decimal()
	}
	return a.Decimal() + " " + string(a.currency)
}

// MarshalText returns the text of String, or no text for the zero value.
func (a Amount) MarshalText() ([]byte, error) {
	if a == (Amount{}) {
		return nil, nil
	}
	return []byte(a.String()), nil
}

// UnmarshalText parses the text of MarshalText. It accepts unknown currencies, so that stored
// amounts stay readable.
func (a *Amount) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*a = Amount{}
		return nil
	}
	number, currency, _ := strings.Cut(string(text), " ")
	if len(currency) > 8 {
		return fmt.Errorf("%w: %.40q", ErrSyntax, text)
	}
	read, err := Parse(number, Currency(currency))
	if err != nil {
		return err
	}
	*a = read
	return nil
}

// Currency is the ISO 4217 code of a currency.
type Currency string

const (
	// USD is the US dollar.
	USD Currency = "USD"
	// TWD is the New Taiwan dollar.
	TWD Currency = "TWD"
)

// Digits is the number of decimal places of the minor unit. It is equal for all currencies.
const Digits = 2

// ErrCurrency reports an unknown currency code.
var ErrCurrency = errors.New("unknown currency")

// Currencies returns all currencies, in display order.
func Currencies() []Currency { return []Currency{TWD, USD} }

// ParseCurrency returns the currency with a code in capital letters. It also accepts NTD, the usual
// abbreviation of the New Taiwan dollar, as TWD.
func ParseCurrency(code string) (Currency, error) {
	if code == "NTD" {
		return TWD, nil
	}
	if c := Currency(code); c.Known() {
		return c, nil
	}
	return "", fmt.Errorf("%w %.20q: expected USD or TWD", ErrCurrency, code)
}

// Known reports whether c is one of the currencies.
func (c Currency) Known() bool { return c == USD || c == TWD }
