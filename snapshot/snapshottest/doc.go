// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package snapshottest checks snapshot stores, and has one that fails on demand
// for the tests of those who use one: [Faulty].
//
// A store that passes keeps the contract of [snapshot.Store]. The suite is what
// the stores of Refold itself are held to, and it is public so that any other
// can be:
//
//	func TestConformance(t *testing.T) {
//		t.Parallel()
//		snapshottest.Run(t, snapshottest.Config{
//			Open: func(t snapshottest.T) snapshot.Store {
//				store, err := redis.OpenSnapshots(t.Context(), server.URL)
//				if err != nil {
//					t.Fatalf("open: %v", err)
//				}
//				return store
//			},
//		})
//	}
//
// Each case runs as a parallel subtest, on a store that Open gives it and with
// persistence IDs that no other case and no earlier run has used. Open may hand
// out stores that share what they hold, such as one database; it must not hand
// out the same value twice, because each case closes what it was given.
//
// What a store may promise beyond the contract is said in the [Config]: the
// cases of a capability that is not claimed are not run, and [Run] logs which.
//
// # Caveats
//
// A passed suite says nothing about power cuts, full disks or lost connections:
// those are tested next to the store, where they can be caused.
package snapshottest
