// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/effort"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seeds returns the number of seeds of a test that usually runs n seeds.
func seeds(n uint64) uint64 { return effort.Count(max(1, n/4), n, 20*n) }
