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
	// node-0: counter 123 +1 = 1
	// node-1: counter 123 +1 = 2
	// node-2: counter 123 -1 = 1
	// node-0: counter 123 +1 = 2
	// counter 123 has left memory
	// node-2: counter 123 = 2
}
