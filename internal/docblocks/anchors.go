// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package docblocks

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// Anchors are the anchors of the headings of one page, by the rule of GitHub.
type Anchors map[string]bool

var linked = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)

// Add returns the anchor of the page's next heading. The heading is Markdown without the leading #.
func (a Anchors) Add(heading string) string {
	slug := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(linked.ReplaceAllString(heading, "$1")))
	unique := slug
	for n := 1; a[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", slug, n)
	}
	a[unique] = true
	return unique
}
