// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// shop-0: the total of order 42 is 350 cents
	// shop-1: the total of order 42 is 700 cents
	// shop-2: the total of order 42 is 1050 cents
	// the node with order 42 has stopped
	// after a unit from each of the other nodes, the total of order 42 is 1750 cents
}
