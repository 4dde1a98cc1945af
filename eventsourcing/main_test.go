// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// times is how often a randomized test is repeated: at its full count when REFOLD_SOAK is set, as
// make soak does.
func times(quick, full uint64) uint64 {
	if os.Getenv("REFOLD_SOAK") != "" {
		return full
	}
	return quick
}
