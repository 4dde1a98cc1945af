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

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	n := identity.Node{Name: "a:7400", UID: 1 << 63}
	b := wire.AppendList(wire.AppendNode([]byte{0x12, 200, 1, 9}, n), []uint32{0, 300})
	r := wire.NewReader(b, 0x12, 100, errBad)
	number, one := r.Uint(300, "number"), r.Byte("byte")
	if got := r.Node(); number != 200 || one != 9 || got != n {
		t.Errorf("%d, %d, %v", number, one, got)
	}
	if got := wire.List[uint32](r, 301, "list"); !slices.Equal(got, []uint32{0, 300}) || r.End() != nil {
		t.Errorf("%v, %v", got, r.End())
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, fits := range map[byte]bool{0x12: false, 0x13: true, 0x11: false, 0x1f: true, 0x22: false, 0x02: false} {
		err := wire.NewReader([]byte{version, 1}, 0x12, 100, errBad).End()
		if (err == nil) != fits || err != nil && !errors.Is(err, errBad) {
			t.Errorf("version %x with a byte more: %v", version, err)
		}
	}
}

func TestWhatCanNotBeIsRefused(t *testing.T) {
	t.Parallel()
	for subject, read := range map[string]func(r *wire.Reader){
		"a byte too few":         func(r *wire.Reader) { r.Bytes(6, "bytes") },
		"a number beyond":        func(r *wire.Reader) { r.Uint(2, "number") },
		"a number without end":   func(r *wire.Reader) { r.Bytes(4, "bytes"); r.Uint(1<<62, "number") },
		"elements that can't be": func(r *wire.Reader) { r.Count(9, 2, "elements") },
		"an element beyond":      func(r *wire.Reader) { wire.List[uint32](r, 5, "list") },
		"a name of spaces":       func(r *wire.Reader) { r.Checked(identity.Node{Name: " ", UID: 1}) },
		"a node without UID":     func(r *wire.Reader) { r.Checked(identity.Node{Name: "a"}) },
		"a UID that is cut":      func(r *wire.Reader) { r.UID() },
		"a byte after the end":   func(r *wire.Reader) { r.Bytes(5, "bytes"); r.Byte("byte") },
	} {
		r := wire.NewReader([]byte{0x10, 3, 5, 1, 1, 0x80}, 0x10, 100, errBad)
		read(r)
		if err := r.End(); !errors.Is(err, errBad) || r.Err() == nil {
			t.Errorf("%s: %v", subject, err)
		}
	}
	if err := wire.NewReader([]byte{0x10, 1}, 0x10, 1, errBad).Err(); !errors.Is(err, errBad) {
		t.Errorf("too long: %v", err)
	}
	if err := wire.NewReader(nil, 0x10, 1, errBad).Err(); !errors.Is(err, errBad) {
		t.Errorf("empty: %v", err)
	}
}
