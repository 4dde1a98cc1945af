// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package mutants_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/mutants"
)

// Whoever changes a line that a mutant changes has to mend the mutant.
func TestEveryMutantFitsTheSource(t *testing.T) {
	t.Parallel()
	all, err := mutants.Load(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("there are no mutants")
	}
	for _, m := range all {
		source, err := os.ReadFile(filepath.Join("..", "..", m.File))
		if err != nil {
			t.Errorf("mutant %s: %v", m.Name, err)
			continue
		}
		if _, err := m.Apply(string(source)); err != nil {
			t.Error(err)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := mutants.Parse("a/b", "Rule: one: two\nFile: a/b.go\nTest: -race ./a -run TestB\n--- old\n\tx := 1\n\ty := 2\n--- new\n\tx := 2\n--- old\nz\n--- new\n")
	want := mutants.Mutant{
		Name: "a/b", Rule: "one: two", File: "a/b.go",
		Test:  []string{"-race", "./a", "-run", "TestB"},
		Edits: []mutants.Edit{{Old: "x := 1\n\ty := 2", New: "x := 2"}, {Old: "z"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Parse = %+v, %v, want %+v", got, err, want)
	}
	for text, word := range map[string]string{
		"": "required",
		"Rule: r\nFile: f\nTest: ./a\n--- old\na\n--- new\nb":        "-run",
		"Rule: r\nFile: f\nTest: ./a -run T\n--- old\na\n":           "no new",
		"Rule: r\nFile: f\nTest: ./a -run T\n":                       "no new",
		"Rule: r\nFile: f\nTest: ./a -run T\n--- old\na\n--- new\na": "differs",
		"Rule: r\nFiel: f\nTest: ./a -run T\n--- old\na\n--- new\nb": "Fiel",
	} {
		if _, err := mutants.Parse("m", text); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("Parse(%q): %v, want an error about %q", text, err, word)
		}
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	m := mutants.Mutant{Edits: []mutants.Edit{{Old: "b", New: "x"}, {Old: "xc", New: ""}}}
	if got, err := m.Apply("abcd"); err != nil || got != "ad" {
		t.Errorf("Apply = %q, %v, want both edits one after the other", got, err)
	}
	for _, source := range []string{"acd", "abbc"} {
		if got, err := m.Apply(source); err == nil {
			t.Errorf("Apply to %q = %q, want an error: the piece is there not once", source, got)
		}
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
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return mutants.Runner{Root: dir}
}

func TestRun(t *testing.T) {
	t.Parallel()
	r := module(t)
	for name, test := range map[string]struct {
		edit mutants.Edit
		want mutants.Outcome
	}{
		"noticed":     {mutants.Edit{Old: "a + b", New: "a - b"}, mutants.Caught},
		"not noticed": {mutants.Edit{Old: "return 7", New: "return 8"}, mutants.Missed},
		"no Go":       {mutants.Edit{Old: "a + b", New: "a +"}, mutants.Broken},
		"not there":   {mutants.Edit{Old: "a * b", New: "a - b"}, mutants.Broken},
		"panics":      {mutants.Edit{Old: "return a + b", New: "panic(a)"}, mutants.Caught},
	} {
		got := r.Run(t.Context(), mutants.Mutant{Name: name, File: "m.go", Test: []string{".", "-run", "TestAdd"}, Edits: []mutants.Edit{test.edit}})
		if got.Outcome != test.want {
			t.Errorf("%s: %s, want %s\n%s", name, got.Outcome, test.want, got.Detail)
		}
	}
	source, err := os.ReadFile(filepath.Join(r.Root, "m.go"))
	if err != nil || !strings.Contains(string(source), "a + b") {
		t.Errorf("the source was changed: %s, %v", source, err)
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
