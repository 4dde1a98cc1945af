// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fieldName matches a field on docs/defaults.md: package, type and field.
var fieldName = regexp.MustCompile("`([a-z]+)\\.([A-Z][A-Za-z]*)\\.([A-Z][A-Za-z]*)`")

// TestDefaultsNameFields checks that each field on docs/defaults.md is part of the exported API.
func TestDefaultsNameFields(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/defaults.md")
	if err != nil {
		t.Fatal(err)
	}
	api, err := os.ReadFile("testdata/api.txt")
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	for line := range strings.Lines(string(api)) {
		pkg, declaration, _ := strings.Cut(line, ": ")
		if typ, field, found := strings.Cut(strings.TrimPrefix(declaration, "type "), ", "); found {
			for name := range strings.SplitSeq(field, ", ") { // "A, B int" declares two fields
				name, _, _ = strings.Cut(name, " ")
				fields = append(fields, fmt.Sprintf("%s.%s.%s", path.Base(pkg), typ, strings.TrimSpace(name)))
			}
		}
	}
	found := fieldName.FindAllStringSubmatch(string(page), -1)
	for _, m := range found {
		if name := strings.Join(m[1:], "."); !slices.Contains(fields, name) {
			t.Errorf("docs/defaults.md names the field %s, which does not exist", name)
		}
	}
	if len(found) < 30 {
		t.Errorf("docs/defaults.md names %d fields, want at least 30", len(found))
	}
}
