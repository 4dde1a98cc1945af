// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package docblocks_test

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/refold-io/refold/internal/docblocks"
)

// page is a Markdown file.
type page struct {
	path   string // below the root of the repository, with slashes
	lines  []string
	blocks []*block
}

// block is a fenced code block.
type block struct {
	first, last int    // the indexes of the lines between the fences: lines[first:last]
	indent      string // of the fences, in a list
	lang        string
	mark        string // the text of the comment above, "" without one
	text        string // without indent, with a newline at the end of each line
}

var (
	fence   = regexp.MustCompile("^( *)(```+)(\\w*)")
	comment = regexp.MustCompile(`^ *<!-- (.*\S) *-->$`)
)

// parsePage finds the code blocks of a page.
func parsePage(path, text string) (*page, error) {
	p := &page{path: path, lines: strings.Split(text, "\n")}
	for i := 0; i < len(p.lines); i++ {
		open := fence.FindStringSubmatch(p.lines[i])
		if open == nil {
			continue
		}
		b := &block{first: i + 1, indent: open[1], lang: open[3]}
		if i > 0 {
			if m := comment.FindStringSubmatch(p.lines[i-1]); m != nil {
				b.mark = m[1]
			}
		}
		for i++; i < len(p.lines) && strings.TrimSpace(p.lines[i]) != open[2]; i++ {
			b.text += strings.TrimPrefix(p.lines[i], b.indent) + "\n"
		}
		if i == len(p.lines) {
			return nil, fmt.Errorf("%s:%d: the code block has no end", path, b.first)
		}
		b.last = i
		p.blocks = append(p.blocks, b)
	}
	return p, nil
}

// with returns the page with other texts of blocks.
func (p *page) with(texts map[*block]string) string {
	var out []string
	at := 0
	for _, b := range p.blocks {
		text, changed := texts[b]
		if !changed {
			continue
		}
		out = append(out, p.lines[at:b.first]...)
		for line := range strings.Lines(text) {
			out = append(out, strings.TrimRight(b.indent+line, " \n"))
		}
		at = b.last
	}
	return strings.Join(append(out, p.lines[at:]...), "\n")
}

// prose returns the lines of the page without code blocks and spans.
func (p *page) prose() []string {
	span := regexp.MustCompile("`[^`]*`")
	var prose []string
	next := 0
	for i, line := range p.lines {
		if next < len(p.blocks) && i >= p.blocks[next].first-1 {
			if i == p.blocks[next].last {
				next++
			}
			line = ""
		}
		prose = append(prose, span.ReplaceAllString(line, ""))
	}
	return prose
}

// link is a reference from a page to a file or a heading.
type link struct {
	line   int
	target string
}

var targets = []*regexp.Regexp{
	regexp.MustCompile(`\]\(([^)\s]+)[^)]*\)`),
	regexp.MustCompile(`(?:src|srcset|href)="([^"]+)"`),
}

// links returns the links of the page, without those to other sites.
func (p *page) links() []link {
	scheme := regexp.MustCompile(`^[a-z]+:`)
	var links []link
	for i, line := range p.prose() {
		for _, target := range targets {
			for _, m := range target.FindAllStringSubmatch(line, -1) {
				if !scheme.MatchString(m[1]) {
					links = append(links, link{i + 1, m[1]})
				}
			}
		}
	}
	return links
}

// anchors returns the anchors of the headings, by the rule of GitHub.
func (p *page) anchors() docblocks.Anchors {
	heading := regexp.MustCompile(`^#{1,6} +(.*)$`)
	anchors := docblocks.Anchors{}
	next := 0
	for i, line := range p.lines {
		if next < len(p.blocks) && i >= p.blocks[next].first-1 {
			if i == p.blocks[next].last {
				next++
			}
			continue
		}
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		anchors.Add(m[1])
	}
	return anchors
}
