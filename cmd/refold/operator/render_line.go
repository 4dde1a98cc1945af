// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

const (
	// cellLength is how many characters of a payload a table shows.
	cellLength = 160
	// lineLength is how many bytes of a payload stand in a line of JSON.
	lineLength = 8 << 20
)

// rendered is a payload in a line of JSON.
type rendered struct {
	Payload json.RawMessage `json:"payload"`
	// Error says why there is none. Then Raw is the payload as it is stored, if
	// that is not too long either.
	Error string `json:"payload_error,omitempty"`
	Raw   []byte `json:"payload_raw,omitempty"`
}

func renderLine(f format, payload []byte) rendered {
	text, err := f.render(payload, lineLength)
	if err == nil {
		return rendered{Payload: text}
	}
	r := rendered{Error: err.Error()}
	if base64.StdEncoding.EncodedLen(len(payload)) <= lineLength {
		r.Raw = payload
	}
	return r
}

// renderCell renders a payload for a table.
func renderCell(f format, payload []byte) string {
	text, err := f.render(payload, 4*cellLength)
	if err != nil && !errors.Is(err, errTooLong) {
		return fmt.Sprintf("(%s: %v)", count(len(payload), "byte"), err)
	}
	return shorten(string(text), cellLength)
}

// shorten returns at most n characters of a text.
func shorten(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i] + "…"
		}
	}
	return s
}
