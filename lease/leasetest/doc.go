// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package leasetest checks implementations of lease.Store.
//
//	func TestLeases(t *testing.T) {
//		leasetest.Run(t, leasetest.Config{
//			Open: func(tb testing.TB, timeout time.Duration) lease.Store { return open(tb, timeout) },
//		})
//	}
//
// Each check has a store of its own, its name is the name of a subtest, and a
// failure says what was asked and what came back. Some wait until an entry
// expires.
package leasetest
