// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/effort"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// times is how often a randomized test is repeated: at its full count when REFOLD_SOAK is set, as
// make soak does.
func times(quick, full uint64) uint64 {
	if effort.Soak() {
		return full
	}
	return quick
}
