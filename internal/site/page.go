// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/alecthomas/chroma/v2"
	chromahtml "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/refold-io/refold/internal/docblocks"
)

// page is a Markdown file of the site.
type page struct {
	Path     string // below the root of the repository
	Title    string // its first heading
	Body     template.HTML
	Sections []section // in the order of the page; the first one begins at the title
}

// section is a heading with the text up to the next heading.
type section struct {
	Level  int
	Title  string
	Anchor string
	Text   string // without markup, for the search
}

// Contents returns the sections that the page's table of contents lists.
func (p *page) Contents() []section {
	var listed []section
	for _, s := range p.Sections {
		if s.Level == 2 || s.Level == 3 {
			listed = append(listed, s)
		}
	}
	return listed
}

// readPage converts a Markdown file of the repository.
func readPage(path string, links *linker) (*page, error) {
	source, err := os.ReadFile(filepath.Join(links.root, filepath.FromSlash(path)))
	if err != nil {
		return nil, err
	}
	markdown := newMarkdown()
	ids := parser.WithContext(parser.NewContext(parser.WithIDs(anchors{docblocks.Anchors{}})))
	document := markdown.Parser().Parse(text.NewReader(source), ids)
	if err = errors.Join(dropComments(path, document, source), mapLinks(path, document, links)); err != nil {
		return nil, err
	}
	sections := sectionsOf(document, source)
	if len(sections) == 0 || sections[0].Level != 1 {
		return nil, fmt.Errorf("%s does not begin with a title", path)
	}
	linkHeadings(document)
	focusTables(document)
	var body bytes.Buffer
	if err = markdown.Renderer().Render(&body, source, document); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &page{Path: path, Title: sections[0].Title, Body: template.HTML(body.String()), Sections: sections}, nil //nolint:gosec // the renderer escapes text
}

// newMarkdown returns a converter for the Markdown of GitHub. It writes neither styles nor HTML of a
// page, because the pages' Content-Security-Policy forbids inline code.
func newMarkdown() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(extension.Linkify, extension.Strikethrough, extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(codeRenderer{}, 1))),
	)
}

// anchors names the headings of a page as GitHub does.
type anchors struct{ docblocks.Anchors }

// Generate returns the anchor of a heading.
func (a anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	return []byte(a.Add(string(heading)))
}

// Put records an anchor that a page sets itself. No page can.
func (a anchors) Put([]byte) {}

// dropComments removes the comments above code blocks. It marks the blocks that a comment calls
// output. Other HTML is a mistake.
func dropComments(path string, document ast.Node, source []byte) error {
	var comments []ast.Node
	var mistakes []error
	each(document, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.HTMLBlock:
			html := strings.TrimSpace(blockText(n, source))
			if !strings.HasPrefix(html, "<!--") {
				mistakes = append(mistakes, fmt.Errorf("%s: the site has no raw HTML: %s", path, html))
			}
			if next := n.NextSibling(); next != nil && html == "<!-- output -->" {
				next.SetAttributeString("class", "chroma output")
			}
			comments = append(comments, n)
		case *ast.RawHTML:
			mistakes = append(mistakes, fmt.Errorf("%s: the site has no raw HTML: %s", path, n.Segments.Value(source)))
		}
	})
	for _, n := range comments {
		n.Parent().RemoveChild(n.Parent(), n)
	}
	return errors.Join(mistakes...)
}

// mapLinks changes the links and collects the images.
func mapLinks(path string, document ast.Node, links *linker) error {
	var mistakes []error
	each(document, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Link:
			target, err := links.link(path, string(n.Destination))
			n.Destination = []byte(target)
			mistakes = append(mistakes, err)
		case *ast.Image:
			links.image(path, string(n.Destination))
		}
	})
	return errors.Join(mistakes...)
}

// sectionsOf returns the sections of a page. Headings in lists and quotes do not begin a section.
func sectionsOf(document ast.Node, source []byte) []section {
	var sections []section
	for n := document.FirstChild(); n != nil; n = n.NextSibling() {
		heading, ok := n.(*ast.Heading)
		switch {
		case ok:
			sections = append(sections, section{Level: heading.Level, Title: plain(n, source), Anchor: anchorOf(n)})
		case len(sections) > 0:
			last := &sections[len(sections)-1]
			last.Text = strings.TrimSpace(last.Text + " " + plain(n, source))
		}
	}
	return sections
}

// linkHeadings adds to each heading a link to itself.
func linkHeadings(document ast.Node) {
	each(document, func(n ast.Node) {
		if _, ok := n.(*ast.Heading); !ok {
			return
		}
		link := ast.NewLink()
		link.Destination = []byte("#" + anchorOf(n))
		link.SetAttributeString("class", []byte("anchor"))
		link.Title = []byte("Link to this section")
		link.AppendChild(link, ast.NewString([]byte("#")))
		n.AppendChild(n, link)
	})
}

// focusTables lets the keyboard reach tables, because wide ones scroll.
func focusTables(document ast.Node) {
	each(document, func(n ast.Node) {
		if table, ok := n.(*tables.Table); ok {
			table.SetAttributeString("tabindex", []byte("0"))
		}
	})
}

func anchorOf(heading ast.Node) string {
	id, _ := heading.AttributeString("id")
	anchor, _ := id.([]byte)
	return string(anchor)
}

// plain returns the text of a node without markup, with single spaces.
func plain(node ast.Node, source []byte) string {
	var words strings.Builder
	each(node, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Text:
			words.Write(n.Value(source))
			if n.SoftLineBreak() {
				words.WriteByte(' ')
			}
		case *ast.FencedCodeBlock:
			words.WriteString(blockText(n, source))
		}
		if n.Type() == ast.TypeBlock { // words of neighbours do not touch
			words.WriteByte(' ')
		}
	})
	return strings.Join(strings.Fields(words.String()), " ")
}

// each calls a function for a node and all nodes below, in the order of the page.
func each(node ast.Node, f func(ast.Node)) {
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function returns no error
		if entering {
			f(n)
		}
		return ast.WalkContinue, nil
	})
}

// repository is the address of files that are not pages of the site. "blob" or "tree" follows.
const repository = "https://github.com/refold-io/refold/"

var scheme = regexp.MustCompile(`^[a-z]+:`)

// linker maps the links of Markdown files to links of the site.
type linker struct {
	root   string          // the directory of the repository
	pages  map[string]bool // by the path of their Markdown file
	images map[string]bool // collects the paths of the images that the pages show
}

// link returns where a link leads: to a page of the site, or to a file in the repository.
func (l *linker) link(from, target string) (string, error) {
	if scheme.MatchString(target) {
		return target, nil
	}
	file, anchor, anchored := strings.Cut(target, "#")
	if anchored {
		anchor = "#" + anchor
	}
	if file == "" {
		return anchor, nil
	}
	to := path.Join(path.Dir(from), file)
	for _, p := range []string{to, path.Join(to, "README.md")} { // a folder is its README
		if l.pages[p] {
			return relative(from, htmlPath(p)) + anchor, nil
		}
	}
	info, err := os.Stat(filepath.Join(l.root, filepath.FromSlash(to)))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: the link to %s: %w", from, target, err)
	case info.IsDir():
		return repository + "tree/main/" + to, nil
	}
	return repository + "blob/main/" + to + anchor, nil
}

// image records an image, which has the same path in the site as in the repository.
func (l *linker) image(from, target string) {
	l.images[path.Join(path.Dir(from), target)] = true
}

// htmlPath returns the path of a page in the site.
func htmlPath(markdown string) string {
	if path.Base(markdown) == "README.md" {
		return path.Join(path.Dir(markdown), "index.html")
	}
	return strings.TrimSuffix(markdown, ".md") + ".html"
}

// toRoot returns the relative path from a page to the root of the site, "" or with a slash at its end.
func toRoot(from string) string {
	return strings.Repeat("../", strings.Count(from, "/"))
}

// relative returns the shortest relative path from a page to a file of the site.
func relative(from, to string) string {
	dir, up := path.Dir(from), 0
	for dir != "." && !strings.HasPrefix(to, dir+"/") {
		dir = path.Dir(dir)
		up++
	}
	if dir != "." {
		to = strings.TrimPrefix(to, dir+"/")
	}
	return strings.Repeat("../", up) + to
}

// codeRenderer writes the code of pages.
type codeRenderer struct{}

// RegisterFuncs registers the renderers for blocks of code and for code in a sentence.
func (codeRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, renderBlock)
	r.Register(ast.KindCodeSpan, renderSpan)
}

// renderSpan permits line breaks after dots and slashes, because names such as
// eventsourcing.HostOptions.StashCapacity are wider than the columns of tables.
func renderSpan(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	text := template.HTMLEscapeString(plain(node, source))
	_, err := w.WriteString("<code>" + strings.NewReplacer(".", ".<wbr>", "/", "/<wbr>").Replace(text) + "</code>")
	return ast.WalkSkipChildren, err
}

// renderBlock writes a fenced code block with a class for each kind of token. assets/site.css has the
// colours.
func renderBlock(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	block, ok := node.(*ast.FencedCodeBlock)
	if !ok || !entering {
		return ast.WalkContinue, nil
	}
	lexer := cmp.Or(lexers.Get(string(block.Language(source))), lexers.Fallback)
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, blockText(block, source))
	if err != nil {
		return ast.WalkStop, err
	}
	// A wide block scrolls, so it must be reachable with the keyboard.
	class := "chroma"
	if marked, ok := block.AttributeString("class"); ok {
		class = fmt.Sprint(marked)
	}
	if _, err = fmt.Fprintf(w, `<pre class="%s" tabindex="0"><code>`, class); err != nil {
		return ast.WalkStop, err
	}
	if err = chromahtml.New(chromahtml.WithClasses(true), chromahtml.PreventSurroundingPre(true)).Format(w, styles.Fallback, tokens); err != nil {
		return ast.WalkStop, err
	}
	_, err = w.WriteString("</code></pre>\n")
	return ast.WalkSkipChildren, err
}

// blockText returns the lines of a block as they stand in the source.
func blockText(block ast.Node, source []byte) string {
	var text strings.Builder
	lines := block.Lines()
	for i := range lines.Len() {
		line := lines.At(i)
		text.Write(line.Value(source))
	}
	return text.String()
}
