// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"testing/synctest"
)

// TestRun compares the output of the program.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := run(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		want := `alice added shirt, 1 in the cart; looking_around -> shopping
alice added shoes, 2 in the cart; shopping -> shopping
restart
alice did nothing; shopping -> inactive
alice did nothing; inactive -> looking_around
bob added coat; looking_around -> shopping
bob bought; shopping -> paid
bob added hat: refold/unhandled
`
		if out.String() != want {
			t.Errorf("the output is\n%s\nwant\n%s", out.String(), want)
		}
	})
}
