// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"encoding/binary"
	"strings"
)

// packedStrings is a list of strings in one block of memory, so that sets of many short elements
// need few allocations, are cheap to scan for the garbage collector, and have good locality in
// searches. The number of strings is stored elsewhere. The block begins with the start offsets of
// all strings except the first, so a single string is stored as it is.
type packedStrings string

// startSize is the size of an offset.
const startSize = 4

func (t packedStrings) at(i, n int) string {
	from, to := startSize*(n-1), len(t)
	if i > 0 {
		from = t.start(i)
	}
	if i+1 < n {
		to = t.start(i + 1)
	}
	return string(t[from:to])
}

func (t packedStrings) start(i int) int {
	b := t[startSize*(i-1):][:startSize]
	return int(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
}

// search returns the index of s among n sorted strings, or where to insert it.
func (t packedStrings) search(s string, n int) (i int, found bool) {
	end := n
	for i < end {
		middle := (i + end) / 2
		switch c := strings.Compare(t.at(middle, n), s); {
		case c == 0:
			return middle, true
		case c < 0:
			i = middle + 1
		default:
			end = middle
		}
	}
	return i, false
}

func (t packedStrings) inserted(i, n int, s string) packedStrings {
	p := newPacker()
	p.addAll(t, 0, i, n)
	p.add(s)
	p.addAll(t, i, n, n)
	return p.pack()
}

func (t packedStrings) deleted(i, n int) packedStrings {
	p := newPacker()
	p.addAll(t, 0, i, n)
	p.addAll(t, i+1, n, n)
	return p.pack()
}

// part returns the strings from (included) to to (excluded) of n.
func (t packedStrings) part(from, to, n int) packedStrings {
	p := newPacker()
	p.addAll(t, from, to, n)
	return p.pack()
}

// packer builds packedStrings of up to fullNode+1 strings.
type packer struct {
	n    int
	ends [fullNode + 1]int
	text []byte
}

// newPacker returns a packer whose buffer stays on the stack for short strings, if the packer does
// not escape.
func newPacker() packer { return packer{text: make([]byte, 0, 384)} }

func (p *packer) add(s string) {
	p.text = append(p.text, s...)
	p.end()
}

// end completes a string whose bytes were appended to text.
func (p *packer) end() {
	p.ends[p.n] = len(p.text)
	p.n++
}

// addAll adds the strings from (included) to to (excluded) of n.
func (p *packer) addAll(t packedStrings, from, to, n int) {
	for i := from; i < to; i++ {
		p.add(t.at(i, n))
	}
}

func (p *packer) pack() packedStrings {
	if p.n < 2 {
		return packedStrings(p.text)
	}
	var b strings.Builder
	head := startSize * (p.n - 1)
	b.Grow(head + len(p.text))
	var start [startSize]byte
	for _, end := range p.ends[:p.n-1] {
		binary.LittleEndian.PutUint32(start[:], uint32(head+end)) //nolint:gosec // at most some elements of MaxElement
		b.Write(start[:])
	}
	b.Write(p.text)
	return packedStrings(b.String())
}
