// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var updateAPI = flag.Bool("update", false, "write testdata/api.txt")

// TestPublicAPI compares the exported API with testdata/api.txt, so that a change of it is visible
// in a review.
func TestPublicAPI(t *testing.T) {
	t.Parallel()
	const path = "testdata/api.txt"
	var lines []string
	for _, p := range packages(t) {
		if p.Name == "main" || isSuite(p.path()) || within(p.path(), "internal") || isExample(p.path()) || within(p.path(), "cmd") || within(p.path(), "tools") {
			continue
		}
		for _, name := range p.GoFiles {
			_, f := parse(t, filepath.Join(p.Dir, name))
			for _, line := range exportedAPI(f) {
				lines = append(lines, p.path()+": "+line)
			}
		}
	}
	slices.Sort(lines)
	got := strings.Join(slices.Compact(lines), "\n") + "\n"
	if *updateAPI {
		if err := os.MkdirAll("testdata", 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const remedy = "If the change is intended, run: go test ./internal/archtest -run TestPublicAPI -update"
	for _, line := range difference(string(want), got) {
		t.Errorf("the exported API differs from %s: %s\n%s", path, line, remedy)
	}
}

// difference returns the lines that only one of two sorted texts has.
func difference(want, got string) (lines []string) {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, line := range a {
		if _, found := slices.BinarySearch(b[:len(b)-1], line); !found && line != "" {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range b {
		if _, found := slices.BinarySearch(a[:len(a)-1], line); !found && line != "" {
			lines = append(lines, "+ "+line)
		}
	}
	return lines[:min(len(lines), 20)]
}

// exportedAPI returns a line for each exported function, method, type, field, variable and
// constant.
func exportedAPI(f *ast.File) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || receiverIsExported(d.Recv.List[0].Type)) {
				add("%s", source(&ast.FuncDecl{Recv: d.Recv, Name: d.Name, Type: d.Type}))
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() {
							add("%s %s", d.Tok, name.Name)
						}
					}
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						lines = append(lines, exportedType(s)...)
					}
				}
			}
		}
	}
	return lines
}

// exportedType returns the lines of a type.
func exportedType(s *ast.TypeSpec) (lines []string) {
	head := "type " + s.Name.Name
	var list *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		list = t.Fields
		lines = append(lines, head+" struct")
	case *ast.InterfaceType:
		list = t.Methods
		lines = append(lines, head+" interface")
	default:
		return []string{head + " " + source(s.Type)}
	}
	for _, field := range list.List {
		if len(field.Names) == 0 {
			lines = append(lines, head+", "+source(field.Type))
		}
		for _, name := range field.Names {
			if name.IsExported() {
				lines = append(lines, head+", "+name.Name+" "+source(field.Type))
			}
		}
	}
	return lines
}

func receiverIsExported(e ast.Expr) bool {
	switch t := e.(type) {
	case *ast.StarExpr:
		return receiverIsExported(t.X)
	case *ast.IndexExpr:
		return receiverIsExported(t.X)
	case *ast.IndexListExpr:
		return receiverIsExported(t.X)
	case *ast.Ident:
		return t.IsExported()
	}
	return false
}

// source prints a node in one line.
func source(node any) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), node); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
