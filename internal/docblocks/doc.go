// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package docblocks tests the Markdown files of this repository: links lead to a file and a heading,
// Go code compiles and equals the source, and commands print the output that a page shows.
//
// A comment directly above a code block states where the block comes from:
//
//	<!-- from: path/file.go -->             the whole file, without the licence header
//	<!-- from: path/file.go#Name -->        a function, type, constant or variable with its comment
//	<!-- from: path/file.go#Type.Method -->
//	<!-- from: path/file.go#Name{} -->      the body of a function
//	<!-- from: path/file.go#part -->        the lines between "// region part" and "// endregion"
//	<!-- from: path/file.go#One,Two -->     several of them, with an empty line between
//	<!-- run -->                            commands for bash, in a directory of the page
//	<!-- run in sub -->                     the same, in a subdirectory
//	<!-- run in repository -->              the same, in the root of the repository
//	<!-- not run: reason -->                commands that a test cannot run
//	<!-- output -->                         the output of the program or commands above
//
// Paths start at the root of the repository. In files of other formats, a region starts with "#" or
// "--" instead of "//". Comments for linters are left out of the blocks.
//
// A Go block without a mark is a complete file. It is compiled, and run if it is a program with an
// output block. Blocks of commands and transcripts need a mark; blocks of data such as JSON do not.
//
// The commands refold and bank are in the path, and the environment names no journal. The output
// includes the errors. Times, durations, long hexadecimal numbers, ports of five digits, and spaces
// may differ from the page. The sign … matches any text in a line, and any lines if it is alone.
//
// go test ./internal/docblocks -update writes the blocks of the source into the pages, and replaces
// output that differs.
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
