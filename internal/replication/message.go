// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
)

// Kind is the kind of a message.
type Kind uint8

// The kinds. The numbers are part of the encoding and never change.
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
	// Kinds is the number of kinds plus one.
	Kinds
)

func (k Kind) String() string {
	return enum.Name(k, "kind", "", "write", "delta", "ack", "read", "read-result", "root", "groups", "buckets", "keys", "uses", "want", "gossip",
		"pull", "chunk", "part")
}

// Message is a message between machines. Byte slices of a decoded message refer to the input.
type Message interface{ kind() Kind }

type (
	// Write requests to merge an entry. It is answered with Ack if Nr is not 0.
	Write struct {
		Nr    uint64
		Entry Entry
	}
	// Delta requests to merge changes. It is answered like Write.
	Delta struct {
		Nr    uint64
		Items []Item
	}
	// Ack is the result of a Write or a Delta.
	Ack struct {
		Nr      uint64
		Verdict Verdict
	}
	// Read requests an entry.
	Read struct {
		Nr  uint64
		Key string
	}
	// ReadResult answers a Read. Entry is nil if the key does not exist.
	ReadResult struct {
		Nr    uint64
		Entry *Entry
	}

	// Root starts a comparison of all data with the root of the digest tree.
	Root struct{ Digest Digest }
	// Groups answers a Root that differs. It contains the digests of the level below the root.
	Groups struct{ Digests [branch]Digest }
	// Buckets answers Groups. It contains the digests of the buckets in the groups that differ.
	Buckets struct{ Groups []Group }
	// Keys answers Buckets. It contains the keys of buckets that differ. More reports that further
	// buckets differ.
	Keys struct {
		Lists []KeyList
		More  bool
	}
	// Uses reports the times of last use of keys.
	Uses struct{ Keys []Use }
	// Want requests entries.
	Want struct{ Keys []string }
	// Gossip contains entries. SendBack requests the entries that differ after the merge.
	Gossip struct {
		SendBack bool
		Entries  []Entry
	}

	// Pull requests the entries of the buckets From (inclusive) to To (exclusive). Of the first
	// bucket, it requests only the keys after After.
	Pull struct {
		Nr       uint64
		From, To uint16
		After    string
	}
	// Chunk answers a Pull. Unless Done is set there are more entries, starting in Bucket after the
	// key After.
	Chunk struct {
		Nr      uint64
		Entries []Entry
		Done    bool
		Bucket  uint16
		After   string
	}

	// Part is part Index of Count of a message that exceeds the maximum size.
	Part struct {
		Nr           uint64
		Index, Count uint64
		Data         []byte
	}
)

// Verdict is the result of a Write or a Delta.
type Verdict uint8

// The verdicts.
const (
	// Merged: the data was merged, and is on disk if the key is durable.
	Merged Verdict = 1 + iota
	// Gap: earlier changes are missing. The sender sends the whole value.
	Gap
	// Refused: the data cannot be merged.
	Refused
	// StoreFault: the data was merged, but not written to disk.
	StoreFault
	// Full: there is no room for another key.
	Full
)

// Entry is a key with its complete state.
type Entry struct {
	Key     string
	Deleted bool
	// Value is the encoded value, empty if Deleted.
	Value []byte
	// Pruning are the markers of removed nodes, sorted by node.
	Pruning []Marker
	// Versions are the numbers up to which the value contains the deltas of each node, sorted by
	// node. Only values with causal deltas have versions.
	Versions []Version
	// Used is the time of last use in Unix milliseconds, 0 if not recorded.
	Used uint64
}

// Marker is the state of pruning a removed node.
type Marker struct {
	Removed identity.Node
	// Performed reports that the history was moved to another node. Until Obsolete (Unix milliseconds), this history must be stripped from all other copies.
	Performed bool
	Obsolete  uint64
	// Owner is the node that will take over the history once all nodes are in Seen, which is
	// sorted.
	Owner identity.Node
	Seen  []identity.Node
}

// Version is a change number of a node.
type Version struct {
	Node identity.Node
	N    uint64
}

// Item is a delta of a key: the changes From to To of the sender.
type Item struct {
	Key      string
	From, To uint64
	Delta    []byte
	// Pruned are the nodes whose history was moved in the sender's value, sorted.
	Pruned []identity.Node

	entry *entry // the entry of the receiver, nil if the key does not exist
}

// Group contains the digests of the buckets of a group.
type Group struct {
	Nr      uint8
	Digests [branch]Digest
}

// KeyList contains the sorted keys of a bucket after After. If Complete is set, it contains all
// keys up to the end of the bucket.
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

// Use is the time of last use of a key.
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
