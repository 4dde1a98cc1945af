// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/refold-io/refold/identity"
)

// ErrMalformed is matched by the errors about bytes that are no message.
var ErrMalformed = errors.New("membership: malformed message")

// Limits of what is decoded.
const (
	// MaxMessage is the largest number of bytes of a message.
	MaxMessage = 1 << 20
	// MaxMembers is the largest number of members of a cluster.
	MaxMembers = 10_000

	maxTombstones = 100_000
	maxExtensions = 64
	maxSettings   = 256
	maxSetting    = 1024
	maxProfiles   = MaxMembers
)

// reader takes bytes apart. After the first error it returns zeroes.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
		r.b = nil
	}
}

// uint reads a number that is at most most.
func (r *reader) uint(most uint64, what string) uint64 {
	if len(r.b) > 0 && r.b[0] < 1<<7 && uint64(r.b[0]) <= most { // nearly all are small
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
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

func (r *reader) byte(what string) byte {
	if len(r.b) == 0 {
		r.fail("%s is missing", what)
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// bytes reads n bytes. They are not copied.
func (r *reader) bytes(n int, what string) []byte {
	if n > len(r.b) {
		r.fail("%s is cut short", what)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// text reads a length and as many bytes. They are not copied.
func (r *reader) text(most int, what string) []byte {
	return r.bytes(r.count(most, 1, what), what)
}

func (r *reader) uint64(what string) uint64 {
	if b := r.bytes(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) digest(what string) (d Digest) {
	copy(d[:], r.bytes(len(d), what))
	return d
}

func (r *reader) bitmap(n int, what string) bitmap {
	size := r.count((n+7)/8, 1, what)
	var set bitmap
	for i, b := range r.bytes(size, what) {
		if b == 0 {
			continue
		}
		if set == nil {
			set = newBitmap(n)
		}
		set[i/8] |= uint64(b) << (i % 8 * 8)
	}
	if n%64 != 0 && len(set) > 0 && set[len(set)-1]>>(n%64) != 0 {
		r.fail("%s names more than %d members", what, n)
		return nil
	}
	return set
}

// encodeBitmap encodes a set without the empty bytes at its end.
func encodeBitmap(set bitmap) []byte {
	size := 0
	for i, word := range set {
		if word != 0 {
			size = i*8 + (bits.Len64(word)+7)/8
		}
	}
	dst := binary.AppendUvarint(make([]byte, 0, size+binary.MaxVarintLen32), uint64(size))
	for i := range size {
		dst = append(dst, byte(set[i/8]>>(i%8*8)&0xff))
	}
	return dst
}

func appendText[T string | []byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// nodeWriter writes nodes that are sorted. What a name has in common with the one
// before, at its beginning and at its end, is left out.
type nodeWriter struct{ last string }

func (w *nodeWriter) append(dst []byte, n identity.Node) []byte {
	head, tail := 0, 0
	short := min(len(n.Name), len(w.last))
	for head < short && n.Name[head] == w.last[head] {
		head++
	}
	for tail < short-head && n.Name[len(n.Name)-1-tail] == w.last[len(w.last)-1-tail] {
		tail++
	}
	w.last = n.Name
	dst = append(dst, byte(head), byte(tail))
	dst = appendText(dst, n.Name[head:len(n.Name)-tail])
	return binary.LittleEndian.AppendUint64(dst, n.UID)
}

// nodeSize is the least that nodeWriter writes.
const nodeSize = 2 + 1 + 8

// nodeReader reads what nodeWriter wrote. The name stands in a buffer until the
// next call.
type nodeReader struct {
	name, last []byte
	uid        uint64
	some       bool
}

func (w *nodeReader) next(r *reader) bool {
	head, tail := int(r.byte("node")), int(r.byte("node"))
	middle := r.text(identity.MaxNameLength, "name")
	uid := r.uint64("UID")
	if head+tail > len(w.name) || head+tail+len(middle) > identity.MaxNameLength {
		r.fail("a name goes on where none was")
	}
	if r.err != nil {
		return false
	}
	if w.last == nil {
		both := make([]byte, 2*identity.MaxNameLength)
		w.last, w.name = both[:0:identity.MaxNameLength], both[identity.MaxNameLength:identity.MaxNameLength]
	}
	w.last, w.name = w.name, append(append(append(w.last[:0], w.name[:head]...), middle...), w.name[len(w.name)-tail:]...)
	before := w.uid
	w.uid = uid
	switch c := bytes.Compare(w.last[head:], w.name[head:]); {
	case len(w.name) == 0 || uid == 0:
		r.fail("a node is nobody")
	case w.some && (c > 0 || c == 0 && before >= uid):
		r.fail("nodes are not in order")
	case c != 0:
		if err := checkName(w.name, head, tail); err != nil {
			r.fail("%v", err)
		}
	}
	w.some = true
	return r.err == nil
}

func (w *nodeReader) node() identity.Node { return identity.Node{Name: string(w.name), UID: w.uid} }

// checkName checks what is new in a name.
func checkName(name []byte, head, tail int) error {
	for _, c := range name[head : len(name)-tail] {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.', c == ':':
		default:
			return identity.CheckName(string(name))
		}
	}
	return nil
}
