// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/refold-io/refold/cmd/refold/operator"
)

func TestRender(t *testing.T) {
	t.Parallel()
	for want, payload := range map[string][]byte{
		`null`:                           {0xc0},
		`false`:                          {0xc2},
		`127`:                            {0x7f},
		`-32`:                            {0xe0},
		`-128`:                           {0xd0, 0x80},
		`18446744073709551615`:           {0xcf, 255, 255, 255, 255, 255, 255, 255, 255},
		`-9223372036854775808`:           {0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0},
		`4294967295`:                     {0xce, 255, 255, 255, 255},
		`1.0`:                            {0xca, 0x3f, 0x80, 0, 0},
		`0.1`:                            {0xca, 0x3d, 0xcc, 0xcc, 0xcd},
		`1e+100`:                         pack(t, 1e100),
		`"NaN"`:                          {0xca, 0x7f, 0xc0, 0, 0},
		`"+Inf"`:                         {0xcb, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0},
		`"a\n\t\r\"\\é漢"`:                pack(t, "a\n\t\r\"\\é漢"),
		`"\u001b\u007f\u0085"`:           pack(t, "\x1b\x7f\u0085"),
		`"\udb40\udc01"`:                 pack(t, "\U000e0001"),
		`"\ufffd�"`:                      {0xa4, 0xff, 0xef, 0xbf, 0xbd},
		`"/+8="`:                         {0xc4, 2, 0xff, 0xef},
		`[]`:                             {0x90},
		`[[1],{}]`:                       {0x92, 0x91, 1, 0x80},
		`{"a":1,"b":[2]}`:                {0x82, 0xa1, 'a', 1, 0xa1, 'b', 0x91, 2},
		`{"1":2,"true":3}`:               {0x82, 1, 2, 0xc3, 3},
		`{"[\"x\"]":1}`:                  {0x81, 0x91, 0xa1, 'x', 1},
		`{"AQ==":1}`:                     {0x81, 0xc4, 1, 1, 1},
		`"1970-01-01T00:00:01Z"`:         {0xd6, 0xff, 0, 0, 0, 1},
		`"1969-12-31T23:59:59Z"`:         {0xc7, 12, 0xff, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255},
		`{"extension":5,"data":"AQI="}`:  {0xd5, 5, 1, 2},
		`{"extension":-1,"data":"AQ=="}`: {0xd4, 0xff, 1},
	} {
		got, err := operator.Render(payload, 1000)
		if err != nil || string(got) != want {
			t.Errorf("%x: got %s, %v; want %s", payload, got, err, want)
		}
	}
}

func TestRenderErrors(t *testing.T) {
	t.Parallel()
	if got, err := operator.Render([]byte{0xc1}, 100); err == nil {
		t.Errorf("Render of an invalid code = %s, want an error", got)
	}
	if got, err := operator.RenderJSON([]byte("{"), 100); err == nil {
		t.Errorf("RenderJSON of invalid JSON = %s, want an error", got)
	}
	if got, err := operator.RenderJSON([]byte("{ \"a\u0085\": \"\xff\" }"), 100); err != nil || string(got) != `{"a\u0085":"\ufffd"}` {
		t.Errorf("RenderJSON = %s, error %v; want escaped characters without white space", got, err)
	}
}

// Rendering truncates a long value. It allocates memory only for the rendered part.
func TestRenderLimit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x\x00", 1<<16)
	for name, payload := range map[string][]byte{
		"string": pack(t, long), "binary": pack(t, []byte(long)), "array": pack(t, make([]int, 1<<16)),
		"key": pack(t, map[string]int{long: 1}), "nested": pack(t, map[string]any{"a": []any{long, long}}),
	} {
		got, err := operator.Render(payload, 1000)
		if !errors.Is(err, operator.ErrTooLong) || len(got) < 1000 || len(got) > 4000 {
			t.Errorf("%s: rendered %d bytes, error %v; want 1000 to 4000 bytes and ErrTooLong", name, len(got), err)
		}
		cell := operator.Cell(payload)
		if n := utf8.RuneCountInString(cell); n > 161 || !strings.HasSuffix(cell, "…") {
			t.Errorf("%s: the cell has %d characters, want at most 161 that end with …: %s", name, n, cell)
		}
	}
	if _, err := operator.RenderJSON([]byte(`"`+strings.Repeat("x", 2000)+`"`), 1000); !errors.Is(err, operator.ErrTooLong) {
		t.Errorf("RenderJSON above the limit: error %v, want ErrTooLong", err)
	}
	if _, err := operator.RenderJSON([]byte(`"`+strings.Repeat("x", 9000)+`"`), 1000); !errors.Is(err, operator.ErrTooLong) {
		t.Errorf("RenderJSON above the limit: error %v, want ErrTooLong", err)
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"": "", "plain é漢": "plain é漢", "a\tb\n": `a\tb\n`, "\x1b[2J": `\x1b[2J`, "\u202e": `\u202e`,
		"\xff": `\xff`, "\ufffd": "\ufffd", "\U000e0001": `\U000e0001`,
	} {
		if got := operator.Printable(s); got != want {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
	}
}

// FuzzRender renders any bytes. Rendering never panics, prints no control characters, respects its
// limit, and returns valid JSON or an error.
func FuzzRender(f *testing.F) {
	f.Add([]byte{0xdd, 0x7f, 0xff, 0xff, 0xff}, uint16(100))
	f.Add(bytes.Repeat([]byte{0x91}, 200), uint16(1000))
	f.Add(pack(f, map[string]any{"a": []any{1, "x\x1b", 1.5, nil, noon}}), uint16(1000))
	f.Add([]byte{0x81, 0xc4, 1, 1, 0xc7, 3, 9, 1, 2, 3}, uint16(20))
	f.Add([]byte("{\"a\": \"\u202e\"}"), uint16(20))
	f.Fuzz(func(t *testing.T, payload []byte, most uint16) {
		limit := int(most)
		for name, render := range map[string]func([]byte, int) ([]byte, error){"msgpack": operator.Render, "JSON": operator.RenderJSON} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := render(payload, limit)
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > uint64(64*len(payload)+1<<20) {
				t.Errorf("%s: rendering allocated %d bytes for a payload of %d bytes", name, used, len(payload))
			}
			if err == nil && (len(got) > limit || !json.Valid(got)) {
				t.Errorf("%s: got %d bytes, want valid JSON of at most %d bytes: %s", name, len(got), limit, got)
			}
			for _, r := range string(got) {
				if !unicode.IsPrint(r) {
					t.Errorf("%s: the output contains the unprintable character %q: %q", name, r, got)
				}
			}
		}
	})
}
