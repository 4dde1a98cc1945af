// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"time"

	"github.com/refold-io/refold/internal/engine"
)

// Address names an entity by the name of its type and its own ID.
type Address struct {
	Type, ID string
}

func (a Address) String() string { return a.Type + "|" + a.ID }

// Companion is a part of an aggregate's state that does something once the
// events that changed it are durable: package delivery has one that sends
// messages. The runtime finds every exported field of the aggregate's struct whose
// address implements it.
//
// A companion changes only in ApplyEvent and in these methods; none of them may
// block. The time that they are told is good for waiting: it never jumps, and is not
// comparable with that of another process.
type Companion interface {
	// Attach tells a fresh instance whose part it is: the persistence ID, and
	// the name of the field. It is also called once when the type is hosted, so
	// that its error shows there.
	Attach(id, field string) error
	// Applying says that an event with this number is applied next. The metadata
	// is what is stored with it, nil for none; it is immutable.
	Applying(seqNr uint64, metadata []byte)
	// Recovered says that the instance is recovered, before it handles anything.
	// It is not called for a state of the past, which is only read.
	Recovered(now time.Time) Outgoing
	// Durable says that all events up to this number are stored.
	Durable(seqNr uint64, now time.Time) Outgoing
	// Tick says that the time that Next named has come.
	Tick(now time.Time) Outgoing
	// Next is when Tick is wanted, zero for never. It is asked after each of
	// the other calls. An entity that is only idle is kept while a tick is
	// wanted.
	Next() time.Time
	// Admit reports whether a signal is still of interest. It is asked about
	// every signal, just before the aggregate would handle it, and the aggregate
	// sees none that a companion of its turns down. It may be asked again about
	// the same one.
	Admit(signal Signal) bool
}

// Outgoing is what a companion wants done.
type Outgoing struct {
	// Sends are commands to other entities, in order.
	Sends []Send
	// Signals go to the companion's own aggregate, if it is a SignalHandler.
	Signals []Signal
}

// Send is a command of a companion to another entity.
type Send struct {
	To      Address
	Command any
	// Attempt counts the transmissions of the command, from 1.
	Attempt int
	// Metadata is that of the event which asked for it: it says what context
	// the command has. See Observer.
	Metadata []byte
	// Answered, if it is not nil, gets the answer, and returns the signal to
	// give to the companion's own aggregate; nil for none. It is called on any
	// goroutine.
	Answered func(value any, err error) Signal
}

// sendCall is a Send that waits for its answer.
type sendCall struct {
	origin
	back     func(context.Context, Signal)
	answered func(value any, err error) Signal
	command  any
	answers  *AnswerCodec // those that come from other nodes
}

// Take is part of engine.Caller.
func (*sendCall) Take() bool { return true }

// Untake is part of engine.Caller.
func (*sendCall) Untake() {}

func (c *sendCall) reply(value any, err error) {
	if data, away := value.(encodedAnswer); away {
		value, err = c.answers.decodeFor(c.command, data)
	}
	if s := c.answered(value, err); s != nil {
		c.back(c.ctx, s)
	}
}

// receiver is a host, whatever its commands are.
type receiver interface {
	receive(id string, env *engine.Envelope) error
	// Resident returns how many entities are in memory.
	Resident() int
	// close refuses new commands and has every entity stop.
	close()
	// drained waits until all of them have.
	drained(ctx context.Context) error
	// kill ends those that have not.
	kill()
}
