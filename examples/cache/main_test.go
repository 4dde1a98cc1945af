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
	// web-0: "Welcome", rendered
	// web-1: "Welcome", found
	// the page expires on both nodes
	// web-1: "Welcome back", rendered
}
