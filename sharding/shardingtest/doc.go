// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package shardingtest checks implementations of sharding.CoordinatorStore and
// sharding.RememberStore.
//
//	func TestStores(t *testing.T) {
//		shardingtest.Run(t, shardingtest.Config{
//			Open: func(tb testing.TB) shardingtest.Place { return open(tb) },
//		})
//	}
//
// Each check has a place of its own, its name is the name of a subtest, and a failure says what was
// asked and what came back.
package shardingtest
