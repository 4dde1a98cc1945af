// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package jsontext writes text and JSON that a terminal can print: it escapes all characters that are
// not printable.
package jsontext

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// next returns the first character of s, its length in bytes, and whether it is printable. Control
// characters, changes of text direction and invalid UTF-8 are not printable; a terminal may act on
// them.
func next(s string) (r rune, n int, shown bool) {
	r, n = utf8.DecodeRuneInString(s)
	return r, n, unicode.IsPrint(r) && (r != utf8.RuneError || n > 1)
}

// Printable returns text as one line, with all characters escaped that are not printable.
func Printable(s string) string {
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

// AppendQuoted appends text as a printable JSON string. It stops when dst is longer than limit.
func AppendQuoted(dst []byte, s string, limit int) []byte {
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

// Marshal returns a value as compact, printable JSON.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return AppendPrintable(nil, bytes.TrimSuffix(b.Bytes(), []byte{'\n'})), nil
}

// WriteJSON writes a value as one line of JSON.
func WriteJSON(out io.Writer, v any) error {
	line, err := Marshal(v)
	if err != nil {
		return err
	}
	_, err = out.Write(append(line, '\n'))
	return err
}

// AppendPrintable appends compact JSON, with all characters escaped that are not printable.
func AppendPrintable(dst, compact []byte) []byte {
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
