// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
)

// Effects are the results of a step. The caller performs them in the order of the fields.
type Effects struct {
	// Notes are for logs and observers.
	Notes []Note
	// Store are records to write to disk, in order. Each is acknowledged with Stored. Of several
	// pending records of one key, writing the last one is sufficient.
	Store []Store
	// Values are the new contents of keys, for readers outside of the machine. They must be visible
	// to readers before Send and Replies are performed, because packets and replies may acknowledge
	// the values.
	Values []Change
	// Send are packets to send, in order and at most once. The caller drops packets that it cannot
	// send.
	Send []Send
	// Replies answer requests, each request once.
	Replies []Reply
	// Events are for subscribers, in order.
	Events []Event
	// Stopped reports that this was the last step.
	Stopped bool
}

// Store is a record to write to disk.
type Store struct {
	Nr  uint64
	Key string
	// Data is nil if the record is to be deleted.
	Data []byte
}

// Send is a packet for a node.
type Send struct {
	To identity.Node
	// Bulk selects the lane for large packets that are not urgent.
	Bulk    bool
	Payload []byte
}

// Change is the new content of a key.
type Change struct {
	Key string
	// Value is the zero Value if the key was deleted or removed.
	Value   crdt.Value
	Deleted bool
}

// Outcome is the result of a request.
type Outcome uint8

// The outcomes.
const (
	// Done: as many replicas as required have taken part.
	Done Outcome = 1 + iota
	// NotFound: no replica has the key.
	NotFound
	// Deleted: the key was deleted before the request, or the request is a Delete and has deleted
	// it.
	Deleted
	// TimedOut: too few replicas have answered in time. An Update or a Delete has taken place on
	// some replicas and will spread.
	TimedOut
	// TooFew: there are fewer replicas than required. An Update or a Delete has taken place and
	// will spread.
	TooFew
	// StoreFailed: a durable key could not be written to disk, on this node or on too many other
	// nodes. The change has taken place and will spread.
	StoreFailed
	// Failed: Err is the cause. Nothing has changed.
	Failed
	// Busy: too many requests are open. Nothing has changed.
	Busy
	// Stopped: the machine has stopped.
	Stopped
)

func (o Outcome) String() string {
	return enum.Name(o, "outcome", "", "done", "not found", "deleted", "timed out", "too few replicas", "store failed", "failed", "busy", "stopped")
}

// Reply is the answer to a request.
type Reply struct {
	ID      uint64
	Outcome Outcome
	// Value is the content of the key, after a Get or an Update that is Done.
	Value crdt.Value
	// Answered is the number of replicas that have taken part, including this one. Required is the
	// number that the level requires, Total the number of all replicas. A node that is Joining or
	// WeaklyUp is not part of a majority.
	Answered, Required, Total int
	// Err is the cause of Failed and StoreFailed. It is also set for TimedOut if replicas have
	// refused.
	Err error
	// Silent are the nodes to which the request was sent and that have not answered in time,
	// sorted.
	Silent []identity.Node
}

// EventKind is the kind of a change of a key.
type EventKind uint8

// The event kinds.
const (
	// Changed: the key has another value.
	Changed EventKind = 1 + iota
	// WasDeleted: the key was deleted.
	WasDeleted
	// Expired: the key was not used for Config.Expire and was removed.
	Expired
)

func (k EventKind) String() string { return enum.Name(k, "event", "", "changed", "deleted", "expired") }

// Event notifies a subscriber of a change.
type Event struct {
	// Nr is the number of the Subscribe.
	Nr   uint64
	Kind EventKind
	Key  string
	// Value is set if Kind is Changed.
	Value crdt.Value
	// New reports that the key did not exist at the previous notification.
	New bool
}

// NoteKind is the subject of a note.
type NoteKind uint8

// The note kinds.
const (
	// NoteMalformed: a message of Node could not be decoded, see Err.
	NoteMalformed NoteKind = 1 + iota
	// NoteRefused: data of Node for Key could not be merged, see Err.
	NoteRefused
	// NoteTooLarge: the value of Key has N bytes, more than MaxMessage. It is not sent until it is
	// smaller.
	NoteTooLarge
	// NoteStore: a write to disk has failed, see Err.
	NoteStore
	// NoteLoad: a record of Key could not be loaded, see Err.
	NoteLoad
	// NotePulling: the node is new and fetches the data from N other nodes.
	NotePulling
	// NotePulled: the node has fetched N entries.
	NotePulled
	// NotePruning: this node begins to take over the history of the removed Node, in N keys.
	NotePruning
	// NotePruned: this node has taken over the history of Node in N keys.
	NotePruned
	// NoteRemoved: the node is no longer a member.
	NoteRemoved
	// NoteFull: there is no room for Key, which Node has sent.
	NoteFull
	// NoteLarge: an update of Key has raised the size of the value to N bytes, more than three
	// quarters of MaxEntry.
	NoteLarge
)

func (k NoteKind) String() string {
	return enum.Name(k, "note", "", "malformed", "refused", "too large", "store", "load", "pulling", "pulled", "pruning", "pruned", "removed", "full", "large")
}

// Note is an event for logs and observers.
type Note struct {
	Kind NoteKind
	Node identity.Node
	Key  string
	N    int
	Err  error
}

// Batch is the input of a step, processed in the order of the fields.
type Batch struct {
	// Members are the members of the cluster, nil if unchanged.
	Members *Members
	// Packets are the received packets, in order.
	Packets []Packet
	// Inputs are all other inputs, in order.
	Inputs []Input
}

// Members are the members of the cluster. All is sorted by node and includes the node itself once
// it is a member. Unreachable contains the members that some node cannot reach.
type Members struct {
	All         []identity.Member
	Unreachable []identity.Node
}

// Packet is a received packet. From is the sender according to the transport, and the packet was
// addressed to this incarnation. The payload must not be modified afterwards.
type Packet struct {
	From    identity.Node
	Payload []byte
}

// Input is an input of a machine other than members and packets.
type Input interface{ input() }

type (
	// Get reads a key.
	Get struct {
		Request
		// RepairPeers delays the reply until as many replicas as were read hold the result.
		RepairPeers bool
	}
	// Update changes a key. Modify is called at most once, with the current value, or the zero
	// Value if the key does not exist. It must not block. After an error or a panic nothing has
	// changed. Its result is merged into the current value.
	Update struct {
		Request
		Modify func(current crdt.Value) (crdt.Value, error)
	}
	// Delete deletes a key permanently.
	Delete struct{ Request }
	// Subscribe starts events for a key, or for all keys with the prefix Key if Prefix is set. The
	// caller chooses Nr, which must not be in use.
	Subscribe struct {
		Nr     uint64
		Key    string
		Prefix bool
	}
	// Unsubscribe ends a subscription.
	Unsubscribe struct{ Nr uint64 }
	// Flush emits pending events and sends pending changes now.
	Flush struct{}
	// Touch reports keys that were read outside of the machine.
	Touch struct{ Keys []string }
	// Load is a record from disk. All Load inputs precede Loaded. Only Members may precede them.
	Load struct {
		Key  string
		Data []byte
	}
	// Loaded reports that all records were loaded. A machine with durable keys does nothing before
	// this input.
	Loaded struct{}
	// Stored is the result of some Store effects.
	Stored struct {
		Nrs []uint64
		// Err is nil if the records are on disk.
		Err error
	}
	// SetClock sets the wall time. The caller sends it periodically and after the clock was set.
	SetClock struct{ Time time.Time }
	// Stop ends the machine. Open requests are answered.
	Stop struct{}
)

// Request is the common part of all requests.
type Request struct {
	// ID is chosen by the caller and must not be in use.
	ID  uint64
	Key string
	// Level is the number of replicas that take part.
	Level Level
	// Timeout defaults to Config.Timeout.
	Timeout time.Duration
	// PreferOldest sends the request to the oldest nodes first, instead of to random nodes.
	PreferOldest bool
}

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

// Drop is the reason why a message was dropped or not sent.
type Drop uint8

// The drop reasons.
const (
	DropMalformed Drop = iota // cannot be decoded
	DropStranger              // the sender is not a member
	DropLoading               // the machine is loading records
	DropLate                  // no request waits for the message
	DropPruned                // a delta of a removed node
	DropTooLarge              // larger than the limit
	DropParts                 // other parts are missing
	// Drops is the number of reasons.
	Drops
)

func (d Drop) String() string {
	return enum.Name(d, "drop", "malformed", "stranger", "loading", "late", "pruned", "too large", "parts")
}

// Counters count events since the machine was created. The fields are those of ddata.ProtocolStats.
type Counters struct {
	Sent, Received, SentBytes [Kinds]uint64
	Dropped                   [Drops]uint64
	Outcomes                  [Stopped + 1]uint64
	// Malformed counts packets that could not be decoded.
	Malformed uint64

	Compared, Equal, DeltasApplied, DeltasKnown, DeltasGap, DeltasAsStates, DeltasDropped uint64
	Merged, Known, Refused, SecondWaves, Repaired, Initiated, Pruned, Cleared, Expired    uint64

	Keys, Tombstones, Open, Log, Storing int // current numbers
}
