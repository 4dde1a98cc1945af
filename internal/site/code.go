// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// codeRenderer writes fenced code blocks with a class for each kind of token. assets/site.css has
// the colours.
type codeRenderer struct{}

// RegisterFuncs registers the renderer for fenced code blocks.
func (codeRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, renderCode)
}

func renderCode(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	block, ok := node.(*ast.FencedCodeBlock)
	if !ok || !entering {
		return ast.WalkContinue, nil
	}
	lexer := cmp.Or(lexers.Get(string(block.Language(source))), lexers.Fallback)
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, blockText(block, source))
	if err != nil {
		return ast.WalkStop, err
	}
	return ast.WalkSkipChildren, html.New(html.WithClasses(true)).Format(w, styles.Fallback, tokens)
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
