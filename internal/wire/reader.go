// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire takes encoded messages apart: numbers, lengths and nodes, each with a limit that is checked before
// memory is taken.
//
// An encoding begins with a byte for its version. The high half is the major one: another can't be read. A higher minor
// one may add fields at the end, which are passed over.
package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/refold-io/refold/identity"
)

// Reader takes bytes apart. After the first error it returns zeroes.
type Reader struct {
	b         []byte
	minor     byte
	newer     bool
	malformed error
	err       error
}

// NewReader returns a reader of bytes, at most so many, that begin with a version, and reads that. All its errors match
// malformed.
func NewReader(b []byte, version byte, most int, malformed error) *Reader {
	r := &Reader{b: b, malformed: malformed} // this is inlined, so that it need not be on the heap
	r.begin(version, most)
	return r
}

func (r *Reader) begin(version byte, most int) {
	if n := len(r.b); n > most {
		r.Fail("it has %d bytes, at most %d are allowed", n, most)
	}
	v := r.Byte("version")
	if r.err == nil && v&0xf0 != version&0xf0 {
		r.Fail("version %d.%d is not known", v>>4, v&0xf)
	}
	r.minor, r.newer = v&0xf, v&0xf > version&0xf
}

// Minor returns the minor version of what is read: fields that came with a later one are not there.
func (r *Reader) Minor() byte { return r.minor }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// End returns the first error, and one if bytes are left that no newer version has
// added.
func (r *Reader) End() error {
	if r.err == nil && len(r.b) > 0 && !r.newer {
		r.Fail("%d bytes too many", len(r.b))
	}
	return r.err
}

// Fail sets the error, if there is none.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", r.malformed, fmt.Sprintf(format, args...))
		r.b = nil
	}
}

// Byte reads a byte.
func (r *Reader) Byte(what string) byte {
	if len(r.b) == 0 {
		r.Fail("%s is missing", what)
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// Uint reads a number that is at most most.
func (r *Reader) Uint(most uint64, what string) uint64 {
	v, n := binary.Uvarint(r.b)
	switch {
	case n <= 0:
		r.Fail("%s is missing", what)
		return 0
	case v > most:
		r.Fail("%s is %d, at most %d is allowed", what, v, most)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Count reads how many elements of at least size bytes follow.
func (r *Reader) Count(most, size int, what string) int {
	n := int(r.Uint(uint64(most), what)) //nolint:gosec // at most most
	if n*size > len(r.b) {
		r.Fail("%d %s don't fit into %d bytes", n, what, len(r.b))
		return 0
	}
	return n
}

// Bytes reads n bytes. They are not copied.
func (r *Reader) Bytes(n int, what string) []byte {
	if n > len(r.b) {
		r.Fail("%s is cut short", what)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// UID reads the UID of a node.
func (r *Reader) UID() uint64 {
	b := r.Bytes(8, "UID")
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// Checked returns a node if it can be one.
func (r *Reader) Checked(n identity.Node) identity.Node {
	if r.err != nil {
		return identity.Node{}
	}
	if err := identity.CheckName(n.Name); err != nil {
		r.Fail("node: %v", err)
	} else if n.UID == 0 {
		r.Fail("node %s has no UID", n.Name)
	}
	return n
}

// Node reads what AppendNode has written.
func (r *Reader) Node() identity.Node {
	n := identity.Node{Name: string(r.Bytes(int(r.Byte("node")), "name"))}
	n.UID = r.UID()
	return r.Checked(n)
}

// AppendNode appends a node.
func AppendNode(dst []byte, n identity.Node) []byte {
	dst = append(dst, byte(len(n.Name))) //nolint:gosec // at most identity.MaxNameLength
	dst = append(dst, n.Name...)
	return binary.LittleEndian.AppendUint64(dst, n.UID)
}

// AppendList appends numbers.
func AppendList[T ~uint32](dst []byte, list []T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, v := range list {
		dst = binary.AppendUvarint(dst, uint64(v))
	}
	return dst
}

// List reads what AppendList has written: numbers below the limit, and no more than that many. None is
// nil.
func List[T ~uint32](r *Reader, limit T, what string) []T {
	n := r.Count(int(limit), 1, what)
	if n == 0 {
		return nil
	}
	list := make([]T, n)
	for i := range list {
		list[i] = T(r.Uint(uint64(limit)-1, what))
	}
	return list
}
