// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
)

type entry struct {
	key         string
	bucket      uint16
	deleted     bool
	durable     bool
	removed     bool // removed from the machine
	storeQueued bool // stored at the end of the step
	large       bool // changed and too large to send unrequested
	storeFailed bool // the last write failed, and the entry is stored again
	causal      bool // deltas of the value are causal
	nearMax     bool // NoteLarge was sent

	dirty       int           // index in Machine.dirty plus one, 0 if the digest tree contains the entry
	value       crdt.Value    // the zero Value if deleted
	size        int           // lower bound of the size of the encoded value, 0 if unknown
	used        uint64        // time of last use in Unix milliseconds, 0 if not recorded
	version     uint64        // number of the last change by this node
	pos         uint64        // position of that change in the delta log
	record      uint64        // number of the last pending record, 0 if there is none
	lastMessage uint64        // number of the last message that contained the key
	changedAt   time.Duration // time of the last change that is also sent to other nodes, 0 if none
	digest      Digest        // valid if the digest tree contains the entry
	leaf        sum           // the part of the digest tree
	versions    []Version     // changes of other nodes that the value contains
	pruning     []Marker
}

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

func (e *entry) pruned() []identity.Node {
	var nodes []identity.Node
	for i := range e.pruning {
		if e.pruning[i].Performed {
			nodes = append(nodes, e.pruning[i].Removed)
		}
	}
	return nodes
}

// versionOf returns the number of the last change of a node in the value.
func (e *entry) versionOf(n identity.Node) uint64 {
	if i, found := findVersion(e.versions, n); found {
		return e.versions[i].N
	}
	return 0
}

func findVersion(versions []Version, n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(versions, n, func(v Version, n identity.Node) int { return v.Node.Compare(n) })
}

// raiseVersion records that the value contains the changes of a node up to a number.
func (e *entry) raiseVersion(n identity.Node, to uint64) {
	i, found := findVersion(e.versions, n)
	if !found {
		e.versions = slices.Insert(e.versions, i, Version{n, to})
	} else if e.versions[i].N < to {
		e.versions[i].N = to
	}
}

func (e *entry) dropVersions() {
	if len(e.pruning) > 0 {
		e.versions = slices.DeleteFunc(e.versions, func(v Version) bool { return e.marker(v.Node) != nil })
	}
}

// cleanUp strips the history of nodes whose history was moved elsewhere.
func cleanUp(v crdt.Value, markers []Marker) (crdt.Value, error) {
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

func (k Marker) equal(o Marker) bool {
	return k.Removed == o.Removed && k.Performed == o.Performed && k.Obsolete == o.Obsolete && k.Owner == o.Owner && slices.Equal(k.Seen, o.Seen)
}

// mergeMarkers merges the markers of two replicas and drops obsolete ones. alive reports whether a
// node is a member.
func mergeMarkers(a, b []Marker, wall uint64, alive func(identity.Node) bool) []Marker {
	merged := slices.Concat(a, b)
	slices.SortStableFunc(merged, func(a, b Marker) int { return a.Removed.Compare(b.Removed) })
	for i := len(merged) - 1; i > 0; i-- {
		if merged[i-1].Removed == merged[i].Removed {
			merged[i-1] = mergeMarker(merged[i-1], merged[i], alive)
			merged = slices.Delete(merged, i, i+1)
		}
	}
	return slices.DeleteFunc(merged, func(k Marker) bool { return k.Performed && k.Obsolete <= wall })
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
		seen := slices.Concat(a.Seen, b.Seen)
		slices.SortFunc(seen, identity.Node.Compare)
		a.Seen = slices.Compact(seen)
		return a
	}
	// An owner that was removed from the cluster will not perform the pruning.
	if x, y := alive(a.Owner), alive(b.Owner); x != y && y || x == y && b.Owner.Compare(a.Owner) < 0 {
		return b
	}
	return a
}

// insertNode returns a sorted list with a node added. It does not modify the list.
func insertNode(nodes []identity.Node, n identity.Node) []identity.Node {
	i, found := slices.BinarySearchFunc(nodes, n, identity.Node.Compare)
	if found {
		return nodes
	}
	return slices.Insert(slices.Clone(nodes), i, n)
}

// Record is the form of an entry on disk. A decoded Value shares memory with the input.
type Record struct {
	Deleted bool
	// Value is the encoded value.
	Value []byte
	// Pruning are the markers of performed prunings.
	Pruning []Marker
	// Used is the time of last use in Unix milliseconds, 0 if not recorded.
	Used uint64
}

// recordVersion is the first byte of each record. Other versions cannot be decoded.
const recordVersion = 1

// AppendRecord appends an encoded record.
func AppendRecord(dst []byte, r Record) []byte {
	var w writer
	w.bool(r.Deleted)
	if !r.Deleted {
		w.text(r.Value)
		w.markers(r.Pruning)
	}
	if r.Used > 0 { // optional field
		w.uint(r.Used)
	}
	return w.finish(dst, recordVersion)
}

// DecodeRecord decodes the output of AppendRecord. The error matches ErrMalformed.
func DecodeRecord(b []byte) (Record, error) {
	if len(b) > 0 && b[0] != recordVersion {
		return Record{}, fmt.Errorf("%w: unknown record version %d, want %d", ErrMalformed, b[0], recordVersion)
	}
	r := &reader{Reader: *wire.NewReader(b, recordVersion, MaxMessage+overhead, ErrMalformed)}
	r.nodeTable()
	rec := Record{Deleted: r.bool("deleted")}
	if !rec.Deleted {
		rec.Value, rec.Pruning = r.text("value"), r.markers()
	}
	if r.Left() > 0 {
		if rec.Used = r.number("time"); rec.Used == 0 {
			r.Fail("time of use is 0")
		}
	}
	if err := r.End(); err != nil {
		return Record{}, err
	}
	return rec, nil
}
