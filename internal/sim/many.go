// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"sync"
)

// Many simulates n seeds from first on, some at once, and calls done with each result,
// one after the other, in any order. It ends early with the context.
func Many(ctx context.Context, first, n uint64, parallel int, done func(Result)) {
	seeds := make(chan uint64)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range max(1, parallel) {
		workers.Go(func() {
			for seed := range seeds {
				r := Run(seed, Options{})
				mu.Lock()
				done(r)
				mu.Unlock()
			}
		})
	}
	for seed := first; seed < first+n && ctx.Err() == nil; seed++ {
		seeds <- seed
	}
	close(seeds)
	workers.Wait()
}
