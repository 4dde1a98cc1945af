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
