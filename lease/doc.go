// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package lease lets one of several processes hold something for a while: the
// SPI [Store], and the [Lease] that stands on top of any of them.
//
//	l, err := lease.New(store, lease.Config{Name: "bank-sbr", Owner: self.String()})
//	held, err := l.AcquireWithLost(ctx, func(cause error) { stop() })
//	...
//	if l.Check() { act() }
//	...
//	err = l.Release(ctx)
//
// An entry of a store that nobody renews is gone after the store's time-out. The
// holder renews it on an interval, and takes itself for the holder until 90 % of the
// time-out have passed since it sent the last renewal that was acknowledged, by its
// own monotonic clock. So it stops before anybody else can start, however slow
// the network is, as long as the two clocks run about equally fast. A process that
// is stopped in the middle of what it does after Check is not helped by that.
//
//	       sent          acknowledged                    90 %      100 %
//	holder   |──────────────|─── Check is true ────────────|
//	store         |──────── nobody else can create ─────────────────|
//
// # When something fails
//
// A call whose outcome is unknown returns an error; the entry may have been
// written. To acquire again is safe: the owner finds its own entry and goes on
// with it.
package lease
