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
	// station-0: ann votes for tea
	// station-1: bob votes for coffee
	// station-2: ann has voted already
	// station-0: cid votes for tea
	// station-1: dan votes for tea
	// station-2 crashes
	// station-1 counts map[coffee:1 tea:3]
	// attempts: 5
}
