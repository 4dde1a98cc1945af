// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/refold-io/refold/journal"
)

// Behavior is the user's aggregate. Its methods run on the goroutine that called Step, contain the
// panics of user code, and do no I/O.
type Behavior interface {
	// Decide handles op.Env on the current state, applies the resulting events and records the
	// result in op.
	Decide(op *Op)
	// Call runs a callback of op. Events that the callback persists are added to op.
	Call(op *Op, fn any)
	// State encodes the current state. It returns nil if the encoding fails.
	State() *State
}

// Input is one event for the machine. Kind selects the fields in use.
type Input struct {
	Kind InputKind
	// Env is the message of Deliver. For Idle and Drain, it is the farewell: a signal that the
	// instance handles before it stops; nil means none. For a Recovered with Err, it is the signal that the
	// Behavior handles on an empty state; nil means none.
	Env *Envelope
	// N is the number of units of Stored.
	N int
	// Err is the outcome of NotStored, Recovered, Refreshed, Probed and Fenced. For Kill, Err is the error for
	// waiting callers. It must match ErrStopped; nil means ErrStopped.
	Err error
	// Recovery is the result of Recovered and Refreshed.
	Recovery Recovery
	// LastNr is, for Probed, the sequence number of the last event in the unbroken run of this
	// incarnation's own events that begins at the start of the probe. If there is no such event,
	// LastNr is the start minus one. Fences are not events. Deleted records before an own event were
	// own events too, because the journal stores the writes of an incarnation in order.
	LastNr uint64
	// DeletedTo is, for Probed, the sequence number of the last record that is deleted after LastNr: all
	// records from LastNr+1 to DeletedTo are deleted. 0 means that no record after LastNr is known to be
	// deleted.
	DeletedTo uint64
	// Next is, for Probed, the record that follows LastNr and the deleted records after it.
	Next Record
	// Saved is the snapshot of Saved.
	Saved *State
}

// Record is the record that a probe finds after the entity's own events.
type Record uint8

const (
	// NoRecord means that the history ends there.
	NoRecord Record = iota
	// OwnFence is a fence of this incarnation.
	OwnFence
	// ForeignRecord is a record of another incarnation.
	ForeignRecord
)

// InputKind is the kind of an input.
type InputKind uint8

const (
	// Deliver passes a message to the entity.
	Deliver InputKind = iota
	// Stored reports that the oldest N appended units are durable.
	Stored
	// NotStored reports that the oldest appended unit ended with Err.
	NotStored
	// Fenced is the outcome of the fence.
	Fenced
	// Probed is the answer to a Probe.
	Probed
	// Recovered is the result of a Recover.
	Recovered
	// Refreshed is the result of a Refresh. Recovery holds the last event and a new writer ID. Err
	// reports that the instance must be recovered.
	Refreshed
	// Woken reports that the back-off has elapsed.
	Woken
	// Saved reports that the save of a snapshot has ended.
	Saved
	// Continue resumes work after Effects.More and after Block.
	Continue
	// Idle stops the entity if it has no work.
	Idle
	// Drain stops the entity after it has handled all messages that it has received. The shell keeps
	// later messages for the next instance.
	Drain
	// Kill ends the entity at once. Waiting callers receive ErrStopped, or ErrOutcomeUnknown where
	// a write is in flight.
	Kill
)

// Recovery is the result of a recovery.
type Recovery struct {
	// SequenceNr is the sequence number of the last event.
	SequenceNr uint64
	// Time is the timestamp of the last event.
	Time time.Time
	// SnapshotNr is the sequence number of the snapshot, 0 for none.
	SnapshotNr uint64
	// Replayed counts the events that were replayed.
	Replayed uint64
	// Writer is the writer ID of the new incarnation.
	Writer string
}

// Effects are the actions that a Step requests. The shell carries them out field by field in this
// order. The shell owns the value, passes an empty value to Step and may reuse it.
type Effects struct {
	// Append passes units to the writer, in order.
	Append []*Step
	// Fence requests an append of this write, after the failed units. The shell resets the stream
	// first and answers with Fenced.
	Fence *journal.Write
	// Probe requests the owner of the records from this sequence number on; 0 means no request.
	Probe uint64
	// Durable is the highest sequence number that became durable; 0 means no change.
	Durable uint64
	// Answers are replies that may leave now.
	Answers []Answer
	// Requests are carried out now. They are opaque to the machine.
	Requests []any
	// Save requests snapshots. The shell answers a snapshot that is Awaited with Saved, after the
	// deletions that follow the save have ended.
	Save []*State
	// Recover requests a recovery with a new instance. The shell resets the stream first.
	Recover bool
	// Refresh requests that the events after the last one in the journal are applied to the instance.
	// The shell answers with Refreshed. Nothing else uses the instance before the answer.
	Refresh bool
	// Wake requests Woken after this duration; 0 means no request.
	Wake time.Duration
	// More requests Continue.
	More bool
	// Stopped reports that the instance has ended. If Recover is also set, another incarnation
	// follows at once, otherwise with the next Deliver.
	Stopped bool
	// Cause is the error that ended the instance, or nil. If Resumed is set, the instance continues.
	Cause   error
	Resumed bool
	// Verdict, if it is Stop or Escalate, is the decision of the supervisor that ended the instance.
	Verdict Directive

	// Ops receives finished ops for reuse, on the goroutine on which they finish. nil disables the
	// reuse. The shell sets it once, to a *sync.Pool without New.
	Ops OpPool
}

// OpPool keeps ops for reuse. Ops are large, and each message needs one.
type OpPool interface {
	Get() any
	Put(op any)
}

func (f *Effects) newOp() *Op {
	if f.Ops != nil {
		if op, ok := f.Ops.Get().(*Op); ok {
			return op
		}
	}
	return &Op{}
}

// recycle returns an op without remaining references to the pool.
func (f *Effects) recycle(op *Op) {
	if f.Ops != nil {
		*op = Op{}
		f.Ops.Put(op)
	}
}

// Answer is a reply that may leave.
type Answer struct {
	Env   *Envelope
	Value any
	Err   error
}

// Reset empties the effects and keeps their allocated memory.
func (f *Effects) Reset() {
	clear(f.Append)
	clear(f.Answers)
	clear(f.Requests)
	clear(f.Save)
	*f = Effects{
		Append: f.Append[:0], Answers: f.Answers[:0], Requests: f.Requests[:0],
		Save: f.Save[:0], Ops: f.Ops,
	}
}
