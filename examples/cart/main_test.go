// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStory: the example shows what it says.
func TestStory(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cart: 1 milk, 2 tea\n", "cart: 3 bread, 1 milk\n", "cart: 3 bread, 1 butter, 1 milk\n", "not enough replicas: 1 of 2, 3 in all"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}
