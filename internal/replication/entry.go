// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// entry is a key that the machine holds.
type entry struct {
	key     string
	bucket  uint16
	deleted bool
	durable bool
	gone    bool // it is forgotten
	kept    bool // it is to be stored at the end of the step
	large   bool // it was changed, and is too large to be sent without being asked for
	failed  bool // it is to be stored again, as that has failed
	causal  bool // deltas of the value are causal

	dirty    int           // its place in Machine.dirty, counted from one, 0 if it is in the digest tree
	value    crdt.Value    // the zero Value if it is deleted
	size     int           // at least what the encoded value has, 0 if nobody knows
	used     uint64        // in Unix milliseconds, 0 if nobody cares
	version  uint64        // of the last change by this node
	pos      uint64        // of that in the log
	record   uint64        // the number of the last record of it that is on its way to the disk, 0 if there is none
	heard    uint64        // the last message that said something of it
	told     time.Duration // when it was last changed by something that all others are told of, 0 if never
	digest   Digest        // valid if it is in the digest tree
	leaf     sum           // what it has added to the tree, when it was there
	versions []Version     // what the value holds of the changes of others
	pruning  []Marker
}

// marker returns what became of a node that has left, nil if nothing.
func (e *entry) marker(removed identity.Node) *Marker {
	i, found := findMarker(e.pruning, removed)
	if !found {
		return nil
	}
	return &e.pruning[i]
}

func findMarker(markers []Marker, removed identity.Node) (int, bool) {
	return slices.BinarySearchFunc(markers, removed, func(k Marker, n identity.Node) int { return k.Removed.Compare(n) })
}

// pruned returns the nodes whose history was moved.
func (e *entry) pruned() []identity.Node {
	var nodes []identity.Node
	for i := range e.pruning {
		if e.pruning[i].Performed {
			nodes = append(nodes, e.pruning[i].Removed)
		}
	}
	return nodes
}

// have returns up to which number the changes of a node are in the value.
func (e *entry) have(n identity.Node) uint64 {
	if i, found := findVersion(e.versions, n); found {
		return e.versions[i].N
	}
	return 0
}

func findVersion(versions []Version, n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(versions, n, func(v Version, n identity.Node) int { return v.Node.Compare(n) })
}

// raise says that the changes of a node are in the value up to a number.
func (e *entry) raise(n identity.Node, to uint64) {
	i, found := findVersion(e.versions, n)
	switch {
	case !found:
		e.versions = slices.Insert(e.versions, i, Version{n, to})
	case e.versions[i].N < to:
		e.versions[i].N = to
	}
}

// dropVersions forgets the numbers of nodes that have left.
func (e *entry) dropVersions() {
	if len(e.pruning) > 0 {
		e.versions = slices.DeleteFunc(e.versions, func(v Version) bool { return e.marker(v.Node) != nil })
	}
}

// cleaned strips the history of nodes that was moved.
func cleaned(v crdt.Value, markers []Marker) (crdt.Value, error) {
	for i := range markers {
		if !markers[i].Performed || !v.NeedsPruning(markers[i].Removed) {
			continue
		}
		next, err := v.Cleanup(markers[i].Removed)
		if err != nil {
			return v, err
		}
		v = next
	}
	return v, nil
}

// sameMarkers reports whether two lists are the same.
func sameMarkers(a, b []Marker) bool {
	return slices.EqualFunc(a, b, func(a, b Marker) bool {
		return a.Removed == b.Removed && a.Performed == b.Performed && a.Obsolete == b.Obsolete && a.Owner == b.Owner && slices.Equal(a.Seen, b.Seen)
	})
}

// mergeMarkers merges what two sides know of nodes that have left. Those that are
// obsolete are left out; alive tells who is a member.
func mergeMarkers(a, b []Marker, wall uint64, alive func(identity.Node) bool) []Marker {
	if len(a)+len(b) == 0 {
		return nil
	}
	var merged []Marker
	add := func(k Marker) {
		if !k.Performed || k.Obsolete > wall {
			merged = append(merged, k)
		}
	}
	for len(a) > 0 && len(b) > 0 {
		switch c := a[0].Removed.Compare(b[0].Removed); {
		case c < 0:
			add(a[0])
			a = a[1:]
		case c > 0:
			add(b[0])
			b = b[1:]
		default:
			add(mergeMarker(a[0], b[0], alive))
			a, b = a[1:], b[1:]
		}
	}
	for _, k := range slices.Concat(a, b) {
		add(k)
	}
	return merged
}

func mergeMarker(a, b Marker, alive func(identity.Node) bool) Marker {
	switch {
	case a.Performed && b.Performed:
		a.Obsolete = max(a.Obsolete, b.Obsolete)
		return a
	case a.Performed:
		return a
	case b.Performed:
		return b
	case a.Owner == b.Owner:
		a.Seen = union(a.Seen, b.Seen)
		return a
	}
	// An owner that has left itself will not do it.
	if x, y := alive(a.Owner), alive(b.Owner); x != y && y || x == y && b.Owner.Compare(a.Owner) < 0 {
		return b
	}
	return a
}

func union(a, b []identity.Node) []identity.Node {
	all := slices.Concat(a, b)
	slices.SortFunc(all, identity.Node.Compare)
	return slices.Compact(all)
}

// insertNode returns a sorted list with a node. The list itself stays as it is.
func insertNode(nodes []identity.Node, n identity.Node) []identity.Node {
	i, found := slices.BinarySearchFunc(nodes, n, identity.Node.Compare)
	if found {
		return nodes
	}
	return slices.Insert(slices.Clone(nodes), i, n)
}

// Record is an entry as it is on disk. Value refers to what it was decoded from.
type Record struct {
	Deleted bool
	// Value is the encoded value.
	Value []byte
	// Pruning are the markers of what was done.
	Pruning []Marker
	// Used is when the key was last used, in Unix milliseconds, 0 if nobody cares.
	Used uint64
}

// recordVersion is the first byte of each record. Another can't be read.
const recordVersion = 1

// AppendRecord appends an encoded record.
func AppendRecord(dst []byte, r Record) []byte {
	var w writer
	w.bool(r.Deleted)
	if !r.Deleted {
		w.text(r.Value)
		w.markers(r.Pruning)
	}
	if r.Used > 0 { // records were without it once
		w.uint(r.Used)
	}
	return w.finish(dst, recordVersion)
}

// DecodeRecord decodes what AppendRecord has written. The error matches
// ErrMalformed.
func DecodeRecord(b []byte) (Record, error) {
	r := &reader{b: b}
	if len(b) > MaxMessage+overhead {
		r.fail("a record of %d bytes", len(b))
	}
	if version := r.byte(255, "version"); r.err == nil && version != recordVersion {
		r.fail("a record of version %d, known is %d", version, recordVersion)
	}
	r.table()
	rec := Record{Deleted: r.bool("deleted")}
	if !rec.Deleted {
		rec.Value, rec.Pruning = r.text("value"), r.markers()
	}
	if len(r.b) > 0 {
		if rec.Used = r.number("time"); r.err == nil && rec.Used == 0 {
			r.fail("a time of use that is 0")
		}
	}
	if len(r.b) > 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	if r.err != nil {
		return Record{}, r.err
	}
	return rec, nil
}
