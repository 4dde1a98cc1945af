// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"fmt"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Source reads the source code that mutants change. It caches the files, so use one Source for many
// mutants. Its methods may be called concurrently.
type Source struct {
	// Root is the path of the module's directory. Required.
	Root string

	mu       sync.Mutex
	packages map[string]*directory
}

type directory struct {
	files []*file
	// tests has the names of the test functions.
	tests []string
}

type file struct {
	// path is relative to the root of the module, with slashes.
	path   string
	text   string
	tokens []lexeme
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// Fit describes how a mutant matches the source code.
type Fit struct {
	// Places lists the file and the line of each edit.
	Places string
	// Exact is true if the old pieces are equal to the source code except for comments and layout.
	Exact bool
	// Files has the changed text of each changed file by the path from the root of the module.
	Files map[string]string
	// Current is the mutant, rewritten with the present source code.
	Current Mutant
}

// Fit finds the pieces of the mutant in the source code. The error names the mutant and either the
// ambiguous places or the most similar one.
func (s *Source) Fit(m Mutant) (Fit, error) {
	fit, err := s.fit(m)
	if err != nil {
		return Fit{}, fmt.Errorf("mutant %s: package %s: %w", m.Name, m.Package, err)
	}
	return fit, nil
}

func (s *Source) fit(m Mutant) (Fit, error) {
	dir, err := s.directory(m.Package)
	if err != nil {
		return Fit{}, err
	}
	found := make([][]match, len(m.Edits))
	for i, e := range m.Edits {
		if found[i] = dir.matches(e.Old); len(found[i]) == 0 {
			return Fit{}, fmt.Errorf("no match for %q", e.Old)
		}
	}
	best, err := combine(found)
	if err != nil {
		return Fit{}, fmt.Errorf("%w: %q", err, m.Edits[0].Old)
	}
	fit := Fit{Places: best.places(), Exact: best.exact(), Files: best.apply(m.Edits), Current: m}
	fit.Current.Edits = make([]Edit, len(m.Edits))
	for i, e := range m.Edits {
		at := best.matches[i]
		e.New = best.replacement(e, at)
		if at.names != nil {
			e.Old = bare(at.file.text[at.start:at.end])
		}
		fit.Current.Edits[i] = e
	}
	return fit, nil
}

// matches returns the places where an old piece matches as Go code, or else as text.
func (d *directory) matches(old string) []match {
	var found []match
	if tokens, ok := tokenize(old); ok {
		for _, f := range d.files {
			found = append(found, piece(tokens).matches(f)...)
		}
	}
	exact := slices.ContainsFunc(found, func(m match) bool {
		c := combination{matches: []match{m}, names: m.names}
		c.rate()
		return c.exact()
	})
	if exact {
		return found
	}
	if text := d.matchText(old); len(text) > 0 {
		return text
	}
	return found
}

// matchText returns the places where an old piece occurs as text in a string literal or in a file
// of another language.
func (d *directory) matchText(old string) []match {
	var words []string
	for word := range strings.FieldsSeq(old) {
		words = append(words, regexp.QuoteMeta(word))
	}
	pattern := regexp.MustCompile(strings.Join(words, `\s+`))
	var found []match
	add := func(f *file, start, end int) {
		for _, at := range pattern.FindAllStringIndex(f.text[start:end], -1) {
			found = append(found, match{file: f, start: start + at[0], end: start + at[1]})
		}
	}
	for _, f := range d.files {
		if path.Ext(f.path) != ".go" {
			add(f, 0, len(f.text))
		}
		for _, x := range f.tokens {
			if x.tok == token.STRING {
				add(f, x.start, x.end)
			}
		}
	}
	return found
}

func (s *Source) directory(name string) (*directory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if dir, ok := s.packages[name]; ok {
		return dir, nil
	}
	entries, err := os.ReadDir(filepath.Join(s.Root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	dir := &directory{}
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(s.Root, filepath.FromSlash(name), entry.Name()))
		if err != nil {
			return nil, err
		}
		dir.add(path.Join(name, entry.Name()), string(text))
	}
	if s.packages == nil {
		s.packages = make(map[string]*directory)
	}
	s.packages[name] = dir
	return dir, nil
}

func (d *directory) add(name, text string) {
	if strings.HasSuffix(name, "_test.go") {
		for _, f := range testFunction.FindAllStringSubmatch(text, -1) {
			d.tests = append(d.tests, f[1])
		}
		return
	}
	f := &file{path: name, text: text}
	if path.Ext(name) == ".go" {
		f.tokens, _ = tokenize(text)
	}
	d.files = append(d.files, f)
}
