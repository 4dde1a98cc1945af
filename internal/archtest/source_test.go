// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/refold-io/refold"

// root is the module's directory, seen from this package.
var root = filepath.Join("..", "..")

// pkg is the description of a package by go list.
type pkg struct {
	Name, Dir, ImportPath string

	GoFiles, TestGoFiles, XTestGoFiles []string

	Imports, TestImports, XTestImports []string
}

// path returns the import path below the module, "." for the module itself.
func (p *pkg) path() string { return below(p.ImportPath) }

func below(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

// own reports whether an import path is one of this module.
func own(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

// isSuite reports whether a package is a conformance suite or a test server: code for tests that is
// not in a test file.
func isSuite(path string) bool {
	return strings.HasSuffix(path, "test") || strings.HasPrefix(path, "internal/test")
}

// isExample reports whether a package is an example: a program to copy from, or code of the
// documentation.
func isExample(path string) bool { return within(path, "examples") || within(path, "docs") }

// within reports whether a path is dir or below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

var list = sync.OnceValues(func() ([]*pkg, error) {
	cmd := exec.Command("go", "list", "-json=Name,Dir,ImportPath,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, errors.New(string(exit.Stderr))
	}
	if err != nil {
		return nil, err
	}
	var all []*pkg
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := new(pkg)
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if !within(p.path(), "tmp") { // scratch files, not in the repository
			all = append(all, p)
		}
	}
})

// packages returns all packages of this module.
func packages(t *testing.T) []*pkg {
	t.Helper()
	all, err := list()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("go list finds only %d packages, want at least 5", len(all))
	}
	return all
}

// parsed holds the files that a test has parsed, by path, for the other tests.
var parsed sync.Map

type parsedFile struct {
	fset *token.FileSet
	file *ast.File
	err  error
}

// parse returns the syntax tree of one file of a package. Callers must not change it.
func parse(t *testing.T, path string) (*token.FileSet, *ast.File) {
	t.Helper()
	once, _ := parsed.LoadOrStore(path, sync.OnceValue(func() parsedFile {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		return parsedFile{fset, file, err}
	}))
	p := once.(func() parsedFile)() //nolint:errcheck,forcetypeassert // nothing else is stored
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.fset, p.file
}

// importName returns the name under which a file imports a package, "" if it does not.
func importName(f *ast.File, path string) string {
	for _, spec := range f.Imports {
		if strings.Trim(spec.Path.Value, `"`) != path {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		path = strings.TrimSuffix(path, "/v2")
		return path[strings.LastIndexByte(path, '/')+1:]
	}
	return ""
}

// selects reports whether a node is name.selector.
func selects(n ast.Node, name, selector string) bool {
	s, ok := n.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != selector {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == name
}
