// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package loop

// Signal wakes up one goroutine. Several calls of Set before the receiver runs are one wake-up. The
// receiver waits with a receive from the channel, then looks for work.
type Signal chan struct{}

// NewSignal returns a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set wakes up the receiver. It does not block.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
