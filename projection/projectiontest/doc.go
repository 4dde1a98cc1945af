// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package projectiontest checks stores of positions, and has one in memory that
// fails on demand, for the tests of projections: [Table].
//
// A store that passes keeps the contract of [projection.Store], and with RunTx
// that of [projection.TxStore]:
//
//	func TestConformance(t *testing.T) {
//		t.Parallel()
//		projectiontest.Run(t, projectiontest.Config{
//			Open: func(t projectiontest.T) projection.Store { return redis.NewPositions(client) },
//		})
//	}
//
// Each case runs as a parallel subtest, on a store that Open gives it and with
// names of projections that no other case and no earlier run has used. Open may
// hand out stores that share what they hold, and the same one twice.
//
// # Caveats
//
// A passed suite says nothing about lost connections: those are tested next to
// the store, where they can be caused.
package projectiontest
