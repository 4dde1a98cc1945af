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
	// Name is its path below the directory of all mutants, without extension.
	Name string
	// Rule says what must hold and no longer does.
	Rule string
	// File is the path of the file to change, from the root of the module.
	File string
	// Test is what follows go test, from the root of the module.
	Test []string
	// Edits are made one after the other.
	Edits []Edit
}

// Edit replaces one piece of text.
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

// Parse reads one mutant. The error names all that is wrong with it.
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
		case "File":
			m.File = value
		case "Test":
			m.Test = strings.Fields(value)
		default:
			errs = append(errs, fmt.Errorf("line %q is none of Rule, File and Test", line))
		}
	}
	for pair := range strings.SplitSeq(body, "--- old\n") {
		before, after, ok := strings.Cut(pair, "--- new")
		edit := Edit{Old: strings.TrimSpace(before), New: strings.TrimSpace(after)}
		if !ok || edit.Old == "" || edit.Old == edit.New {
			errs = append(errs, fmt.Errorf("old %.40q has no new that differs from it", edit.Old))
		}
		m.Edits = append(m.Edits, edit)
	}
	if m.Rule == "" || m.File == "" || len(m.Test) == 0 {
		errs = append(errs, errors.New("rule, file and test are required"))
	}
	if !slices.Contains(m.Test, "-run") {
		errs = append(errs, errors.New("test has no -run: name the tests that must fail"))
	}
	if err := errors.Join(errs...); err != nil {
		return m, fmt.Errorf("mutant %s: %w", name, err)
	}
	return m, nil
}

// Apply returns the source with the fault.
func (m Mutant) Apply(source string) (string, error) {
	for _, edit := range m.Edits {
		if n := strings.Count(source, edit.Old); n != 1 {
			return "", fmt.Errorf("mutant %s: %s holds the old piece %d times, not once: %q", m.Name, m.File, n, edit.Old)
		}
		source = strings.Replace(source, edit.Old, edit.New, 1)
	}
	return source, nil
}
