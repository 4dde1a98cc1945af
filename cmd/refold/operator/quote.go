// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/refold-io/refold/ddata/crdt"
)

// next returns the first character of s, its length in bytes, and whether it is printable. Control
// characters, changes of text direction and invalid UTF-8 are not printable; a terminal may act on
// them.
func next(s string) (r rune, n int, shown bool) {
	r, n = utf8.DecodeRuneInString(s)
	return r, n, unicode.IsPrint(r) && (r != utf8.RuneError || n > 1)
}

// printable returns text as one line, with all characters escaped that are not printable.
func printable(s string) string {
	var b strings.Builder
	for rest := s; len(rest) > 0; {
		_, n, shown := next(rest)
		if shown {
			b.WriteString(rest[:n])
		} else {
			quoted := strconv.QuoteToASCII(rest[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		rest = rest[n:]
	}
	return b.String()
}

// appendQuoted appends text as a printable JSON string. It stops when dst is longer than limit.
func appendQuoted(dst []byte, s string, limit int) []byte {
	dst = append(dst, '"')
	for len(s) > 0 && len(dst) <= limit {
		r, n, shown := next(s)
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case shown:
			dst = append(dst, s[:n]...)
		default:
			dst = appendEscaped(dst, r)
		}
		s = s[n:]
	}
	return append(dst, '"')
}

// appendEscaped appends a character as a JSON escape.
func appendEscaped(dst []byte, r rune) []byte {
	switch r {
	case '\n':
		return append(dst, '\\', 'n')
	case '\t':
		return append(dst, '\\', 't')
	case '\r':
		return append(dst, '\\', 'r')
	}
	const hex = "0123456789abcdef"
	units := []rune{r}
	if a, b := utf16.EncodeRune(r); a != utf8.RuneError {
		units = []rune{a, b}
	}
	for _, u := range units {
		dst = append(dst, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
	}
	return dst
}

// marshal returns a value as compact, printable JSON.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return appendPrintable(nil, bytes.TrimSuffix(b.Bytes(), []byte{'\n'})), nil
}

// writeJSON writes a value as one line of JSON.
func writeJSON(out io.Writer, v any) error {
	line, err := marshal(v)
	if err != nil {
		return err
	}
	_, err = out.Write(append(line, '\n'))
	return err
}

// appendPrintable appends compact JSON, with all characters escaped that are not printable.
func appendPrintable(dst, compact []byte) []byte {
	for s := string(compact); len(s) > 0; {
		r, n, shown := next(s)
		if shown {
			dst = append(dst, s[:n]...)
		} else {
			dst = appendEscaped(dst, r)
		}
		s = s[n:]
	}
	return dst
}

// ValueJSON returns a value of replicated data as compact JSON. It includes elements that a
// registry has encoded.
func ValueJSON(v crdt.Value) []byte { return crdt.JSON{Named: renderNamed}.Append(nil, v) }

// PrintJSON prints compact JSON for people: indented, with all characters escaped that are not
// printable.
func (e *Env) PrintJSON(compact []byte) error {
	return printState(e, appendPrintable(make([]byte, 0, len(compact)), compact), false)
}
