// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/effort"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// times returns how often a randomized test is repeated. It sets defaults of flags, for which
// effort.Count would be called too early.
func times(usual, full uint64) uint64 {
	if effort.Soak() {
		return full
	}
	return usual
}
