// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package durabletest checks implementations of durable.Opener and durable.Store.
//
//	func TestDurable(t *testing.T) {
//		durabletest.Run(t, durabletest.Config{
//			Open: func(tb testing.TB) durable.Opener { return mystore.NewDurable(tb.TempDir()) },
//		})
//	}
//
// Each check has an opener of its own, its name is the name of a subtest, and a failure
// says what was asked and what came back. Checks of what an implementation is not told how to
// do, such as to crash, are left out; see Config.
package durabletest
