// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire encodes and decodes the fields of messages: numbers, byte strings, lists and nodes.
// A decoder checks each length against a limit before it allocates memory.
//
// An encoding begins with a version byte. Its high half is the major version; another major version
// cannot be decoded. Its low half is the minor version; a higher minor version may append fields,
// which are skipped.
package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/refold-io/refold/identity"
)

// Reader decodes fields. After the first error its methods return zero values.
type Reader struct {
	b         []byte
	minor     byte
	newer     bool
	malformed error
	err       error
}

// NewReader returns a reader of an encoding and reads the version byte. An encoding of more than most bytes is an error. All errors of the reader match malformed.
func NewReader(b []byte, version byte, most int, malformed error) *Reader {
	r := &Reader{b: b, malformed: malformed} // inlined into the caller, which keeps it off the heap
	r.begin(version, most)
	return r
}

// NewFields returns a reader of fields without a version byte. All errors of the reader match
// malformed.
func NewFields(b []byte, malformed error) *Reader { return &Reader{b: b, malformed: malformed} }

func (r *Reader) begin(version byte, most int) {
	if n := len(r.b); n > most {
		r.Fail("%d bytes, limit %d", n, most)
	}
	v := r.Byte("version")
	if r.err == nil && v&0xf0 != version&0xf0 {
		r.Fail("unknown version %d.%d", v>>4, v&0xf)
	}
	r.minor, r.newer = v&0xf, v&0xf > version&0xf
}

// Minor returns the minor version of the encoding. Fields of later minor versions are absent.
func (r *Reader) Minor() byte { return r.minor }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Left returns the number of bytes that were not read.
func (r *Reader) Left() int { return len(r.b) }

// End returns the first error. Bytes that are left are an error, unless the encoding has a higher
// minor version than the reader.
func (r *Reader) End() error {
	if r.err == nil && len(r.b) > 0 && !r.newer {
		r.Fail("%d trailing bytes", len(r.b))
	}
	return r.err
}

// Fail sets an error that matches the error malformed of NewReader, if no error was set before.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.SetErr(fmt.Errorf("%w: %s", r.malformed, fmt.Sprintf(format, args...)))
	}
}

// SetErr sets the error, if no error was set before.
func (r *Reader) SetErr(err error) {
	if r.err == nil {
		r.err, r.b = err, nil
	}
}

// Byte reads a byte.
func (r *Reader) Byte(subject string) byte {
	if len(r.b) == 0 {
		r.Fail("%s is missing", subject)
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// Uint reads a number between 0 and most.
func (r *Reader) Uint(most uint64, subject string) uint64 {
	if len(r.b) > 0 && r.b[0] < 1<<7 && uint64(r.b[0]) <= most { // most numbers are small
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.b)
	switch {
	case n <= 0:
		r.Fail("%s is missing", subject)
		return 0
	case n > 1 && r.b[n-1] == 0:
		r.Fail("%s is not in its shortest form", subject)
		return 0
	case v > most:
		r.Fail("%s is %d, limit %d", subject, v, most)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Int reads a signed number.
func (r *Reader) Int(subject string) int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.Fail("%s is missing", subject)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Count reads the number of the elements that follow. The number is at most most, and each element
// has at least size bytes.
func (r *Reader) Count(most, size int, subject string) int {
	n := int(r.Uint(uint64(most), subject)) //nolint:gosec // at most most
	if n*size > len(r.b) {
		r.Fail("%d %s exceed the remaining %d bytes", n, subject, len(r.b))
		return 0
	}
	return n
}

// Bytes reads n bytes. The result refers to the reader's input.
func (r *Reader) Bytes(n int, subject string) []byte {
	if n > len(r.b) {
		r.Fail("%s is truncated", subject)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// Text reads a length, which is at most most, and then that number of bytes. The result refers to
// the reader's input.
func (r *Reader) Text(most int, subject string) []byte {
	return r.Bytes(r.Count(most, 1, subject), subject)
}

// Rest returns the bytes that were not read yet.
func (r *Reader) Rest() []byte { return r.b }

// UID reads the UID of a node.
func (r *Reader) UID() uint64 {
	b := r.Bytes(8, "UID")
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// Checked returns a node if it is valid.
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

// Node reads the encoding of AppendNode.
func (r *Reader) Node() identity.Node { return r.NodeLike(identity.Node{}) }

// NodeLike is Node without an allocation if the result is the expected node.
func (r *Reader) NodeLike(expected identity.Node) identity.Node {
	name := r.Bytes(int(r.Byte("node")), "name")
	n := identity.Node{Name: expected.Name}
	if string(name) != expected.Name {
		n.Name = string(name)
	}
	n.UID = r.UID()
	return r.Checked(n)
}

// AppendNode appends a node.
func AppendNode(dst []byte, n identity.Node) []byte {
	dst = append(dst, byte(len(n.Name))) //nolint:gosec // at most identity.MaxNameLength
	dst = append(dst, n.Name...)
	return binary.LittleEndian.AppendUint64(dst, n.UID)
}

// AppendList appends the length of a list and its numbers.
func AppendList[T ~uint32](dst []byte, list []T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, v := range list {
		dst = binary.AppendUvarint(dst, uint64(v))
	}
	return dst
}

// List reads the encoding of AppendList: at most limit numbers, each below limit. An empty list is
// nil.
func List[T ~uint32](r *Reader, limit T, subject string) []T {
	n := r.Count(int(limit), 1, subject)
	if n == 0 {
		return nil
	}
	list := make([]T, n)
	for i := range list {
		list[i] = T(r.Uint(uint64(limit)-1, subject))
	}
	return list
}
