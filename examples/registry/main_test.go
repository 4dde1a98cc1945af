// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	main()
	// Output:
	// host-2 finds mail at [10.0.0.1:25 10.0.0.2:25]
	// host-2 finds mail at [10.0.0.1:25]
}
