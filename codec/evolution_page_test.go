// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"os"
	"strings"
	"testing"
)

// TestEvolutionPage checks that each piece of code in docs/evolution.md is part of an example, so that it
// compiles and has been run.
func TestEvolutionPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/evolution.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_evolution_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		if quoted := strings.TrimSpace(strings.ReplaceAll("\n"+block, "\n", "\n\t")); !strings.Contains(string(examples), quoted) {
			t.Errorf("no example has the code\n%s", block)
		}
	}
	if len(blocks) == 0 {
		t.Error("the page has no code")
	}
}
