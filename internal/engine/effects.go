// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/refold-io/refold/journal"
)

// Behavior is the user's aggregate as the machine sees it. Its methods run on
// the goroutine that called Step, contain the panics of user code, and do no
// I/O.
type Behavior interface {
	// Decide handles op.Env on the current state, applies the events that come
	// out and records all of it in op.
	Decide(op *Op)
	// Call runs a callback of op; what it persists is added to op.
	Call(op *Op, fn any)
	// State encodes the current state, nil if that fails.
	State() *State
}

// Input is what happened: the kind says which fields count.
type Input struct {
	Kind InputKind
	// Env is the message of Deliver.
	Env *Envelope
	// N is the number of units of Stored.
	N int
	// Err is the outcome of NotStored, Recovered, Probed and Fenced. Of Kill it is what those are answered who wait, and matches
	// ErrStopped; nil is ErrStopped.
	Err error
	// Recovery is the result of Recovered.
	Recovery Recovery
	// LastNr is, in Probed, the number of the last event of an unbroken run of
	// this incarnation's own from where the probe began; one less than that if
	// there is none. Fences are not events.
	LastNr uint64
	// Next says, in Probed, what record follows LastNr.
	Next Record
}

// Record is what a probe finds behind the entity's own events.
type Record uint8

const (
	// NoRecord says that the history ends there.
	NoRecord Record = iota
	// OwnFence says that a fence of this incarnation stands there.
	OwnFence
	// ForeignRecord says that another incarnation wrote there.
	ForeignRecord
)

// InputKind is what kind of thing happened.
type InputKind uint8

const (
	// Deliver hands over a message.
	Deliver InputKind = iota
	// Stored says that the oldest N units that were handed out are durable.
	Stored
	// NotStored says that the oldest unit that was handed out ended in Err.
	NotStored
	// Fenced is the outcome of the fence.
	Fenced
	// Probed is the answer to a Probe.
	Probed
	// Recovered is the result of a Recover.
	Recovered
	// Woken says that the back-off has elapsed.
	Woken
	// Saved says that the save of a snapshot that was due has ended.
	Saved
	// Continue goes on where Effects.More said that there is more to do, and
	// after Block.
	Continue
	// Idle asks the entity to stop if it has nothing at all to do.
	Idle
	// Drain asks the entity to handle what it was given and then to stop.
	Drain
	// Kill ends the entity now; all who wait are answered ErrStopped or, where
	// a write is in flight, ErrOutcomeUnknown.
	Kill
)

// Recovery is what a recovery found.
type Recovery struct {
	// SequenceNr is the number that the next event follows.
	SequenceNr uint64
	// Time is the timestamp of the last event.
	Time time.Time
	// Replayed counts the events that were replayed.
	Replayed uint64
	// Writer is the writer ID of the new incarnation.
	Writer string
}

// Effects are what the shell has to do after a Step, field by field in this
// order. The shell owns the value, passes it to Step empty and may reuse it.
type Effects struct {
	// Append hands units to the writer, in order.
	Append []*Step
	// Fence asks to append this write, past the units that failed, and to
	// answer with Fenced. The stream is reset first.
	Fence *journal.Write
	// Probe asks whose records stand from this number on; 0 means not.
	Probe uint64
	// Durable is the highest number that became durable; 0 means no change.
	Durable uint64
	// Answers may leave now.
	Answers []Answer
	// Requests are carried out now.
	Requests []any
	// Save asks to save snapshots. One without a Request is answered with
	// Saved, when the deletions that follow it have ended too.
	Save []*State
	// Recover asks for a recovery, with a fresh instance. The stream is reset first.
	Recover bool
	// Wake asks for Woken after this duration; 0 means not.
	Wake time.Duration
	// More asks for Continue.
	More bool
	// Stopped says that the instance is gone. With Recover another incarnation
	// follows at once, otherwise with the next Deliver.
	Stopped bool
	// Cause is the error for which the instance is dropped, if it is one.
	Cause error

	// Ops keeps finished ops for reuse, on whatever goroutine they finish; nil
	// keeps none. It is set once by the shell: a *sync.Pool without New.
	Ops OpPool
}

// OpPool keeps ops: they are large, and every message needs one.
type OpPool interface {
	Get() any
	Put(op any)
}

// newOp returns an empty op.
func (f *Effects) newOp() *Op {
	if f.Ops != nil {
		if op, ok := f.Ops.Get().(*Op); ok {
			return op
		}
	}
	return &Op{}
}

// recycle takes back an op to which nothing refers any more.
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

// Reset empties the effects and keeps their memory.
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
