// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"time"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/journal"
)

// Op is one decided message: the events that it persists, its callbacks and its reply. The Behavior
// fills it in. The Machine carries it through the pending list.
type Op struct {
	// Env is the message.
	Env *Envelope
	// Requests are opaque to the machine. They become effects, in order, when the message has taken
	// effect. If the message is decided again, they are dropped.
	Requests []any
	// Made counts the effects that user code made. Only the shell uses it.
	Made uint16
	// Applied reports that the Behavior has begun to apply events in the present call. If this call
	// then panics, the state is lost.
	Applied bool

	reply     reply
	control   Control
	panicked  bool
	discarded bool   // its events were applied and are not stored, see Discard
	failed    bool   // the reply is an error that the aggregate did not decide
	touched   bool   // a part of it took effect, so it cannot be decided again
	stored    bool   // a unit of it is stored
	unknown   bool   // the record that shows whether a unit of it is stored is deleted
	counted   bool   // it counts as a barrier of the machine
	replied   bool   // it has a reply
	ended     bool   // all of it took effect; its reply waits for other messages
	pinned    bool   // it saves a snapshot, so all events in that state must be durable
	holding   int32  // units that hold back replies and are not durable
	saves     bool   // a new unit carries a State
	barrier   bool   // it blocks later decisions until all of it took effect
	open      int    // steps that are not complete
	nr        uint64 // the number of the last event so far
	machine   *Machine
	value     any
	err       error
	first     Step
	firstUse  bool
	chain     *Step // steps that are not in the pending list yet
	last      *Step
}

type reply uint8

const (
	undecided reply = iota
	answered
	refused
	none
	later
)

// Control is a request of a message to the machine itself.
type Control uint8

const (
	// Stash puts the message into the user's stash.
	Stash Control = 1 << iota
	// UnstashAll handles the messages in the user's stash before all other messages.
	UnstashAll
	// End ends the entity after the internal stash is handled.
	End
	// Unhandled reports that the aggregate does not handle the message.
	Unhandled
)

// Step is a part of an Op in the pending list: a unit of events, a callback, or the end of the op.
type Step struct {
	// Request is the write of a unit.
	Request groupcommit.Request

	op       *Op
	next     *Step // in the pending list
	nextUnit *Step // in the circular list of units that wait for the journal
	kind     stepKind
	async    bool
	stored   bool
	err      error
	call     any
	state    *State
	one      [1]journal.Event
}

type stepKind uint8

const (
	finishStep stepKind = iota
	unitStep
	callStep
)

func (s *Step) lastNr() uint64 {
	return s.Request.Write.Expect + uint64(len(s.Request.Write.Events))
}

// event returns the event of a unit that an error is about: the first one, unless the error names
// another one.
func (s *Step) event(cause error) journal.Event {
	if s == nil {
		return journal.Event{}
	}
	events := s.Request.Write.Events
	if r, ok := errors.AsType[*journal.RejectedError](cause); ok {
		for i := range events {
			if events[i].SequenceNr == r.SequenceNr {
				return events[i]
			}
		}
	}
	return events[0]
}

// State is an encoded state. It is saved as a snapshot once its events are durable.
type State struct {
	// Manifest and Payload are the encoding by the Behavior.
	Manifest string
	Payload  []byte
	// Request is the explicit request for the snapshot, nil for a snapshot that was due.
	Request any
	// Awaited reports that the machine waits for the end of the save. The machine sets it.
	Awaited bool
	// SequenceNr and Time are those of the last event in the state. The machine sets them.
	SequenceNr uint64
	Time       time.Time
	// Retain, if not 0, is the sequence number up to which the shell applies retention after the
	// save.
	Retain uint64
}

// SequenceNr returns the sequence number of the last applied event, including events of this op.
func (o *Op) SequenceNr() uint64 { return o.nr }

// Time returns the timestamp of events that are persisted now.
func (o *Op) Time() time.Time {
	return max(o.machine.lastTime, o.machine.now).time()
}

// Due returns a State if a snapshot is due with a unit of n events, or nil. The caller fills in the
// State and passes it to Persist. matched reports whether the aggregate requests a snapshot.
func (o *Op) Due(n int, matched bool) *State {
	if o.saves {
		return nil
	}
	return o.machine.due(o.nr+1, o.nr+uint64(n), matched) //nolint:gosec // a length
}

func (o *Op) add(s *Step) {
	s.op = o
	o.saves = o.saves || s.state != nil
	if o.last == nil {
		o.chain = s
	} else {
		o.last.next = s
	}
	o.last = s
	o.open++
	o.nr += uint64(len(s.Request.Write.Events))
}

func (o *Op) step() *Step {
	if !o.firstUse {
		o.firstUse = true
		return &o.first
	}
	return new(Step)
}

// Persist adds a unit: encoded events that were applied and are stored atomically. The machine
// numbers them. An asynchronous unit does not hold back the replies of other messages. The state,
// if not nil, is the state after the last event of the unit.
func (o *Op) Persist(events []journal.Event, async bool, state *State) {
	s := o.step()
	s.kind, s.async, s.state = unitStep, async, state
	s.Request.Write.Events = events
	o.add(s)
}

// PersistOne is Persist for a single event without its own allocation.
func (o *Op) PersistOne(event journal.Event, async bool, state *State) {
	s := o.step()
	s.kind, s.async, s.state = unitStep, async, state
	s.one[0] = event
	s.Request.Write.Events = s.one[:]
	o.add(s)
}

// Call adds a callback that runs when all earlier steps are durable. Unless the callback is
// asynchronous, the machine decides no message before the callback has run.
func (o *Op) Call(fn any, async bool) {
	s := o.step()
	s.kind, s.async, s.call = callStep, async, fn
	o.add(s)
}

// Save requests a snapshot of the current state, which includes the events that the op has
// persisted so far. The request takes effect with the op.
func (o *Op) Save(s *State) {
	s.SequenceNr = o.nr
	o.pinned = true
	o.Requests = append(o.Requests, s)
}

// Answer sets the reply. The last call wins.
func (o *Op) Answer(value any) {
	o.reply, o.value, o.err, o.replied, o.failed = answered, value, nil, true, false
}

// Refuse sets an error as the reply.
func (o *Op) Refuse(err error) {
	o.reply, o.value, o.err, o.replied, o.failed = refused, nil, err, true, false
}

// Fail sets the error of an operation that failed as the reply. If a unit of the op is stored, the
// error also matches ErrPartlyStored.
func (o *Op) Fail(err error) {
	o.Refuse(err)
	o.failed = true
}

// NoReply sets no reply.
func (o *Op) NoReply() { o.reply, o.value, o.err = none, nil, nil }

// ReplyLater defers the reply to a later message; see Resolve.
func (o *Op) ReplyLater() { o.reply, o.value, o.err = later, nil, nil }

// Control adds requests to the machine. Except for Unhandled they are barriers.
func (o *Op) Control(c Control) {
	o.control |= c
	if c&^Unhandled != 0 {
		o.barrier = true
	}
}

// Panicked records a panic of user code. The instance is recovered after the reply has left.
func (o *Op) Panicked(err error) {
	o.Fail(err)
	o.panicked = true
	o.control = 0
}

// Discard refuses the message with err: the units and callbacks that the Behavior has just added are
// dropped, and so are its requests from the n-th on. The events of these units were applied, so the
// instance is recovered when the earlier units are settled.
func (o *Op) Discard(n int, err error) {
	for s := o.chain; s != nil; s = s.next {
		o.open--
		o.nr -= uint64(len(s.Request.Write.Events))
	}
	o.chain, o.last, o.saves = nil, nil, false
	clear(o.Requests[n:])
	o.Requests = o.Requests[:n]
	o.Fail(err)
	o.discarded = true
}

// Resolve answers an earlier message whose op chose ReplyLater. If this op fails, the reply is its
// error.
func (o *Op) Resolve(env *Envelope, value any, err error) {
	o.Requests = append(o.Requests, resolve{Env: env, Value: value, Err: err})
	o.replied = true
}

type resolve Answer
