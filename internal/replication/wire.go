// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/refold-io/refold/identity"
)

// Limits of what is decoded.
const (
	// MaxMessage is the largest number of bytes that a message ever has.
	MaxMessage = 16 << 20
	// MaxNodes is the largest number of nodes that a message names.
	MaxNodes = 10_000

	maxNumber = 1 << 62
	// overhead is what a message has at most beyond the value, for one entry of a
	// usual kind.
	overhead = 4 << 10
)

// reader takes bytes apart. After the first error it returns zeroes.
type reader struct {
	b       []byte
	version byte
	nodes   []identity.Node
	known   map[string]*entry // keys that need not be looked at again
	err     error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
		r.b = nil
	}
}

// uint reads a number that is at most most.
func (r *reader) uint(most uint64, what string) uint64 {
	v, n := binary.Uvarint(r.b)
	switch {
	case n <= 0:
		r.fail("%s is missing", what)
		return 0
	case n > 1 && r.b[n-1] == 0:
		r.fail("%s is longer than it need be", what)
		return 0
	case v > most:
		r.fail("%s is %d, at most %d is allowed", what, v, most)
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) number(what string) uint64 { return r.uint(maxNumber, what) }

// count reads how many elements of at least size bytes follow.
func (r *reader) count(size int, what string) int {
	n := r.uint(MaxMessage, what)
	if int(n)*size > len(r.b) { //nolint:gosec // at most MaxMessage
		r.fail("%d %s don't fit into %d bytes", n, what, len(r.b))
		return 0
	}
	return int(n) //nolint:gosec // at most MaxMessage
}

func (r *reader) byte(most byte, what string) byte {
	switch {
	case len(r.b) == 0:
		r.fail("%s is missing", what)
		return 0
	case r.b[0] > most:
		r.fail("%s is %d, at most %d is allowed", what, r.b[0], most)
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bool(what string) bool { return r.byte(1, what) == 1 }

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
func (r *reader) text(what string) []byte { return r.bytes(r.count(1, what), what) }

func (r *reader) key() string {
	b := r.text("key")
	if r.err != nil {
		return ""
	}
	if e := r.known[string(b)]; e != nil {
		return e.key
	}
	key := string(b[:min(len(b), MaxKey+1)])
	if err := CheckKey(key); err != nil {
		r.fail("%v", err)
		return ""
	}
	return key
}

// mark reads a key that may be empty: a place between keys.
func (r *reader) mark() string {
	if len(r.b) > 0 && r.b[0] == 0 {
		r.b = r.b[1:]
		return ""
	}
	return r.key()
}

func (r *reader) digest() (d Digest) {
	copy(d[:], r.bytes(len(d), "digest"))
	return d
}

// table reads the nodes that a message names.
func (r *reader) table() {
	n := r.count(10, "nodes")
	if n > MaxNodes {
		r.fail("%d nodes, at most %d are allowed", n, MaxNodes)
		return
	}
	for range n {
		name, uid := r.text("name"), r.bytes(8, "UID")
		if r.err != nil {
			return
		}
		if len(name) > identity.MaxNameLength {
			r.fail("a name has %d bytes", len(name))
			return
		}
		node := identity.Node{Name: string(name), UID: binary.LittleEndian.Uint64(uid)}
		if err := identity.CheckName(node.Name); err != nil || node.UID == 0 {
			r.fail("%v is no node", node)
			return
		}
		r.nodes = append(r.nodes, node)
	}
}

func (r *reader) node() identity.Node {
	i := r.uint(MaxNodes, "node")
	if r.err == nil && i >= uint64(len(r.nodes)) {
		r.fail("node %d of %d", i, len(r.nodes))
	}
	if r.err != nil {
		return identity.Node{}
	}
	return r.nodes[i]
}

// sortedNodes reads nodes that are in order.
func (r *reader) sortedNodes(what string) []identity.Node {
	n := r.count(1, what)
	if n == 0 {
		return nil
	}
	nodes := make([]identity.Node, 0, min(n, len(r.nodes)))
	for range n {
		node := r.node()
		if len(nodes) > 0 && nodes[len(nodes)-1].Compare(node) >= 0 {
			r.fail("%s are not in order", what)
		}
		if r.err != nil {
			return nil
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// writer puts bytes together. Nodes are written once, in a table before all else.
type writer struct {
	b     []byte
	nodes []identity.Node
	index map[identity.Node]uint64
}

func (w *writer) uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

func (w *writer) count(n int) { w.uint(uint64(n)) } //nolint:gosec // not negative

func (w *writer) bool(v bool) {
	if v {
		w.b = append(w.b, 1)
		return
	}
	w.b = append(w.b, 0)
}

func (w *writer) text(b []byte) {
	w.count(len(b))
	w.b = append(w.b, b...)
}

func (w *writer) key(key string) {
	w.count(len(key))
	w.b = append(w.b, key...)
}

func (w *writer) digest(d Digest) { w.b = append(w.b, d[:]...) }

func (w *writer) node(n identity.Node) {
	i, found := w.index[n]
	if !found {
		if w.index == nil {
			w.index = map[identity.Node]uint64{}
		}
		i = uint64(len(w.nodes))
		w.index[n] = i
		w.nodes = append(w.nodes, n)
	}
	w.uint(i)
}

func (w *writer) sortedNodes(nodes []identity.Node) {
	w.count(len(nodes))
	for _, n := range nodes {
		w.node(n)
	}
}

// finish appends a head, the table and what was written.
func (w *writer) finish(dst []byte, head ...byte) []byte {
	size := len(head) + binary.MaxVarintLen32 + len(w.b)
	for _, n := range w.nodes {
		size += binary.MaxVarintLen32 + len(n.Name) + 8
	}
	dst = append(slices.Grow(dst, size), head...)
	dst = binary.AppendUvarint(dst, uint64(len(w.nodes)))
	for _, n := range w.nodes {
		dst = binary.AppendUvarint(dst, uint64(len(n.Name)))
		dst = append(dst, n.Name...)
		dst = binary.LittleEndian.AppendUint64(dst, n.UID)
	}
	return append(dst, w.b...)
}
