// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
)

// The second run finds the events of the first one.
func Example() {
	dir, err := os.MkdirTemp("", "hello")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err = os.Chdir(dir); err != nil {
		fmt.Println(err)
		return
	}
	main()
	main()
	// Output:
	// balance: 10 error: <nil>
	// balance: 15 error: <nil>
	// balance: 0 error: the amount must be positive
	// balance: 25 error: <nil>
	// balance: 30 error: <nil>
	// balance: 0 error: the amount must be positive
}
