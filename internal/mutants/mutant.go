// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

const extension = ".mutant"

// Mutant is a planted fault.
type Mutant struct {
	// Name is the path below the directory of all mutants, without the extension.
	Name string
	// Rule is the rule that the fault breaks.
	Rule string
	// Package is the directory to change, from the root of the module.
	Package string
	// Test is the list of arguments of go test, which runs in the root of the module.
	Test []string
	// Edits change different pieces of the package.
	Edits []Edit
}

// Edit replaces one piece of code.
type Edit struct{ Old, New string }

// Load reads all mutants below a directory, in the order of their names.
func Load(dir fs.FS) ([]Mutant, error) {
	var all []Mutant
	var errs []error
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != extension {
			return err
		}
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		m, err := Parse(strings.TrimSuffix(name, extension), string(text))
		errs = append(errs, err)
		all = append(all, m)
		return nil
	})
	return all, errors.Join(append(errs, err)...)
}

// Parse reads one mutant. The error lists all mistakes.
func Parse(name, text string) (Mutant, error) {
	m := Mutant{Name: name}
	head, body, _ := strings.Cut(strings.ReplaceAll(text, "\r\n", "\n"), "--- old\n")
	var errs []error
	for line := range strings.Lines(head) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "Rule":
			m.Rule = value
		case "Package":
			m.Package = value
		case "Test":
			m.Test = strings.Fields(value)
		default:
			errs = append(errs, fmt.Errorf("line %q: want Rule, Package or Test", line))
		}
	}
	for pair := range strings.SplitSeq(body, "--- old\n") {
		before, after, ok := strings.Cut(pair, "--- new")
		edit := Edit{Old: strings.TrimSpace(before), New: strings.TrimSpace(after)}
		if !ok || edit.Old == "" || edit.Old == edit.New {
			errs = append(errs, fmt.Errorf("old %.40q: new is missing or equal", edit.Old))
		}
		m.Edits = append(m.Edits, edit)
	}
	if m.Rule == "" || m.Package == "" || len(m.Test) == 0 {
		errs = append(errs, errors.New("rule, package and test are required"))
	}
	if !slices.Contains(m.Test, "-run") {
		errs = append(errs, errors.New("test has no -run: name the tests that must fail"))
	}
	if err := errors.Join(errs...); err != nil {
		return m, fmt.Errorf("mutant %s: %w", name, err)
	}
	return m, nil
}

// String returns the text of the mutant's file, which Parse reads.
func (m Mutant) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Rule: %s\nPackage: %s\nTest: %s\n", m.Rule, m.Package, strings.Join(m.Test, " "))
	for _, e := range m.Edits {
		fmt.Fprintf(&b, "--- old\n%s\n--- new\n", e.Old)
		if e.New != "" {
			fmt.Fprintf(&b, "%s\n", e.New)
		}
	}
	return b.String()
}
