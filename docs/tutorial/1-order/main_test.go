// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
)

// The second run continues with the events of the first one.
func Example() {
	dir, err := os.MkdirTemp("", "order-")
	if err == nil {
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
		for range 2 {
			if err = run(context.Background(), dir); err != nil {
				break
			}
		}
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// the total of order 42 is 700 cents
	// the total of order 42 is 1400 cents
}
