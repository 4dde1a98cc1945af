// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// capabilities is the number of the capabilities that docs/features.md numbers.
const capabilities = 47

// TestFeaturesPage checks that docs/features.md has one row per capability, and that the API, the
// examples and the tests that it names exist.
func TestFeaturesPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "features.md"))
	if err != nil {
		t.Fatal(err)
	}
	exists := featureNames(t)
	code := regexp.MustCompile("`([^`]+)`")
	seen := map[int]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 || strings.TrimSpace(cells[0]) == "#" || strings.Contains(cells[0], "---") {
			continue
		}
		if nr := strings.TrimSpace(cells[0]); nr != "" {
			n, failed := strconv.Atoi(nr)
			if failed != nil || n < 1 || n > capabilities || seen[n] {
				t.Errorf("a row has the number %q, want each number from 1 to %d once", nr, capabilities)
			}
			seen[n] = true
		}
		for i, kind := range []string{"API", "example", "test"} {
			names := code.FindAllStringSubmatch(cells[i+2], -1)
			if len(names) == 0 && strings.TrimSpace(cells[i+2]) != "not yet" {
				t.Errorf("row %q has no %s", cells[1], kind)
			}
			for _, name := range names {
				if !exists[kind][name[1]] {
					t.Errorf("row %q names the %s %s, which does not exist", cells[1], kind, name[1])
				}
			}
		}
	}
	if len(seen) != capabilities {
		t.Errorf("%d of %d capabilities have a row", len(seen), capabilities)
	}
}

// featureNames returns the names that docs/features.md may use, by kind: the API by package, type and
// member, and examples and tests by folder.
func featureNames(t *testing.T) map[string]map[string]bool {
	t.Helper()
	names := map[string]map[string]bool{"API": {}, "example": {}, "test": {}}
	receiver := regexp.MustCompile(`^func \(\w+ \*?(\w+)[^)]*\) (\w+)`)
	api, err := os.ReadFile("testdata/api.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(api)) {
		path, decl, _ := strings.Cut(strings.TrimSpace(line), ": ")
		pkg := strings.TrimPrefix(path, "plugins/")
		if m := receiver.FindStringSubmatch(decl); m != nil {
			names["API"][pkg+"."+m[1]+"."+m[2]] = true
			continue
		}
		words := regexp.MustCompile(`\w+`).FindAllString(decl, 3)
		names["API"][pkg+"."+words[1]] = true
		if words[0] == "type" && len(words) == 3 {
			names["API"][pkg+"."+words[1]+"."+words[2]] = true
		}
	}
	for _, p := range packages(t) {
		if p.Name == "main" && within(p.path(), "examples") {
			names["example"][p.path()] = true
		}
		for _, file := range append(p.TestGoFiles, p.XTestGoFiles...) {
			_, f := parse(t, filepath.Join(p.Dir, file))
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Recv != nil {
					continue
				}
				if strings.HasPrefix(fn.Name.Name, "Example") {
					names["example"][p.path()+"."+fn.Name.Name] = true
					names["test"][p.path()+"."+fn.Name.Name] = true
				}
				if strings.HasPrefix(fn.Name.Name, "Test") {
					names["test"][p.path()+"."+fn.Name.Name] = true
				}
			}
		}
	}
	return names
}
