// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import "time"

// Arrange calls arrange.
func Arrange(stored []Position, workers int) ([]Position, error) { return arrange(stored, workers) }

// Pause returns the length of the nth consecutive pause.
func (c Config[E]) Pause(n int, random float64) time.Duration {
	return c.withDefaults().pause(n, random)
}
