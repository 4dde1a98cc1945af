// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

var errText = errors.New("a string is not Unicode: it has bytes that are not UTF-8, or half of a surrogate pair")

// checkText returns an error if JSON that can be parsed has strings that are no
// text. The parser would put U+FFFD in place of what is wrong, and two IDs that
// differ there would become the same account.
func checkText(data []byte) error {
	if !utf8.Valid(data) {
		return errText
	}
	for len(data) > 0 {
		n := 1
		if data[0] == '\\' { // there are none outside of strings
			n = 2
			if r := escaped(data); utf16.IsSurrogate(r) {
				n = 12
				if utf16.DecodeRune(r, escaped(data[6:])) == utf8.RuneError {
					return errText
				}
			}
		}
		data = data[n:]
	}
	return nil
}

// escaped returns the UTF-16 unit of a \u escape at the beginning of data, 0 if
// there is none.
func escaped(data []byte) rune {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0
	}
	unit, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(unit)
}
