// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"errors"
	"strings"
	"testing"
)

// The failing types return errNowhere when they are decoded, and when the value "error" is encoded.
type (
	failingRaw    string
	failingBinary string
	failingText   string
)

func (f failingRaw) MarshalMsgpack() ([]byte, error)   { return []byte(f), fail(string(f)) }
func (f *failingRaw) UnmarshalMsgpack([]byte) error    { return errNowhere }
func (f failingBinary) MarshalBinary() ([]byte, error) { return nil, fail(string(f)) }

func (f *failingBinary) UnmarshalBinary(data []byte) error {
	*f = "read"
	if len(data) > 0 {
		return errNowhere
	}
	return nil
}
func (f failingText) MarshalText() ([]byte, error) { return nil, fail(string(f)) }
func (f *failingText) UnmarshalText([]byte) error  { return nil }

func fail(s string) error {
	if s == "error" {
		return errNowhere
	}
	return nil
}

func TestEncodingErrorsNameThePath(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		"Any: a chan int can't be stored":                 make(chan int),
		"Any: nowhere":                                    failingRaw("error"),
		"Any[1]: nowhere":                                 []failingText{"", "error"},
		"Any[0]: nowhere":                                 [1]failingBinary{"error"},
		`Any["x"].A: nowhere`:                             map[string]struct{ A failingRaw }{"x": {"error"}},
		"Any[7]: nowhere":                                 map[int]failingText{7: "error"},
		"Any[key]: nowhere":                               map[failingBinary]int{"error": 1},
		"Any: malformed data: cut short":                  failingRaw(""),
		"Any: malformed data: bad or incomplete code":     failingRaw("\xc1"),
		"Any: malformed data: an extension of type 5":     failingRaw("\xd4\x05\x00"),
		"Any[0]: malformed data: an extension of type 5":  []failingRaw{"\xd4\x05\x00"},
		"Any: malformed data: an array is the key":        failingRaw("\x81\x90\xc0"),
		"Any: malformed data: a map in an interface has":  failingRaw("\x82\x01\x02\xa1a\x03"),
		"Any: malformed data: binary data is the key":     map[[2]byte]int{{1, 2}: 1},
		`Any["b"]: two keys of a map have the same`:       map[string]map[any]int{"b": {1: 1, uint8(1): 2}},
		"Any[0]: malformed data: an array is the key of ": []map[[2]int]int{{{1, 2}: 1}},
	} {
		_, _, err := registry[boxes](t).Encode(boxes{Any: v})
		want = strings.Replace(want, "Any[0]: malformed", "Any: malformed", 1) // detected after the whole value is written
		if err == nil || !strings.Contains(err.Error(), "codec: encode t: "+want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestDecodingErrorsNameThePath(t *testing.T) {
	t.Parallel()
	type target struct {
		Map    map[string][]int
		Keys   map[int]string
		Any    any
		AnyKey map[any]int
		Float  float64
		Binary failingBinary
		Raw    *failingRaw
	}
	r := registry[target](t)
	for payload, want := range map[string]string{
		"\x81\xa3Map\x81\xa1k\x92\x01\xa1x":        `Map["k"][1]: malformed data: a string, want int`,
		"\x81\xa4Keys\x81\xa1k\xa1x":               `Keys[key]: malformed data: a string, want int`,
		"\x81\xa4Keys\x81\x05\xc3":                 `Keys[5]: malformed data: a bool, want string`,
		"\x81\xa3Any\x81\xa1a\x91\xd4\x05\x00":     `Any["a"][0]: malformed data: an extension of type 5`,
		"\x81\xa3Any\x81\xd4\x05\x00\xc0":          `Any[key]: malformed data: an extension of type 5`,
		"\x81\xa6AnyKey\x81\x90\x00":               `AnyKey[key]: malformed data: it can't be compared`,
		"\x81\xa6Binary\x05":                       `Binary: malformed data: an integer, want codec_test.failingBinary`,
		"\x81\xa6Binary\xc4\x01x":                  `Binary: malformed data: nowhere`,
		"\x81\xa3Raw\x05":                          `Raw: malformed data: nowhere`,
		"\x81\xa5Float\xa1x":                       `Float: malformed data: a string, want float64`,
		"\x81\xa5Float\xd6\xff\x00\x00\x00\x00":    `Float: malformed data: an extension, want float64`,
		"\x81\xa4Keys\x81\x05\xca\x00\x00\x00\x00": `Keys[5]: malformed data: a float, want string`,
	} {
		if _, err := r.Decode("t", []byte(payload)); err == nil || !strings.Contains(err.Error(), "codec: decode t: "+want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// A value whose encoder returns no bytes is decoded, because it is not a missing value.
	got := roundTrip(t, r, target{Float: 1})
	if got.Binary != "read" {
		t.Errorf("%q, want UnmarshalBinary to be called", got.Binary)
	}
	for payload, want := range map[string]float64{"\x05": 5, "\xff": -1, "\xca\x3f\x80\x00\x00": 1} {
		got, err := r.Decode("t", []byte("\x81\xa5Float"+payload))
		if v, ok := got.(target); !ok || v.Float != want {
			t.Errorf("%x: %v, %v, want %v", payload, got, err, want)
		}
	}
}

func TestSplitErrors(t *testing.T) {
	t.Parallel()
	r := ok(t, movedTypes())
	if got, err := r.DecodeAppend([]any{1}, "moved@2", []byte("\x81\xa4City\xa7nowhere")); !errors.Is(err, errNowhere) || len(got) != 1 {
		t.Errorf("%v, %v, want dst unchanged and the error of the method", got, err)
	}
}
