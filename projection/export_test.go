// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import "time"

// Arrange is arrange.
func Arrange(stored []Position, workers int) ([]Position, error) { return arrange(stored, workers) }

// Pause is pause.
func (b Backoff) Pause(n int, random float64) (time.Duration, bool) {
	return b.withDefaults().pause(n, random)
}
