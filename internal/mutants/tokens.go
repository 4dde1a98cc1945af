// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"go/scanner"
	"go/token"
	"go/types"
	"slices"
)

// lexeme is a token of Go code and its place in the text.
type lexeme struct {
	tok        token.Token
	text       string
	start, end int
	// free is true for an identifier that may match another one.
	free bool
	// selected is true for an identifier after a dot.
	selected bool
}

// tokenize splits Go code. It drops comments, automatic semicolons and commas before closing
// brackets. It returns false if the text is not made of Go tokens.
func tokenize(text string) (all []lexeme, ok bool) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, []byte(text), nil, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && lit != ";" {
			continue
		}
		x := lexeme{tok: tok, text: lit, start: file.Offset(pos)}
		if !tok.IsLiteral() {
			x.text = tok.String()
		}
		x.end = x.start + len(x.text)
		if n := len(all); n > 0 {
			last := all[n-1]
			x.selected = tok == token.IDENT && last.tok == token.PERIOD
			closes := tok == token.RPAREN || tok == token.RBRACE || tok == token.RBRACK
			if closes && last.tok == token.COMMA {
				all = all[:n-1]
			}
		}
		x.free = tok == token.IDENT && lit != "_" && (x.selected || types.Universe.Lookup(lit) == nil)
		all = append(all, x)
	}
	illegal := func(x lexeme) bool { return x.tok == token.ILLEGAL }
	return all, s.ErrorCount == 0 && !slices.ContainsFunc(all, illegal)
}

// bare returns Go code without comments.
func bare(text string) string {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, []byte(text), nil, scanner.ScanComments)
	var kept []byte
	from := 0
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok != token.COMMENT {
			continue
		}
		start := file.Offset(pos)
		before := text[from:start]
		from = start + len(lit)
		// Remove a comment that fills whole lines together with these lines.
		for len(before) > 0 && (before[len(before)-1] == ' ' || before[len(before)-1] == '\t') {
			before = before[:len(before)-1]
		}
		kept = append(kept, before...)
		if (len(kept) == 0 || kept[len(kept)-1] == '\n') && from < len(text) && text[from] == '\n' {
			from++
		}
	}
	return string(kept) + text[from:]
}
