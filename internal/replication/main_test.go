// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
