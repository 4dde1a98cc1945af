// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"testing"
)

// TestStateWithEndedContext checks that calls with a context that ends return its error, and that
// nothing is written to their results later. The race detector reports such a write.
func TestStateWithEndedContext(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		a := w.cluster("a")[0]
		_, err := ask(w, a, "1", read{})
		w.must(err)
		number, err := a.region.ShardOf("1")
		w.must(err)
		for range 2000 {
			ctx, cancel := context.WithCancel(w.Context())
			go cancel()
			home, known, err := a.region.Home(ctx, number)
			if answered := err == nil && known && home == a.Self(); !answered && !errors.Is(err, context.Canceled) {
				w.Fatalf("Home = %v, %t, %v, want the home a, or Canceled", home, known, err)
			}
		}
	})
}
