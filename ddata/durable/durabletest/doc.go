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
// Each check has its own opener and is a subtest. Failures show the call and its result. Checks
// that need an optional function of Config, such as Crash, are skipped without it.
package durabletest
