// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// Signal is a message of the runtime to an entity: one of the types below, or one of a Part, such
// as delivery.Answered. Programs can't add signals.
type Signal interface{ hosting.Signal }

type signal = hosting.IsSignal

// RecoveryCompleted is the first message of every instance, before any command.
type RecoveryCompleted struct {
	signal

	// SequenceNr is the sequence number of the last event, 0 for an entity without events.
	SequenceNr uint64
	// SnapshotNr is the sequence number of the snapshot from which the recovery started, 0 for none.
	SnapshotNr uint64
	// Events is the number of events that were replayed.
	Events uint64
}

// PersistFailed reports that a write failed and that none of its events is stored. The instance that
// receives it was recovered after the failure.
type PersistFailed struct {
	signal

	// Event is the first event of the write, and SequenceNr the sequence number that it would have had.
	// Event is nil if it can't be decoded.
	Event      any
	SequenceNr uint64
	Err        error
}

// PersistRejected reports that the journal rejected a write. The instance that receives it was
// recovered after the rejection.
type PersistRejected struct {
	signal

	// Event is the rejected event, and SequenceNr the sequence number that it would have had. If the
	// journal does not name the event, it is the first one of the write. Event is nil if it can't be
	// decoded.
	Event      any
	SequenceNr uint64
	Err        error
}

// Stopping is the last signal of an instance: the entity is about to leave memory. The handler may
// persist events and save a snapshot first. The entity stops when these are stored and the callbacks
// of the effect have run. An entity whose type has no handler stops at once.
//
// The signal follows the commands that the entity had received, and it arrives at most once per
// instance. Commands and signals that arrive later are meant for the next instance: they start it, or
// go to the node to which the shard has moved. Commands that the entity has stashed fail with
// ErrStopped, unless the handler returns UnstashAll: then they are handled before the entity stops.
//
// No Stopping signal reaches an instance that stops itself (Effect.Stop, Effect.Passivate), that fails,
// or that is killed: at the end of the context of Runtime.Close or Local.Close, or at the time limit of a hand-off (see
// sharding.Tuning.HandOffTimeout), which also ends a handler whose writes take too long. An entity
// without events that leaves memory because it has no work receives none.
type Stopping struct {
	signal

	Reason StopReason
}

// StopReason is the reason of a Stopping signal.
type StopReason uint8

const (
	// StopIdle means that the entity was idle, or that its shard had more entities than its limit. See
	// HostOptions.PassivateAfter and sharding.Options.Passivation.
	StopIdle StopReason = iota
	// StopMoved means that the shard of the entity leaves this node: for another node, or because the
	// node or the region shuts down.
	StopMoved
	// StopClosed means that the runtime closes, or that the type is withdrawn from it.
	StopClosed
)

// signalOf converts the signals of the engine and returns other messages unchanged.
func (e *entity) signalOf(message any) any {
	switch s := message.(type) {
	case engine.RecoveryCompleted:
		return RecoveryCompleted{SequenceNr: s.SequenceNr, SnapshotNr: s.SnapshotNr, Events: s.Replayed}
	case engine.PersistFailed:
		return PersistFailed{Event: e.eventOf(s.Event), SequenceNr: s.Event.SequenceNr, Err: s.Err}
	case engine.PersistRejected:
		return PersistRejected{Event: e.eventOf(s.Event), SequenceNr: s.Event.SequenceNr, Err: s.Err}
	}
	return message
}

// eventOf decodes an event that was not stored. It returns nil if that fails.
func (e *entity) eventOf(record journal.Event) (event any) {
	_ = catchPanic(e.pid(), func() error {
		if events, err := e.host.model.events.DecodeAppend(nil, record.Manifest, record.Payload); err == nil && len(events) > 0 {
			event = events[0]
		}
		return nil
	})
	return event
}

// ReceiveTimeout reports that no command arrived within the time of Effect.ReceiveTimeout.
type ReceiveTimeout struct{ signal }

// StateTimeout reports that the deadline of the state has passed, see Type.Deadline.
type StateTimeout struct {
	signal

	Deadline time.Time
}

// SnapshotSaved reports that a snapshot is stored.
type SnapshotSaved struct {
	signal

	Metadata snapshot.Metadata
}

// SnapshotFailed reports that a snapshot could not be encoded or stored. The entity continues without
// it.
type SnapshotFailed struct {
	signal

	Metadata snapshot.Metadata
	Err      error
}

// SnapshotsDeleted reports a deletion by Effect.DeleteSnapshots or by retention.
type SnapshotsDeleted struct {
	signal

	Criteria snapshot.Criteria
}

// SnapshotsNotDeleted reports that a deletion of snapshots failed.
type SnapshotsNotDeleted struct {
	signal

	Criteria snapshot.Criteria
	Err      error
}

// EventsDeleted reports a deletion by Effect.DeleteEvents or by retention.
type EventsDeleted struct {
	signal

	Request DeleteEvents
}

// EventsNotDeleted reports that a deletion of events failed.
type EventsNotDeleted struct {
	signal

	Request DeleteEvents
	Err     error
}

// DeleteEvents is a request to delete the first events of an entity. Their sequence numbers are not
// used again.
type DeleteEvents struct {
	// UpTo is the sequence number of the last event to delete. 0 means all events that are durable
	// now. The request fails if the event is not durable.
	UpTo uint64
	// Abandon permits a deletion that no stored snapshot covers. Afterwards the state can't be
	// recovered before the next snapshot.
	Abandon bool
}
