// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
)

// nodeA is a table of one node, "a" with the UID 1.
const nodeA = "\x01\x01a\x01\x00\x00\x00\x00\x00\x00\x00"

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	nodes := func(names ...string) string {
		s := string(rune(len(names)))
		for _, n := range names {
			s += string(rune(len(n))) + n + "\x01\x00\x00\x00\x00\x00\x00\x00"
		}
		return s
	}
	if _, err := (*crdt.Types)(nil).Decode([]byte("\x01\x01" + nodeA + "\x01\x00\x01\x05")); err != nil {
		t.Fatalf("a good counter: %v", err)
	}
	for what, data := range map[string]string{
		"nothing":                         "",
		"another version":                 "\x02\x01" + nodeA + "\x01\x00\x01\x05",
		"a delta":                         "\x41\x01" + nodeA + "\x01\x00\x01\x05",
		"no type":                         "\x01\x00\x00",
		"an unknown type":                 "\x01\x0e\x00",
		"unknown elements":                "\x01\x03\x07\x00\x00",
		"no elements' type":               "\x01\x03\x00\x00\x00",
		"something behind":                "\x01\x01" + nodeA + "\x01\x00\x01\x05\x00",
		"an unused node":                  "\x01\x01" + nodeA + "\x00",
		"nodes out of order":              "\x01\x01" + nodes("b", "a") + "\x02\x00\x01\x05\x01\x01\x05",
		"a node twice":                    "\x01\x01" + nodes("a", "a") + "\x02\x00\x01\x05\x01\x01\x05",
		"a bad name":                      "\x01\x01" + nodes("?") + "\x01\x00\x01\x05",
		"no UID":                          "\x01\x01\x01\x01a\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01\x05",
		"another node than there is":      "\x01\x01" + nodeA + "\x01\x01\x01\x05",
		"a node far away":                 "\x01\x01" + nodeA + "\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01\x05",
		"a count of 0":                    "\x01\x01" + nodeA + "\x01\x00\x00",
		"a count with leading zeroes":     "\x01\x01" + nodeA + "\x01\x00\x02\x00\x05",
		"a long count":                    "\x01\x01" + nodeA + "\x01\x00\x81\x01" + strings.Repeat("x", 129),
		"counts out of order":             "\x01\x01" + nodes("a", "b") + "\x02\x01\x01\x05\x00\x01\x05",
		"more counts than bytes":          "\x01\x01" + nodeA + "\x90\x4e\x00\x01\x05",
		"more counts than nodes may be":   "\x01\x01" + nodeA + "\x91\x4e\x00\x01\x05",
		"a number not in its short form":  "\x01\x01" + nodeA + "\x81\x00\x00\x01\x05",
		"elements out of order":           "\x01\x03\x01\x00\x02\x02\x10b\x02\x10a",
		"an element twice":                "\x01\x03\x01\x00\x02\x02\x10a\x02\x10a",
		"an empty element":                "\x01\x03\x01\x00\x01\x00",
		"an int among strings":            "\x01\x03\x01\x00\x01\x01\x20",
		"an int with leading zeroes":      "\x01\x03\x02\x00\x01\x03\x22\x00\x01",
		"a negative int with them":        "\x01\x03\x02\x00\x01\x03\x1e\xff\xfe",
		"an int below all":                "\x01\x03\x02\x00\x01\x09\x18\x00\x00\x00\x00\x00\x00\x00\x00",
		"a long bool":                     "\x01\x03\x03\x00\x01\x02\x31\x00",
		"not a number":                    "\x01\x03\x05\x00\x01\x09\x40\xff\xf8\x00\x00\x00\x00\x00\x00",
		"a negative 0":                    "\x01\x03\x05\x00\x01\x09\x40\x7f\xff\xff\xff\xff\xff\xff\xff",
		"an unknown tag":                  "\x01\x03\x06\x00\x01\x01\x60",
		"no name":                         "\x01\x03\x06\x00\x01\x02\x50\x00",
		"a name that is longer":           "\x01\x03\x06\x00\x01\x03\x50\x05a",
		"a dot that was not seen":         "\x01\x04\x01" + nodeA + "\x01\x00\x01\x01\x02\x10a\x00\x02",
		"a version of 0":                  "\x01\x04\x01" + nodeA + "\x01\x00\x00\x00",
		"one dot as several":              "\x01\x04\x01" + nodeA + "\x01\x00\x01\x01\x02\x10a\x03\x00\x01",
		"a flag of 2":                     "\x01\x05\x00\x02",
		"a register without a node":       "\x01\x06\x01" + nodeA + "\x02\x10a\x02",
		"a counter map of sets":           "\x01\x0b\x01\x04\x01\x00\x00\x00",
		"an entry of nothing":             "\x01\x08\x01\x01" + nodeA + "\x01\x00\x01\x01\x02\x10a\x00\x00\x00",
		"a value without a key":           "\x01\x08\x01\x01" + nodeA + "\x01\x00\x01\x01\x02\x10a\x02\x01\x00\x01\x05",
		"types in types in types":         "\x01" + strings.Repeat("\x08\x01", 9) + "\x01\x00\x00\x00",
		"an element of more than the end": "\x01\x03\x01\x00\x01\xff\xff\x3f\x10",
	} {
		v, err := (*crdt.Types)(nil).Decode([]byte(data))
		if !errors.Is(err, crdt.ErrMalformed) && !errors.Is(err, crdt.ErrLimit) {
			t.Errorf("%s: %v, %v", what, v, err)
		}
	}
	for what, data := range map[string]string{
		"a value":                   "\x01\x01" + nodeA + "\x01\x00\x01\x05",
		"of a type without":         "\x41\x05\x00\x01",
		"no steps":                  "\x41\x04\x01\x00\x00",
		"an unknown step":           "\x41\x04\x01\x00\x01\x04\x00",
		"an addition by no change":  "\x41\x04\x01\x00\x01\x01\x00\x01\x02\x10a\x01\x00",
		"an addition by another":    "\x41\x04\x01" + nodeA + "\x01\x01\x01\x00\x01\x01\x02\x10a\x00\x02\x00",
		"a removal before it began": "\x41\x04\x01" + nodeA + "\x01\x02\x01\x00\x01\x02\x10a\x00",
		"a map without steps":       "\x41\x08\x01\x01\x00\x00",
		"an update of a register":   "\x41\x0c\x01\x06\x01" + nodeA + "\x01\x02\x01\x01\x01\x00\x01\x00\x00",
	} {
		if d, err := (*crdt.Types)(nil).DecodeDelta([]byte(data)); !errors.Is(err, crdt.ErrMalformed) {
			t.Errorf("delta, %s: %v, %v", what, d, err)
		}
	}
	if _, err := (*crdt.Types)(nil).Decode(make([]byte, crdt.MaxSize+1)); !errors.Is(err, crdt.ErrLimit) {
		t.Errorf("more than MaxSize: %v", err)
	}
}

// Bytes that are damaged are refused, or another value in its one form. What they
// are made of is not believed before it is looked at.
func TestDamagedBytes(t *testing.T) {
	t.Parallel()
	types := knows(t)
	r := rand.New(rand.NewPCG(3, 4))
	for name, v := range samples(t) {
		data := []byte(bytesOf(v))
		for range 400 {
			bad := append([]byte(nil), data...)
			for range 1 + r.IntN(3) {
				bad[r.IntN(len(bad))] = byte(r.Uint32())
			}
			back, err := types.Decode(bad)
			switch {
			case err != nil && !ours(err):
				t.Errorf("%s: %x: %v", name, bad, err)
			case err == nil && bytesOf(back) != string(bad):
				t.Errorf("%s: %x becomes %x", name, bad, bytesOf(back))
			}
		}
	}
}

// The order of what was done, and by whom it was heard of first, leaves no trace.
func TestSameValueSameBytes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	var parts []set
	for _, name := range []string{"a", "bb", "ccc", "dddd"} {
		parts = append(parts, add(set{}, self(t, name), name, "shared", name+"2"))
	}
	want := ""
	for range 20 {
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		var s set
		for _, p := range parts {
			s = must(s.Merge(p))
		}
		if want == "" {
			want = bytesOf(s)
		}
		if got := bytesOf(s); got != want {
			t.Fatalf("%x and %x", got, want)
		}
	}
}

// The spec's figures for the size of sets.
func TestSizes(t *testing.T) {
	t.Parallel()
	var g crdt.GSet[string]
	for i := range 10_000 {
		g = must(g.Add(string([]byte{byte('0' + i/1000), byte('0' + i/100%10), byte('0' + i/10%10), byte('0' + i%10), '5'})))
	}
	if n := len(bytesOf(g)); n > 80_000 {
		t.Errorf("a GSet of 10,000 strings of five bytes has %d bytes", n)
	}
}
