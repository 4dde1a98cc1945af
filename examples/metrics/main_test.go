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
	// node-2 knows map[node-0:0.75 node-1:0.25 node-2:0.5] and sends work to node-1
	// node-0 knows map[node-0:0.75 node-1:0.9 node-2:0.5] and sends work to node-2
}
