// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// The API refuses invalid Unicode, so that two different IDs do not become the same ID.
func TestInvalidText(t *testing.T) {
	t.Parallel()
	c := newClient(t, newBank(t, testRates))
	for id, want := range map[string]int{
		`\ud83d\ude00`:           200,
		`\uD83D\uDE00 \u0041`:    200,
		`\\ud800`:                200, // a backslash, and text
		`\"\\\"ud800`:            200,
		`\ud7ff\ue000`:           200,
		`\ufffd`:                 200,
		`\ud800`:                 400,
		`\udc00`:                 400,
		`\udc00\ud800`:           400,
		`\ud800x`:                400,
		`\ud800\u0041`:           400,
		`\ud800\ud800\udc00`:     400,
		`\\\ud800`:               400,
		`\ud800\\udc00`:          400,
		"\xff":                   400,
		"\xed\xa0\x80":           400, // a surrogate in UTF-8
		`a\ud800", "owner": "o`:  400,
		`b", "owner": "\udfff`:   400,
		`c", "owner": "\u00e9\n`: 200,
	} {
		status, answer := c.send(t, "POST", "/accounts", `{"currency": "USD", "id": "`+id+`"}`)
		if status != want || status == 400 && !strings.Contains(answer, "not valid Unicode") {
			t.Errorf("ID %s: status %d, want %d; %s", id, status, want, answer)
		}
	}
}
