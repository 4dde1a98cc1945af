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
// same bytes.
package money
