// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"

	"github.com/refold-io/refold/identity"
)

// Kind is what a message says.
type Kind uint8

// The kinds. The numbers are those of the encoding and never change.
const (
	KindWrite Kind = 1 + iota
	KindDelta
	KindAck
	KindRead
	KindReadResult
	KindRoot
	KindGroups
	KindBuckets
	KindKeys
	KindUses
	KindWant
	KindGossip
	KindPull
	KindChunk
	KindPart
	// Kinds is one more than the last.
	Kinds
)

func (k Kind) String() string {
	names := []string{
		"", "write", "delta", "ack", "read", "read-result", "root", "groups", "buckets", "keys", "uses", "want", "gossip", "pull", "chunk", "part",
	}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return names[k]
}

// Message is what one machine says to another. Byte slices in a decoded one refer
// to what it was decoded from.
type Message interface{ kind() Kind }

type (
	// Write asks to merge an entry. It is answered with Ack if it has a number.
	Write struct {
		Nr    uint64
		Entry Entry
	}
	// Delta asks to merge changes. It is answered as Write.
	Delta struct {
		Nr    uint64
		Items []Item
	}
	// Ack says what became of a Write or a Delta.
	Ack struct {
		Nr      uint64
		Verdict Verdict
	}
	// Read asks for an entry.
	Read struct {
		Nr  uint64
		Key string
	}
	// ReadResult answers it. Entry is nil if there is none.
	ReadResult struct {
		Nr    uint64
		Entry *Entry
	}

	// Root begins to compare all data: the root of the digest tree.
	Root struct{ Digest Digest }
	// Groups answers with what is below the root, if that differs.
	Groups struct{ Digests [branch]Digest }
	// Buckets answers with what is below the groups that differ.
	Buckets struct{ Groups []Group }
	// Keys answers with the keys of buckets that differ. More says that there are
	// more of those.
	Keys struct {
		Lists []KeyList
		More  bool
	}
	// Uses says when keys were last used.
	Uses struct{ Keys []Use }
	// Want asks for some entries.
	Want struct{ Keys []string }
	// Gossip tells entries. SendBack asks for those that are another after they were
	// merged.
	Gossip struct {
		SendBack bool
		Entries  []Entry
	}

	// Pull asks for the entries of buckets From up to To, without the latter, and in the
	// first bucket only for keys behind After.
	Pull struct {
		Nr       uint64
		From, To uint16
		After    string
	}
	// Chunk answers it. Unless it is Done there is more, from Bucket on, there behind
	// After.
	Chunk struct {
		Nr      uint64
		Entries []Entry
		Done    bool
		Bucket  uint16
		After   string
	}

	// Part is a part of a message that is larger than one may be: that with the Index, of
	// Count.
	Part struct {
		Nr           uint64
		Index, Count uint64
		Data         []byte
	}
)

// Verdict is what became of a Write or a Delta.
type Verdict uint8

// The verdicts.
const (
	// Merged: it was, and is on disk if it has to be.
	Merged Verdict = 1 + iota
	// Gap: something is missing before the delta. The whole value will do.
	Gap
	// Refused: it can't be merged.
	Refused
	// StoreFault: it was merged, but not written to disk.
	StoreFault
	// Full: there is no room for another key.
	Full
)

// Entry is a key with all that is known of it.
type Entry struct {
	Key     string
	Deleted bool
	// Value is the encoded value, empty if Deleted.
	Value []byte
	// Pruning says what became of nodes that have left, sorted by node.
	Pruning []Marker
	// Versions says up to which number the deltas of nodes are in the value, sorted by
	// node. Only values whose deltas are causal have it.
	Versions []Version
	// Used is when the key was last used, in Unix milliseconds, 0 if nobody cares.
	Used uint64
}

// Marker says what became of the history of a node that has left.
type Marker struct {
	Removed identity.Node
	// Performed says that it was moved to another node, and must be stripped from
	// whatever still has it, until Obsolete, in Unix milliseconds.
	Performed bool
	Obsolete  uint64
	// Owner is who is going to move it to itself, once all have Seen that. Seen is
	// sorted.
	Owner identity.Node
	Seen  []identity.Node
}

// Version is a number of a node.
type Version struct {
	Node identity.Node
	N    uint64
}

// Item is a delta of a key: the changes From up to To of the sender.
type Item struct {
	Key      string
	From, To uint64
	Delta    []byte
	// Pruned are the nodes whose history was moved in the sender's value, sorted.
	Pruned []identity.Node

	entry *entry // of the key at the receiver, nil if there is none
}

// Group is the digests of the buckets of a group.
type Group struct {
	Nr      uint8
	Digests [branch]Digest
}

// KeyList is the keys of a bucket, in order: all behind After, up to the end of the
// bucket if it is Complete.
type KeyList struct {
	Bucket   uint16
	After    string
	Complete bool
	Keys     []KeyDigest
}

// KeyDigest is the digest of an entry without Versions and Used.
type KeyDigest struct {
	Key    string
	Digest Digest
	Used   uint64
}

// Use says when a key was used.
type Use struct {
	Key  string
	Used uint64
}

func (Write) kind() Kind      { return KindWrite }
func (Delta) kind() Kind      { return KindDelta }
func (Ack) kind() Kind        { return KindAck }
func (Read) kind() Kind       { return KindRead }
func (ReadResult) kind() Kind { return KindReadResult }
func (Root) kind() Kind       { return KindRoot }
func (Groups) kind() Kind     { return KindGroups }
func (Buckets) kind() Kind    { return KindBuckets }
func (Keys) kind() Kind       { return KindKeys }
func (Uses) kind() Kind       { return KindUses }
func (Want) kind() Kind       { return KindWant }
func (Gossip) kind() Kind     { return KindGossip }
func (Pull) kind() Kind       { return KindPull }
func (Chunk) kind() Kind      { return KindChunk }
func (Part) kind() Kind       { return KindPart }
