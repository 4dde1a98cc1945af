// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package lease provides a lock with an expiry. At most one of several processes holds the lock at
// a time. [Store] is the interface for plugins. [Lease] works with any store.
//
//	l, err := lease.New(store, lease.Config{Name: "bank-sbr", Owner: self.String()})
//	held, err := l.AcquireWithLost(ctx, func(cause error) { stop() })
//	...
//	if l.Check() { act() }
//	...
//	err = l.Release(ctx)
//
// An entry of a store expires after the store's timeout unless it is renewed. The holder renews its
// entry periodically. It considers the lease held until 90 % of the timeout have passed, by its own
// monotonic clock, since it sent the last acknowledged renewal. The holder therefore stops before
// another process can acquire the lease, regardless of network delays, if both clocks run at about
// the same rate. The lease does not protect an action that a suspended process continues after
// Check.
//
//	        sent          acknowledged                    90 %      100 %
//	holder   |──────────────|─── Check is true ────────────|
//	store         |──────── no other owner can create ──────────────|
//
// # Failures
//
// A call with an unknown outcome returns an error; the entry may have been written. Another Acquire
// is safe: the owner finds its own entry and takes it over.
package lease
