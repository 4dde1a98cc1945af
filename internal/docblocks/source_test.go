// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package docblocks_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const licence = "// Copyright 2026 The Refold Authors\n// SPDX-License-Identifier: Apache-2.0\n\n"

var (
	forLinters = regexp.MustCompile(`(?m) *//nolint:.*$`)
	ofRegions  = regexp.MustCompile(`(?m)^[ \t]*(?://|#|--) (?:region \S+|endregion\b.*)[ \t]*\n`)
)

// clean removes the comments that are not for readers.
func clean(text string) string {
	return ofRegions.ReplaceAllString(forLinters.ReplaceAllString(text, ""), "")
}

// fromSource returns the text of a mark such as "path/file.go#Name".
func fromSource(root, mark string) (string, error) {
	path, names, some := strings.Cut(mark, "#")
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		return "", err
	}
	if !some {
		return clean(strings.TrimPrefix(string(source), licence)), nil
	}
	var parts []string
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		part, err := region(string(source), name)
		if err == nil && part == "" && strings.HasSuffix(path, ".go") {
			part, err = declaration(source, name)
		}
		if err == nil && part == "" {
			err = fmt.Errorf("neither a region nor a declaration has the name %s", name)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		parts = append(parts, strings.Trim(clean(part), "\n"))
	}
	return strings.Join(parts, "\n\n") + "\n", nil
}

var (
	regionStart = regexp.MustCompile(`^\s*(?://|#|--) region (\S+)\s*$`)
	regionEnd   = regexp.MustCompile(`^\s*(?://|#|--) endregion\b`)
)

// region returns the lines of a region, without the marks of regions and without common indent. It
// returns "" if the source has no such region.
func region(source, name string) (string, error) {
	var lines []string
	depth := 0 // of regions, with the named one as the first
	for line := range strings.Lines(source) {
		start := regionStart.FindStringSubmatch(line)
		switch {
		case depth == 0 && (start == nil || start[1] != name):
		case start != nil:
			depth++
		case regionEnd.MatchString(line):
			if depth--; depth == 0 {
				return dedent(lines), nil
			}
		default:
			lines = append(lines, line)
		}
	}
	if depth > 0 {
		return "", fmt.Errorf("the region %s has no end", name)
	}
	return "", nil
}

// dedent removes the indent that all lines have.
func dedent(lines []string) string {
	indent, found := "", false
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			continue
		}
		own := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if !found {
			indent, found = own, true
		}
		for !strings.HasPrefix(own, indent) {
			indent = indent[:len(indent)-1]
		}
	}
	var out strings.Builder
	for _, line := range lines {
		out.WriteString(strings.TrimPrefix(line, indent))
	}
	return out.String()
}

// declaration returns the text of a top-level declaration of a Go file, "" if the file has none with
// this name.
func declaration(source []byte, name string) (string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	text := func(doc *ast.CommentGroup, n ast.Node) string {
		start := n.Pos()
		if doc != nil {
			start = doc.Pos()
		}
		return string(source[files.Position(start).Offset:files.Position(n.End()).Offset])
	}
	name, onlyBody := strings.CutSuffix(name, "{}")
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if funcName(d) != name {
				continue
			}
			if onlyBody && d.Body != nil {
				body := string(source[files.Position(d.Body.Lbrace).Offset+1 : files.Position(d.Body.Rbrace).Offset])
				return dedent(strings.SplitAfter(body, "\n")), nil
			}
			return text(d.Doc, d), nil
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				doc, declares := specOf(spec, name)
				switch {
				case !declares || onlyBody:
				case !d.Lparen.IsValid():
					return text(d.Doc, d), nil
				default:
					comment := ""
					if doc != nil {
						comment = text(nil, doc) + "\n"
					}
					lines := strings.SplitAfter("\t"+comment+"\t"+d.Tok.String()+" "+text(nil, spec), "\n")
					return dedent(lines), nil
				}
			}
		}
	}
	return "", nil
}

// funcName returns "Func", or "Type.Method".
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + d.Name.Name
		default:
			return ""
		}
	}
}

// specOf returns the comment of a specification that declares the name.
func specOf(spec ast.Spec, name string) (doc *ast.CommentGroup, declares bool) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return s.Doc, s.Name.Name == name
	case *ast.ValueSpec:
		for _, n := range s.Names {
			declares = declares || n.Name == name
		}
		return s.Doc, declares
	}
	return nil, false
}
