// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

func Example() {
	main()
	// Output:
	// 10 <nil>
}
