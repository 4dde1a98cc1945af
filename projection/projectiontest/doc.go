// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package projectiontest checks stores of positions, and contains a store in memory that fails on
// demand for tests of projections: [Table].
//
// A store that passes satisfies the contract of [projection.Store], and with RunTx that of
// [projection.TxStore]:
//
//	func TestConformance(t *testing.T) {
//		t.Parallel()
//		projectiontest.Run(t, projectiontest.Config{
//			Open: func(t projectiontest.T) projection.Store { return redis.NewPositions(client) },
//		})
//	}
//
// Each case runs as a parallel subtest, on a store that Open returns and with projection names that
// no other case and no earlier run has used. Stores of Open may share their contents, and Open may
// return the same one twice.
//
// # Caveats
//
// The suite does not test lost connections. Test lost connections in the package of the store.
package projectiontest
