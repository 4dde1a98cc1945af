// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/refold-io/refold/identity"
)

// ErrMalformed is matched by the errors about bytes that are no message, event or
// state.
var ErrMalformed = errors.New("coordinator: malformed")

// Each encoding begins with a byte for its version. The high half is the major one: another can't
// be read. A higher minor one may add fields at the end, which are passed over.
const (
	wireMajor = 1 << 4
	wireMinor = 0
	wire      = wireMajor | wireMinor
)

// MaxBytes is the largest number of bytes of an encoded message, event or state.
const MaxBytes = 1 << 20

func appendNode(dst []byte, n identity.Node) []byte {
	dst = append(dst, byte(len(n.Name))) //nolint:gosec // at most identity.MaxNameLength
	dst = append(dst, n.Name...)
	return binary.LittleEndian.AppendUint64(dst, n.UID)
}

func appendShards(dst []byte, shards []Shard) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(shards)))
	for _, s := range shards {
		dst = binary.AppendUvarint(dst, uint64(s))
	}
	return dst
}

// reader takes bytes apart. After the first error it returns zeroes.
type reader struct {
	b     []byte
	minor byte
	err   error
}

// newReader reads the version.
func newReader(b []byte) *reader {
	r := &reader{b: b}
	if len(b) > MaxBytes {
		r.fail("it has %d bytes, at most %d are allowed", len(b), MaxBytes)
	}
	version := r.byte("version")
	if r.err == nil && version&0xf0 != wireMajor {
		r.fail("version %d.%d is not known", version>>4, version&0xf)
	}
	r.minor = version & 0xf
	return r
}

// end returns the error, and one if bytes are left that no newer version has
// added.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 && r.minor <= wireMinor {
		r.fail("%d bytes too many", len(r.b))
	}
	return r.err
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
		r.b = nil
	}
}

func (r *reader) byte(what string) byte {
	if len(r.b) == 0 {
		r.fail("%s is missing", what)
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint(most uint64, what string) uint64 {
	v, n := binary.Uvarint(r.b)
	switch {
	case n <= 0:
		r.fail("%s is missing", what)
		return 0
	case v > most:
		r.fail("%s is %d, at most %d is allowed", what, v, most)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads how many elements of at least size bytes follow.
func (r *reader) count(most, size int, what string) int {
	n := int(r.uint(uint64(most), what)) //nolint:gosec // at most most
	if n*size > len(r.b) {
		r.fail("%d %s don't fit into %d bytes", n, what, len(r.b))
		return 0
	}
	return n
}

// bytes reads n bytes. They are not copied.
func (r *reader) bytes(n int, what string) []byte {
	if n > len(r.b) {
		r.fail("%s is cut short", what)
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) uid() uint64 {
	b := r.bytes(8, "UID")
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// checked returns a node if it can be one.
func (r *reader) checked(n identity.Node) identity.Node {
	if r.err != nil {
		return identity.Node{}
	}
	if err := identity.CheckName(n.Name); err != nil {
		r.fail("node: %v", err)
	} else if n.UID == 0 {
		r.fail("node %s has no UID", n.Name)
	}
	return n
}

func (r *reader) node() identity.Node {
	n := identity.Node{Name: string(r.bytes(int(r.byte("node")), "name"))}
	n.UID = r.uid()
	return r.checked(n)
}

func (r *reader) shards() []Shard {
	n := r.count(MaxShards, 1, "shards")
	if n == 0 {
		return nil
	}
	shards := make([]Shard, n)
	for i := range shards {
		shards[i] = Shard(r.uint(MaxShards-1, "shard")) //nolint:gosec // below MaxShards
	}
	return shards
}
