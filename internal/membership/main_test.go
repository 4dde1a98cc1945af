// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seeds is how many seeds a test runs: many more when REFOLD_SOAK is set, as make soak does.
func seeds(few int) uint64 {
	if os.Getenv("REFOLD_SOAK") != "" {
		few *= 20
	}
	return uint64(few)
}
