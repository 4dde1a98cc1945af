// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// Effects are what is to be done after a step, in the order of the fields.
type Effects struct {
	// Notes are for the log and for those who observe.
	Notes []Note
	// Store is to be written to disk, in order; each is answered with Stored. Of
	// several records for one key that wait, the last is enough.
	Store []Store
	// Values are what keys hold now, for those who read without asking the machine. They
	// must be seen before what is sent, which may acknowledge them, and before the replies.
	Values []Change
	// Send is to be sent, in order, at most once. What can't be sent is lost.
	Send []Send
	// Replies answer requests, each of them once.
	Replies []Reply
	// Events are for subscribers, in order.
	Events []Event
	// Stopped says that this was the last step.
	Stopped bool
}

// Store is a record that is to be written to disk.
type Store struct {
	Nr  uint64
	Key string
	// Data is nil if the record is to be deleted.
	Data []byte
}

// Send is a message to a node.
type Send struct {
	To identity.Node
	// Bulk says that it can wait, on a lane for what is large.
	Bulk bool
	Kind Kind
	// Data is the encoded message. It is shared and must not be modified.
	Data []byte
}

// Change is what a key holds now.
type Change struct {
	Key string
	// Value is the zero Value if the key was deleted, or is there no more.
	Value   crdt.Value
	Deleted bool
}

// Outcome is how a request has ended.
type Outcome uint8

// The outcomes.
const (
	// Done: as many replicas as were asked for have taken part.
	Done Outcome = 1 + iota
	// NotFound: none of them has the key.
	NotFound
	// Deleted: the key was deleted, before the request unless that was a Delete.
	Deleted
	// TimedOut: not enough replicas have answered in time. An Update or a Delete has
	// taken place at some of them, and will spread.
	TimedOut
	// TooFew: there are not as many replicas. The same holds.
	TooFew
	// StoreFailed: a durable key could not be written to disk, here or at too many
	// others. The same holds.
	StoreFailed
	// Failed: Err says why. Nothing has changed.
	Failed
	// Busy: too many requests are open. Nothing has changed.
	Busy
	// Stopped: the machine has stopped.
	Stopped
)

func (o Outcome) String() string {
	names := []string{"", "done", "not found", "deleted", "timed out", "too few replicas", "store failed", "failed", "busy", "stopped"}
	if o == 0 || int(o) >= len(names) {
		return fmt.Sprintf("outcome(%d)", uint8(o))
	}
	return names[o]
}

// Reply answers a request.
type Reply struct {
	ID      uint64
	Outcome Outcome
	// Value is what the key holds, after Get and Update that are Done.
	Value crdt.Value
	// Answered is how many replicas have taken part, this one included; Required how
	// many had to, of Total. A node that is Joining or WeaklyUp is not part of a majority.
	Answered, Required, Total int
	// Err says why, of Failed and StoreFailed, and of TimedOut if some have refused.
	Err error
	// Silent are those that were asked and have not answered when the time was up, sorted.
	Silent []identity.Node
}

// EventKind says what became of a key.
type EventKind uint8

// What becomes of keys.
const (
	// Changed: it holds another value.
	Changed EventKind = 1 + iota
	// WasDeleted: it was deleted.
	WasDeleted
	// Expired: it was not used for long and is forgotten.
	Expired
)

// Event tells a subscriber of a change.
type Event struct {
	// Nr is that of the Subscribe.
	Nr   uint64
	Kind EventKind
	Key  string
	// Value is set if it has Changed.
	Value crdt.Value
	// New says that there was no such key when changes were told the last time.
	New bool
}

// NoteKind says what a note is about.
type NoteKind uint8

// The notes.
const (
	// NoteMalformed: a message of Node could not be decoded, see Err.
	NoteMalformed NoteKind = 1 + iota
	// NoteRefused: what Node sent for Key could not be merged, see Err.
	NoteRefused
	// NoteTooLarge: the value of Key has N bytes, which is more than MaxMessage. It is
	// not sent until it is smaller.
	NoteTooLarge
	// NoteStore: the disk has failed, see Err.
	NoteStore
	// NoteLoad: a record of Key could not be loaded, see Err.
	NoteLoad
	// NotePulling: the node is new and gets the data from N others.
	NotePulling
	// NotePulled: it has got N entries, and compares from now on.
	NotePulled
	// NotePruning: Node has left, and what it changed in N keys is about to be moved to
	// this one.
	NotePruning
	// NotePruned: that was done for N keys.
	NotePruned
	// NoteRemoved: the node is no member any more.
	NoteRemoved
	// NoteFull: there is no room for Key, sent by Node.
	NoteFull
)

func (k NoteKind) String() string {
	names := []string{"", "malformed", "refused", "too large", "store", "load", "pulling", "pulled", "pruning", "pruned", "removed", "full"}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("note(%d)", uint8(k))
	}
	return names[k]
}

// Note is something worth knowing.
type Note struct {
	Kind NoteKind
	Node identity.Node
	Key  string
	N    int
	Err  error
}
