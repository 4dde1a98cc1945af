// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package money is exact money: whole minor units of a currency, and rates that
// turn one currency into another.
//
//	fare, err := money.Parse("12.50", money.USD)
//	local, err := money.Rate("32.15").Convert(fare, money.TWD) // 401.88 TWD
//
// # Guarantees
//
// No binary floating point is anywhere near. An Amount is an integer, so sums
// are exact; what does not fit is an error that matches ErrOverflow. A
// conversion multiplies exactly and rounds once, half to even, to the minor
// unit. Amounts and rates are plain values: they may be compared with ==, are
// stored as short text such as "12.50 USD", and the same value always has the
// same bytes.
package money
