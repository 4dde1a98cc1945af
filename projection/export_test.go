// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import "time"

// Arrange is arrange.
func Arrange(stored []Position, workers int) ([]Position, error) { return arrange(stored, workers) }

// Pause returns how long the nth pause in a row is.
func (c Config[E]) Pause(n int, random float64) time.Duration {
	return c.withBackoffDefaults().pause(n, random)
}
