// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	maxPublicPackages = 27
	maxExportedNames  = 800
	maxFiles          = 650
)

// Users can import at most maxPublicPackages packages with at most maxExportedNames names, apart
// from conformance suites. Methods and fields do not count.
func TestPublicSurfaceIsSmall(t *testing.T) {
	t.Parallel()
	public, names := 0, 0
	for _, p := range packages(t) {
		path := p.path()
		if p.Name == "main" || isSuite(path) || len(p.GoFiles) == 0 || within(path, "internal") || isExample(path) || within(path, "cmd") || within(path, "tools") {
			continue
		}
		public++
		for _, name := range p.GoFiles {
			_, f := parse(t, filepath.Join(p.Dir, name))
			names += exportedNames(f)
		}
	}
	if public > maxPublicPackages {
		t.Errorf("users can import %d packages, at most %d are allowed", public, maxPublicPackages)
	}
	if names > maxExportedNames {
		t.Errorf("the public packages export %d names, at most %d are allowed", names, maxExportedNames)
	}
}

// A reader finds a feature in one file, so the tree has at most maxFiles Go files, apart from
// tests.
func TestFilesAreFew(t *testing.T) {
	t.Parallel()
	files := slices.DeleteFunc(trackedFiles(t), func(name string) bool {
		return !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go")
	})
	if len(files) > maxFiles {
		t.Errorf("the tree has %d Go files without tests, at most %d are allowed: merge files of one feature", len(files), maxFiles)
	}
}

// exportedNames counts the exported functions, types, variables and constants of a file.
func exportedNames(f *ast.File) int {
	n := 0
	count := func(name *ast.Ident) {
		if name.IsExported() {
			n++
		}
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				count(d.Name)
			}
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				continue
			}
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					count(s.Name)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						count(name)
					}
				}
			}
		}
	}
	return n
}
