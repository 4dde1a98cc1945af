// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"html/template"
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

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
	if _, err = w.WriteString(`<pre class="chroma" tabindex="0"><code>`); err != nil {
		return ast.WalkStop, err
	}
	if err = html.New(html.WithClasses(true), html.PreventSurroundingPre(true)).Format(w, styles.Fallback, tokens); err != nil {
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
