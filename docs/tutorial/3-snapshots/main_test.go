// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
)

func Example() {
	dir, err := os.MkdirTemp("", "snapshots-")
	if err == nil {
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
		err = run(context.Background(), dir)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// keeps-events: 35 units, from the snapshot after event 30 and 5 more events
	//   snapshot after event 30
	//   snapshot after event 20
	//   first stored event 1
	// deletes-events: 35 units, from the snapshot after event 30 and 5 more events
	//   snapshot after event 30
	//   snapshot after event 20
	//   snapshot after event 10
	//   first stored event 11
}
