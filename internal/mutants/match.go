// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"cmp"
	"errors"
	"fmt"
	"go/token"
	"maps"
	"slices"
	"strings"
)

const (
	// enough is the minimum share of the identifiers and strings of a mutant that must be equal in
	// the source code.
	enough = 0.3
	// sameFile is added to the score for each further piece that matches in the file of the first
	// piece.
	sameFile = 0.1
	// maxCombined limits the number of combinations of matches that are compared.
	maxCombined = 1_000_000
)

// identifier is an identifier of a mutant. An identifier after a dot differs from the same
// identifier without a dot.
type identifier struct {
	name     string
	selected bool
}

// names maps each identifier of a mutant to the identifier of the source code that it stands for.
type names map[identifier]string

type match struct {
	file       *file
	start, end int
	names      names
	strings    map[string]string
}

// piece is the tokenized old piece of an edit.
type piece []lexeme

func (p piece) matches(f *file) []match {
	var found []match
	for i := 0; i+len(p) <= len(f.tokens); i++ {
		if m, ok := p.matchAt(f, i); ok {
			found = append(found, m)
		}
	}
	return found
}

func (p piece) matchAt(f *file, at int) (match, bool) {
	for i, want := range p {
		got := f.tokens[at+i]
		if got.tok != want.tok || got.free != want.free || !want.free && want.tok != token.STRING && got.text != want.text {
			return match{}, false
		}
	}
	m := match{file: f, start: f.tokens[at].start, end: f.tokens[at+len(p)-1].end, names: make(names), strings: make(map[string]string)}
	for i, want := range p {
		got := f.tokens[at+i]
		if want.tok == token.STRING {
			if m.strings[want.text] != want.text {
				m.strings[want.text] = got.text
			}
		} else if want.free && !m.names.add(want, got.text) {
			return match{}, false
		}
	}
	return m, true
}

// add records that an identifier stands for a name. It returns false if the identifier already
// stands for another name.
func (n names) add(x lexeme, name string) bool {
	key := identifier{name: x.text, selected: x.selected}
	if known, ok := n[key]; ok {
		return known == name
	}
	n[key] = name
	return true
}

// join returns the union of both maps. It returns false if an identifier stands for different names
// in them.
func (n names) join(other names) (names, bool) {
	union := maps.Clone(n)
	for key, name := range other {
		if known, ok := union[key]; ok && known != name {
			return nil, false
		}
		union[key] = name
	}
	return union, true
}

// score returns the weight of the identifiers that are equal in the mutant and in the source code,
// and the weight of all identifiers.
func (n names) score() (equal, all float64) {
	for key, name := range n {
		weight := 1.0
		if len(key.name) == 1 {
			weight = 0.25
		}
		all += weight
		if key.name == name {
			equal += weight
		}
	}
	return equal, all
}

// rename returns Go code with the identifiers replaced, without comments.
func (n names) rename(code string) string {
	code = bare(code)
	tokens, ok := tokenize(code)
	if !ok {
		return code
	}
	var b strings.Builder
	from := 0
	for _, x := range tokens {
		if !x.free {
			continue
		}
		name, ok := n[identifier{name: x.text, selected: x.selected}]
		if !ok {
			name, ok = n[identifier{name: x.text, selected: !x.selected}]
		}
		if ok {
			b.WriteString(code[from:x.start] + name)
			from = x.end
		}
	}
	return b.String() + code[from:]
}

type combination struct {
	matches []match
	names   names
	// score is the weight of the equal identifiers and strings. all is the weight of all
	// identifiers and strings.
	score, all float64
}

func (c *combination) rate() {
	c.score, c.all = c.names.score()
	for _, m := range c.matches {
		for old, is := range m.strings {
			c.all++
			if old == is {
				c.score++
			}
		}
	}
}

// rank is the score by which combinations are compared.
func (c *combination) rank() float64 {
	rank := c.score
	for _, m := range c.matches[1:] {
		if m.file == c.matches[0].file {
			rank += sameFile
		}
	}
	return rank
}

// exact reports whether the matches are equal to the old pieces except for comments and layout.
func (c *combination) exact() bool { return c.score == c.all }

// combine returns the best combination of one match for each edit.
func combine(found [][]match) (best combination, err error) {
	var second *combination
	tried := 0
	var extend func(c combination) bool
	extend = func(c combination) bool {
		if tried++; tried > maxCombined {
			return false
		}
		if len(c.matches) == len(found) {
			c.rate()
			if best.matches == nil || c.rank() > best.rank() {
				best, second = c, nil
			} else if c.rank() == best.rank() {
				second = &c
			}
			return true
		}
		for _, m := range found[len(c.matches)] {
			union, ok := c.names.join(m.names)
			if !ok || slices.ContainsFunc(c.matches, m.overlaps) {
				continue
			}
			if !extend(combination{matches: append(slices.Clip(c.matches), m), names: union}) {
				return false
			}
		}
		return true
	}
	switch complete := extend(combination{names: make(names)}); {
	case !complete:
		return best, errors.New("too many matches: extend the old pieces")
	case best.matches == nil:
		return best, errors.New("no match")
	case second != nil:
		return best, fmt.Errorf("ambiguous: matches equally well at %s and at %s", best.places(), second.places())
	case best.all > 0 && best.score < enough*best.all:
		return best, fmt.Errorf("no match: the most similar code is at %s", best.places())
	}
	return best, nil
}

func (m match) overlaps(other match) bool {
	return m.file == other.file && m.start < other.end && other.start < m.end
}

func (c *combination) places() string {
	var all []string
	for _, m := range c.matches {
		all = append(all, m.String())
	}
	return strings.Join(all, ", ")
}

func (m match) String() string {
	line := 1 + strings.Count(m.file.text[:m.start], "\n")
	return fmt.Sprintf("%s:%d", m.file.path, line)
}

// apply returns the changed text of each file that the edits change.
func (c *combination) apply(edits []Edit) map[string]string {
	changed := make(map[string]string)
	order := make([]int, len(edits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(c.matches[b].start, c.matches[a].start) })
	for _, i := range order {
		m := c.matches[i]
		text, ok := changed[m.file.path]
		if !ok {
			text = m.file.text
		}
		changed[m.file.path] = text[:m.start] + c.replacement(edits[i], m) + text[m.end:]
	}
	return changed
}

// replacement returns the new code of an edit with the identifiers of the source code.
func (c *combination) replacement(e Edit, m match) string {
	if m.names == nil {
		return e.New
	}
	return c.names.rename(e.New)
}
