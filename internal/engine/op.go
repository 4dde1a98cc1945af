// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/journal"
)

// Op is one message that was decided: what it persists, what it runs afterwards
// and what it answers. The Behavior fills it in; the Machine carries it through
// the pending list.
type Op struct {
	// Env is the message.
	Env *Envelope
	// Requests are opaque to the machine. They go out, in order, when the
	// message has taken effect, and are dropped when it is decided again.
	Requests []any
	// Made counts the effects that user code made. It is the shell's alone.
	Made uint16

	reply    reply
	control  Control
	panicked bool
	failed   bool   // the reply is an error that it did not decide by itself
	touched  bool   // a part of it took effect, so it can't be decided again
	stored   bool   // a unit of it is stored
	counted  bool   // it is one of the machine's barriers
	told     bool   // a reply was decided
	ended    bool   // all of it took effect, and what it leads to waits for others
	pinned   bool   // it saves a snapshot, so that all it saw has to be durable
	holding  int32  // its units that hold back answers and are not durable
	saves    bool   // a unit of what was decided just now carries a State
	barrier  bool   // nothing is decided until all of it took effect
	open     int    // steps that are not done
	nr       uint64 // the number of the last event so far
	machine  *Machine
	value    any
	err      error
	first    Step
	firstUse bool
	chain    *Step // decided and not yet in the pending list
	last     *Step
}

type reply uint8

const (
	undecided reply = iota
	answered
	refused
	none
	later
)

// Control is what a message asks of the machine itself.
type Control uint8

const (
	// Stash puts the message itself into the user's stash.
	Stash Control = 1 << iota
	// UnstashAll handles what is in the user's stash now, before anything else.
	UnstashAll
	// Stop ends the entity when what is stashed internally is handled.
	Stop
	// Unhandled says that the aggregate does not know the message.
	Unhandled
)

// Step is a part of an Op that waits its turn in the pending list: a unit of
// events, a callback, or the mere end of the op.
type Step struct {
	// Request is the write of a unit.
	Request groupcommit.Request

	op       *Op
	next     *Step // in the pending list
	nextUnit *Step // in the list of units that wait for the journal
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

// lastNr is the number of the unit's last event.
func (s *Step) lastNr() uint64 {
	return s.Request.Write.Expect + uint64(len(s.Request.Write.Events))
}

// State is an encoded state, to be saved as a snapshot once it is durable.
type State struct {
	// Manifest and Payload are what the Behavior encoded.
	Manifest string
	Payload  []byte
	// Request is the explicit request that asked for it, nil when it was due.
	Request any
	// SequenceNr and Time are those of the last event that the state covers.
	// The machine sets them.
	SequenceNr uint64
	Time       time.Time
	// Retain says, when it is not 0, that the save is to be followed by
	// deleting what retention does not keep up to this number.
	Retain uint64
}

// SequenceNr is the number of the last event applied so far, the op's own
// included.
func (o *Op) SequenceNr() uint64 { return o.nr }

// Time is the time that the events get which are persisted now.
func (o *Op) Time() time.Time {
	if o.machine.now.After(o.machine.lastTime) {
		return o.machine.now
	}
	return o.machine.lastTime
}

// Due returns the State to fill in and to hand to Persist with a unit of n
// events if a snapshot is due with it, or nil. Matched says that the aggregate
// itself wants a snapshot.
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

// Persist adds a unit: encoded events that were applied and are stored as a
// whole. The machine numbers them. An asynchronous unit does not hold back the
// answers of other messages. The state, if it is not nil, is the state after
// the unit's last event.
func (o *Op) Persist(events []journal.Event, async bool, state *State) {
	s := o.step()
	s.kind, s.async, s.state = unitStep, async, state
	s.Request.Write.Events = events
	o.add(s)
}

// PersistOne is Persist for a single event, without an allocation for it.
func (o *Op) PersistOne(event journal.Event, async bool, state *State) {
	s := o.step()
	s.kind, s.async, s.state = unitStep, async, state
	s.one[0] = event
	s.Request.Write.Events = s.one[:]
	o.add(s)
}

// Call adds a callback that runs when everything ahead of it is durable.
// Unless it is asynchronous nothing is decided before it has run.
func (o *Op) Call(fn any, async bool) {
	s := o.step()
	s.kind, s.async, s.call = callStep, async, fn
	o.add(s)
}

// Save asks to save a state: that of now, after the events that the op has
// persisted so far. It goes out when the op has taken effect.
func (o *Op) Save(s *State) {
	s.SequenceNr = o.nr
	o.pinned = true
	o.Requests = append(o.Requests, s)
}

// Answer decides the reply. The last decision counts.
func (o *Op) Answer(value any) {
	o.reply, o.value, o.err, o.told, o.failed = answered, value, nil, true, false
}

// Refuse decides that the reply is an error.
func (o *Op) Refuse(err error) {
	o.reply, o.value, o.err, o.told, o.failed = refused, nil, err, true, false
}

// Fail decides that the reply is an error that says what could not be done. If
// something of the op is stored it matches ErrPartlyStored, too.
func (o *Op) Fail(err error) {
	o.Refuse(err)
	o.failed = true
}

// NoReply decides that there is no reply.
func (o *Op) NoReply() { o.reply, o.value, o.err = none, nil, nil }

// ReplyLater decides that the reply comes with a later message; see Resolve.
func (o *Op) ReplyLater() { o.reply, o.value, o.err = later, nil, nil }

// Control adds requests to the machine. They are barriers.
func (o *Op) Control(c Control) {
	o.control |= c
	if c&^Unhandled != 0 {
		o.barrier = true
	}
}

// Panicked says that user code panicked and the instance can't be trusted any
// more: it is refolded when the answer has left.
func (o *Op) Panicked(err error) {
	o.Fail(err)
	o.panicked = true
	o.control = 0
}

// Resolve answers an earlier message whose op chose ReplyLater.
func (o *Op) Resolve(env *Envelope, value any, err error) {
	o.Requests = append(o.Requests, resolve{Env: env, Value: value, Err: err})
	o.told = true
}

// resolve is the request that Resolve leaves.
type resolve Answer
