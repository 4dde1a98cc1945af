// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package snapshottest checks snapshot stores, and contains a store that fails on demand for tests
// of its users: [Faulty].
//
// A store that passes satisfies the contract of [snapshot.Store]:
//
//	func TestConformance(t *testing.T) {
//		t.Parallel()
//		snapshottest.Run(t, snapshottest.Config{
//			Open: func(t testing.TB) snapshot.Store {
//				store, err := redis.OpenSnapshots(t.Context(), server.URL)
//				if err != nil {
//					t.Fatalf("open: %v", err)
//				}
//				return store
//			},
//		})
//	}
//
// Each case runs as a parallel subtest, on a store that Open returns and with persistence IDs that
// no other case and no earlier run has used. Stores of Open may share their contents, such as one
// database; Open must not return the same value twice, because each case closes its store.
//
// [Config] describes the capabilities beyond the contract. Cases of a capability that is not
// claimed are left out, and [Run] logs them.
//
// # Caveats
//
// The suite does not test power failures, full disks or lost connections. Test these in the package
// of the store, where a test can cause them.
package snapshottest
