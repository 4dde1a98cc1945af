// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"fmt"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
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

// Input is what a machine is told.
type Input interface{ input() }

type (
	// Members says who is in the cluster. All is sorted by node and holds the
	// node itself once it is a member; Unreachable are those that somebody can't
	// reach.
	Members struct {
		All         []membership.Member
		Unreachable []identity.Node
	}
	// Received is a message. From is who the transport says that it is from, and it
	// was sent to this incarnation. Data must not be modified afterwards.
	Received struct {
		From identity.Node
		Data []byte
	}
	// Get reads a key.
	Get struct {
		Request
		// RepairPeers makes sure that as many replicas as were read hold what was
		// read, before it is answered.
		RepairPeers bool
	}
	// Update changes a key. Modify is called at most once, with the current value, or
	// the zero Value where there is none. It must not keep time or wait; an error
	// or a panic changes nothing. What it returns is merged into the current value.
	Update struct {
		Request
		Modify func(current crdt.Value) (crdt.Value, error)
	}
	// Delete deletes a key for ever.
	Delete struct{ Request }
	// Subscribe begins to report changes of a key, or of all keys with a prefix if
	// Prefix is set. The number is the shell's choice, and not in use.
	Subscribe struct {
		Nr     uint64
		Key    string
		Prefix bool
	}
	// Unsubscribe ends that.
	Unsubscribe struct{ Nr uint64 }
	// Flush reports changes now, and sends what the others don't have yet.
	Flush struct{}
	// Touch says that keys were read past the machine.
	Touch struct{ Keys []string }
	// Load is a record from the disk. All of them come before Loaded, and nothing but
	// Members must come before that.
	Load struct {
		Key  string
		Data []byte
	}
	// Loaded says that all records were loaded. Machines with durable keys do nothing
	// before.
	Loaded struct{}
	// Stored says what became of some Store.
	Stored struct {
		Nrs []uint64
		// Err is nil if they are on disk.
		Err error
	}
	// SetClock says what time it is on the wall: when the clock was set, and now
	// and then.
	SetClock struct{ Time time.Time }
	// Stop ends the machine: open requests are answered.
	Stop struct{}
)

// Request is what all requests have in common.
type Request struct {
	// ID is the shell's choice, and not in use.
	ID  uint64
	Key string
	// Level is how many replicas take part.
	Level Level
	// Timeout is after which time it is given up. Defaults to Config.Timeout.
	Timeout time.Duration
	// PreferOldest asks the oldest nodes first, not any.
	PreferOldest bool
}

func (Members) input()     {}
func (Received) input()    {}
func (Get) input()         {}
func (Update) input()      {}
func (Delete) input()      {}
func (Subscribe) input()   {}
func (Unsubscribe) input() {}
func (Flush) input()       {}
func (Touch) input()       {}
func (Load) input()        {}
func (Loaded) input()      {}
func (Stored) input()      {}
func (SetClock) input()    {}
func (Stop) input()        {}

// Drop is why a message was dropped, or not sent.
type Drop uint8

// The reasons.
const (
	DropMalformed Drop = iota // it can't be decoded
	DropStranger              // its sender is no member
	DropLoading               // records are still being loaded
	DropLate                  // nothing waits for it any more
	DropPruned                // it is a delta of a node that has left
	DropTooLarge              // it is larger than messages may be
	DropParts                 // other parts of it are missing
	// Drops is one more than the last.
	Drops
)

func (d Drop) String() string {
	names := []string{"malformed", "stranger", "loading", "late", "pruned", "too large", "parts"}
	if int(d) >= len(names) {
		return fmt.Sprintf("drop(%d)", uint8(d))
	}
	return names[d]
}

// Counters are what a machine has counted since it was made.
type Counters struct {
	Sent, Received, SentBytes [Kinds]uint64
	Dropped                   [Drops]uint64
	Outcomes                  [Stopped + 1]uint64
	// Compared counts comparisons of all data with another node's, Equal those that
	// ended at the root.
	Compared, Equal uint64
	// DeltasApplied, DeltasKnown and DeltasGap count deltas of others: merged, known
	// before, and those before which something was missing.
	DeltasApplied, DeltasKnown, DeltasGap uint64
	// DeltasAsStates counts changes that were sent as a whole value, DeltasDropped those
	// that nobody waited for in time.
	DeltasAsStates, DeltasDropped uint64
	// Merged counts entries of others that changed something, Known those that did
	// not, Refused those that could not be merged.
	Merged, Known, Refused uint64
	// SecondWaves counts requests that asked further nodes, Repaired reads that changed
	// something here.
	SecondWaves, Repaired uint64
	// Initiated, Pruned and Cleared count what was begun, done and forgotten of nodes
	// that have left, in keys.
	Initiated, Pruned, Cleared uint64
	// Expired counts keys that were forgotten.
	Expired uint64
	// Keys and Tombstones are what there is now, Open the requests that wait for others,
	// Log the changes that wait to be sent, Storing what waits for the disk.
	Keys, Tombstones, Open, Log, Storing int
}
