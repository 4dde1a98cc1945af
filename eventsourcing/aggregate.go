// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"time"
)

// Aggregate is the state of an entity and its two methods: one decides, the
// other changes the state. A pointer to a struct implements it. Both are called
// on one goroutine at a time and must not block.
type Aggregate[C, E any] interface {
	// HandleCommand decides what a command leads to. It never changes the state
	// and has no side effects: it may run more than once for one command, when
	// a write ahead of it failed.
	HandleCommand(ctx *Context[C, E], command C) Effect[C, E]
	// ApplyEvent changes the state and does nothing else. It runs once for each
	// persisted event, and again in every recovery.
	ApplyEvent(event E)
}

// RecordedApplier is implemented by an aggregate that wants to know what is stored
// with its events: ApplyRecorded is called in place of ApplyEvent, in recoveries
// and in Fold, too.
type RecordedApplier[E any] interface {
	ApplyRecorded(event E, record Recorded)
}

// Recorded is what is stored with an event. All events that one stored event was
// upcast to have the same.
type Recorded struct {
	// SequenceNr is its number.
	SequenceNr uint64
	// Time is its timestamp, in UTC and whole microseconds; it never decreases.
	Time time.Time
	// Metadata is what Observer.Inject returned, nil for none. It must not be
	// changed.
	Metadata []byte
}

// SignalHandler is implemented by an aggregate that wants to know what happens
// to it. The effect is carried out like that of a command that nobody waits
// for. See Signal for what there is.
type SignalHandler[C, E any] interface {
	HandleSignal(ctx *Context[C, E], signal Signal) Effect[C, E]
}

// Tagger is implemented by an aggregate whose events carry tags that depend on
// its state. It is called after the event was applied and sees the state after
// it. For tags that depend on the event alone see Type.Tags.
type Tagger[E any] interface {
	Tags(event E) []string
}

// SnapshotDecider is implemented by an aggregate that says itself when a
// snapshot is due, besides what Type.Snapshots says. It is called after the
// event with this number was applied.
type SnapshotDecider[E any] interface {
	SnapshotDue(event E, seqNr uint64) bool
}

// Snapshotter is implemented by an aggregate that encodes its state itself.
type Snapshotter interface {
	// MarshalSnapshot returns the state. The bytes must not change later.
	MarshalSnapshot() ([]byte, error)
	// UnmarshalSnapshot takes over a state into a fresh instance.
	UnmarshalSnapshot(data []byte) error
}

// SnapshotAdapter is implemented by an aggregate whose snapshots hold a value of
// another type than its own: one with a name and a version in Type.States, so that
// older forms of it are upcast as those of events are. Snapshots from before the
// aggregate was a SnapshotAdapter are still read.
//
// A delivery.Outbox is part of the state; see its method Restore.
type SnapshotAdapter interface {
	// ToSnapshot returns the value. It is encoded at once.
	ToSnapshot() (any, error)
	// FromSnapshot takes over such a value into a fresh instance.
	FromSnapshot(state any) error
}

// Timed is implemented by an aggregate with states that end by themselves.
type Timed interface {
	// Deadline is when the present state times out, or zero for never. It is
	// folded from events and so survives every recovery. When the time has come
	// the aggregate gets a StateTimeout signal, once for each deadline and
	// instance; at once if the deadline passed while the entity was not there. An
	// entity that is not in memory is not woken by its deadline.
	Deadline() time.Time
}
