// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package mutants_test

import (
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/mutants"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/exportdata"
)

// most is the maximum number of mutants, because all mutants must run in acceptable time. When this
// number is reached, a new mutant must replace a less important one.
const most = 250

// stride returns 25 with -short or the race detector, because make check tests every mutant.
func stride() int { return effort.Count(25, 1, 1) }

// TestMutantsMatchSource fails if code or a test that a mutant names was changed. Adapt the mutant
// by hand or with -rewrite; see the package documentation.
func TestMutantsMatchSource(t *testing.T) {
	t.Parallel()
	all, err := mutants.Load(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 || len(all) > most {
		t.Fatalf("%d mutants, want 1 to %d", len(all), most)
	}
	source := &mutants.Source{Root: filepath.Join("..", "..")}
	for i := 0; i < len(all); i += stride() {
		m := all[i]
		fit, err := source.Fit(m)
		if err = errors.Join(err, source.CheckTests(m)); err != nil {
			t.Error(err)
			continue
		}
		if !fit.Exact {
			t.Logf("mutant %s: matches renamed code at %s", m.Name, fit.Places)
		}
	}
}

// TestMutantsCompile type-checks the package of each mutant, because a compiler error does not
// count as a failure of the test.
func TestMutantsCompile(t *testing.T) {
	t.Parallel()
	all, err := mutants.Load(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	source := &mutants.Source{Root: filepath.Join("..", "..")}
	changed := map[*mutants.Mutant]map[string]string{}
	var packages []string
	for i := 0; i < len(all); i += stride() {
		fit, err := source.Fit(all[i])
		if err != nil {
			continue // TestMutantsMatchSource reports it
		}
		for name := range fit.Files {
			if path.Ext(name) == ".go" {
				changed[&all[i]] = fit.Files
				packages = append(packages, "github.com/refold-io/refold/"+all[i].Package)
			}
		}
	}
	slices.Sort(packages)
	imports := exportdata.Importer(t, slices.Compact(packages)...)
	for m, files := range changed {
		if err := typeCheck(imports, source.Root, m.Package, files); err != nil {
			t.Errorf("mutant %s does not compile: %v", m.Name, err)
		}
	}
}

// typeCheck type-checks the package in a directory. Its files are replaced with the changed ones.
func typeCheck(imports types.Importer, root, dir string, changed map[string]string) error {
	p, err := build.ImportDir(filepath.Join(root, dir), 0)
	if err != nil {
		return err
	}
	positions := token.NewFileSet()
	files := make([]*ast.File, len(p.GoFiles))
	for i, name := range p.GoFiles {
		var text any // nil stands for the contents of the file
		if c, ok := changed[path.Join(dir, name)]; ok {
			text = c
		}
		files[i], err = parser.ParseFile(positions, filepath.Join(root, dir, name), text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
	}
	_, err = (&types.Config{Importer: imports}).Check(p.Name, positions, files, nil)
	return err
}

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := mutants.Parse("a/b", "Rule: one: two\nPackage: a\nTest: -race ./a -run TestB\n--- old\n\tx := 1\n\ty := 2\n--- new\n\tx := 2\n--- old\nz\n--- new\n")
	want := mutants.Mutant{
		Name: "a/b", Rule: "one: two", Package: "a",
		Test:  []string{"-race", "./a", "-run", "TestB"},
		Edits: []mutants.Edit{{Old: "x := 1\n\ty := 2", New: "x := 2"}, {Old: "z"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Parse = %+v, %v, want %+v", got, err, want)
	}
	for text, word := range map[string]string{
		"": "required",
		"Rule: r\nPackage: p\nTest: ./a\n--- old\na\n--- new\nb":        "-run",
		"Rule: r\nPackage: p\nTest: ./a -run T\n--- old\na\n":           "new is missing",
		"Rule: r\nPackage: p\nTest: ./a -run T\n":                       "new is missing",
		"Rule: r\nPackage: p\nTest: ./a -run T\n--- old\na\n--- new\na": "equal",
		"Rule: r\nPakcage: p\nTest: ./a -run T\n--- old\na\n--- new\nb": "Pakcage",
	} {
		if _, err := mutants.Parse("m", text); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("Parse(%q): error %v, want one about %q", text, err, word)
		}
	}
}

// TestFit changes a package with the files a.go and b.go.
func TestFit(t *testing.T) {
	t.Parallel()
	const a = "package p\n\nfunc (m *Machine) Advance(by int) {\n\tif m.now < by {\n\t\tm.now = by // a comment\n\t}\n}\n"
	for name, test := range map[string]struct {
		a, b  string
		edits []mutants.Edit
		// wantA and wantB must occur in the changed files.
		wantA, wantB, wantErr string
		inexact               bool
	}{
		"equal code": {
			a:     a,
			edits: []mutants.Edit{{Old: "if m.now < by {", New: "if m.now > by {"}},
			wantA: "if m.now > by {\n",
		},
		"renamed code": {
			a:     strings.NewReplacer("m.now", "c.now", "by", "step").Replace(a),
			edits: []mutants.Edit{{Old: "if m.now < by {", New: "if by < m.now {"}},
			wantA: "if step < c.now {\n", inexact: true,
		},
		"moved code": {
			a: "package p\n", b: a,
			edits: []mutants.Edit{{Old: "if m.now < by {", New: "if true {"}},
			wantB: "if true {\n",
		},
		"comment and layout": {
			a:     "package p\n\nvar x = f(1, /* why */\n\t2,\n)\n",
			edits: []mutants.Edit{{Old: "f(1, 2) // how", New: "f(1, 3) // how"}},
			wantA: "var x = f(1, 3)\n",
		},
		"different string": {
			a:     "package p\n\nvar x = errors.New(\"no time left\")\n",
			edits: []mutants.Edit{{Old: `errors.New("late")`, New: `errors.Join()`}},
			wantA: "var x = errors.Join()\n", inexact: true,
		},
		"pairs share an identifier": {
			a: "package p\n\nfunc f() { start(left); stop(left) }\n", b: "package p\n\nfunc g() { start(right); stop(right) }\n",
			edits: []mutants.Edit{{Old: "start(x)", New: "stop(x)"}, {Old: "stop(x)", New: "start(x)"}, {Old: "func g", New: "func h"}},
			wantB: "func h() { stop(right); start(right) }\n", inexact: true,
		},
		"pairs in two files": {
			a: a, b: "package p\n\nvar limit = 7\n",
			edits: []mutants.Edit{{Old: "limit = 7", New: "limit = 8"}, {Old: "m.now < by", New: "false"}},
			wantA: "if false {\n", wantB: "limit = 8\n",
		},
		"text of a query": {
			a:     "package p\n\n// a < $1 is a comment\nvar q = `SELECT a FROM t\n\tWHERE a < $1`\n",
			edits: []mutants.Edit{{Old: "t WHERE a < $1", New: "t WHERE a <= $1"}},
			wantA: "FROM t WHERE a <= $1`\n",
		},
		"ambiguous": {
			a:       "package p\n\nvar x = f(one)\nvar y = f(two)\n",
			edits:   []mutants.Edit{{Old: "f(three)", New: "f(0)"}},
			wantErr: "ambiguous: matches equally well at p/a.go:3 and at p/a.go:4",
		},
		"equal code twice": {
			a:       "package p\n\nvar x = f(one)\nvar y = f(one)\n",
			edits:   []mutants.Edit{{Old: "f(one)", New: "f(0)"}},
			wantErr: "ambiguous",
		},
		"all different": {
			a:       a,
			edits:   []mutants.Edit{{Old: "if x.start < count {", New: "if true {"}},
			wantErr: "most similar code is at p/a.go:4",
		},
		"different number": {
			a:       "package p\n\nvar x = f(1)\n",
			edits:   []mutants.Edit{{Old: "f(2)", New: "f(3)"}},
			wantErr: "no match",
		},
		"different builtin": {
			a:       "package p\n\nvar x = len(y)\n",
			edits:   []mutants.Edit{{Old: "cap(y)", New: "0"}},
			wantErr: "no match",
		},
		"inconsistent names": {
			a:       "package p\n\nvar x = max(one, two)\n",
			edits:   []mutants.Edit{{Old: "max(one, one)", New: "one"}},
			wantErr: "no match",
		},
		"query twice": {
			a:       "package p\n\nvar q = `SELECT $1`\nvar r = `SELECT $1`\n",
			edits:   []mutants.Edit{{Old: "SELECT $1", New: "SELECT $2"}},
			wantErr: "ambiguous",
		},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"a.go": test.a, "b.go": test.b, "a_test.go": test.a} {
			write(t, filepath.Join(dir, "p", file), text)
		}
		source := &mutants.Source{Root: dir}
		fit, err := source.Fit(mutants.Mutant{Name: name, Package: "p", Edits: test.edits})
		if err != nil || test.wantErr != "" {
			if err == nil || test.wantErr == "" || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("%s: error %v, want %q", name, err, test.wantErr)
			}
			continue
		}
		if !strings.Contains(fit.Files["p/a.go"], test.wantA) || !strings.Contains(fit.Files["p/b.go"], test.wantB) || fit.Exact == test.inexact {
			t.Errorf("%s: changed files %q, exact: %t, want %q and %q", name, fit.Files, fit.Exact, test.wantA, test.wantB)
		}
		again, err := source.Fit(fit.Current)
		if err != nil || !again.Exact || !reflect.DeepEqual(again.Files, fit.Files) {
			t.Errorf("%s: the rewritten mutant %q changes %q (%v), want an exact match and the same change", name, fit.Current, again.Files, err)
		}
	}
}

func TestCheckTests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "p", "p_test.go"), "package p\n\nfunc TestOne(t *testing.T) {}\n\nfunc FuzzTwo(f *testing.F) {}\n")
	source := &mutants.Source{Root: dir}
	for run, exists := range map[string]bool{
		"TestOne": true, "^TestOne$": true, "TestOne|FuzzTwo": true, "TestOne/case": true, "Test(One|Two)": true,
		"TestTwo": false, "TestOne|TestTwo": false, "^TestOn$": false, "(": false,
	} {
		if err := source.CheckTests(mutants.Mutant{Test: []string{"-race", "./p", "-run", run}}); (err == nil) != exists {
			t.Errorf("CheckTests with -run %s = %v, want an error: %t", run, err, !exists)
		}
	}
}

// write writes a file and its directories.
func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// module writes a module with a function and a test of it.
func module(t *testing.T) mutants.Runner {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.26\n",
		"m.go":      "package m\n\nfunc Add(a, b int) int { return a + b }\n\nfunc Idle() int { return 7 }\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(2, 1) != 3 {\n\t\tt.Fail()\n\t}\n}\n\nfunc TestSick(t *testing.T) { t.Fail() }\n",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	return mutants.Runner{Source: &mutants.Source{Root: dir}}
}

func TestRun(t *testing.T) {
	t.Parallel()
	r := module(t)
	for name, test := range map[string]struct {
		edit mutants.Edit
		want mutants.Outcome
	}{
		"caught":     {mutants.Edit{Old: "a + b", New: "a - b"}, mutants.Caught},
		"missed":     {mutants.Edit{Old: "return 7", New: "return 8"}, mutants.Missed},
		"invalid Go": {mutants.Edit{Old: "a + b", New: "a +"}, mutants.Broken},
		"no match":   {mutants.Edit{Old: "a * b", New: "a - b"}, mutants.Broken},
		"panics":     {mutants.Edit{Old: "return a + b", New: "panic(a)"}, mutants.Caught},
	} {
		got := r.Run(t.Context(), mutants.Mutant{Name: name, Package: ".", Test: []string{".", "-run", "TestAdd"}, Edits: []mutants.Edit{test.edit}})
		if got.Outcome != test.want {
			t.Errorf("%s: %s, want %s\n%s", name, got.Outcome, test.want, got.Detail)
		}
	}
	source, err := os.ReadFile(filepath.Join(r.Source.Root, "m.go"))
	if err != nil || !strings.Contains(string(source), "a + b") {
		t.Errorf("the run has changed the source: %s, error %v; want a + b", source, err)
	}
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	r := module(t)
	for name, healthy := range map[string]bool{"TestAdd": true, "TestSick": false, "TestNone": false} {
		if err := r.Healthy(t.Context(), []string{".", "-run", name}); (err == nil) != healthy {
			t.Errorf("Healthy(%s) = %v, want healthy: %t", name, err, healthy)
		}
	}
}
