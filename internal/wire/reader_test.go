// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBad = errors.New("bad")

func TestEncodedFieldsAreDecoded(t *testing.T) {
	t.Parallel()
	n := identity.Node{Name: "a:7400", UID: 1 << 63}
	b := wire.AppendList(wire.AppendNode([]byte{0x12, 200, 1, 9}, n), []uint32{0, 300})
	r := wire.NewReader(b, 0x12, 100, errBad)
	number, one := r.Uint(300, "number"), r.Byte("byte")
	if got := r.Node(); number != 200 || one != 9 || got != n {
		t.Errorf("number %d, byte %d, node %v, want 200, 9 and the encoded node", number, one, got)
	}
	if got := wire.List[uint32](r, 301, "list"); !slices.Equal(got, []uint32{0, 300}) || r.End() != nil {
		t.Errorf("list %v, error %v, want [0 300] and no error", got, r.End())
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, fits := range map[byte]bool{0x12: false, 0x13: true, 0x11: false, 0x1f: true, 0x22: false, 0x02: false} {
		err := wire.NewReader([]byte{version, 1}, 0x12, 100, errBad).End()
		if (err == nil) != fits || err != nil && !errors.Is(err, errBad) {
			t.Errorf("version %x with an additional byte: %v, want an error only without a higher minor version", version, err)
		}
	}
}

func TestMalformedFieldsAreRejected(t *testing.T) {
	t.Parallel()
	for subject, read := range map[string]func(r *wire.Reader){
		"one byte too few":         func(r *wire.Reader) { r.Bytes(6, "bytes") },
		"number above the limit":   func(r *wire.Reader) { r.Uint(2, "number") },
		"truncated number":         func(r *wire.Reader) { r.Bytes(4, "bytes"); r.Uint(1<<62, "number") },
		"more elements than bytes": func(r *wire.Reader) { r.Count(9, 2, "elements") },
		"element above the limit":  func(r *wire.Reader) { wire.List[uint32](r, 5, "list") },
		"blank node name":          func(r *wire.Reader) { r.Checked(identity.Node{Name: " ", UID: 1}) },
		"node without UID":         func(r *wire.Reader) { r.Checked(identity.Node{Name: "a"}) },
		"truncated UID":            func(r *wire.Reader) { r.UID() },
		"byte after the end":       func(r *wire.Reader) { r.Bytes(5, "bytes"); r.Byte("byte") },
	} {
		r := wire.NewReader([]byte{0x10, 3, 5, 1, 1, 0x80}, 0x10, 100, errBad)
		read(r)
		if err := r.End(); !errors.Is(err, errBad) || r.Err() == nil {
			t.Errorf("%s: %v, want the error of the reader", subject, err)
		}
	}
	if err := wire.NewReader([]byte{0x10, 1}, 0x10, 1, errBad).Err(); !errors.Is(err, errBad) {
		t.Errorf("encoding above the limit: %v, want the error of the reader", err)
	}
	if err := wire.NewReader(nil, 0x10, 1, errBad).Err(); !errors.Is(err, errBad) {
		t.Errorf("empty encoding: %v, want the error of the reader", err)
	}
}
