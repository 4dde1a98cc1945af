// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// CheckTests checks that each name of -run is the name of a test in the package that go test runs.
func (s *Source) CheckTests(m Mutant) error {
	run := slices.Index(m.Test, "-run")
	if run < 0 || run+1 == len(m.Test) {
		return fmt.Errorf("mutant %s: no -run", m.Name)
	}
	var tests []string
	for _, arg := range m.Test {
		if arg != "." && !strings.HasPrefix(arg, "./") {
			continue
		}
		dir, err := s.directory(path.Clean(arg))
		if err != nil {
			return fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		tests = append(tests, dir.tests...)
	}
	var errs []error
	for _, name := range alternatives(m.Test[run+1]) {
		top, _, _ := strings.Cut(name, "/")
		pattern, err := regexp.Compile(top)
		if err != nil {
			errs = append(errs, fmt.Errorf("mutant %s: -run: %w", m.Name, err))
		} else if !slices.ContainsFunc(tests, pattern.MatchString) {
			errs = append(errs, fmt.Errorf("mutant %s: -run %s: no such test in %s", m.Name, name, strings.Join(m.Test, " ")))
		}
	}
	return errors.Join(errs...)
}

// alternatives splits a regular expression at each | outside of parentheses.
func alternatives(pattern string) []string {
	var all []string
	depth, from := 0, 0
	for i, c := range pattern {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case '|':
			if depth == 0 {
				all = append(all, pattern[from:i])
				from = i + 1
			}
		}
	}
	return append(all, pattern[from:])
}
