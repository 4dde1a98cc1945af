// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"errors"
	"fmt"
	"slices"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/journal"
)

// Decide is part of engine.Behavior: it runs the user's handler.
func (e *entity[C, E]) Decide(op *engine.Op) {
	c := &e.context
	c.op = op
	defer e.contained(op)
	if e.host.rt.watched {
		observing(op.Env).decide()
	}
	if op.Env.Signal {
		h, ok := e.instance.state.(SignalHandler[C, E])
		if !ok {
			op.Control(engine.Unhandled)
			return
		}
		if s := signalOf(op.Env.Message); e.admits(s) {
			e.carry(op, h.HandleSignal(c, s))
		}
		return
	}
	command, ok := op.Env.Message.(C)
	if !ok {
		e.inspect(op)
		return
	}
	e.carry(op, e.instance.state.HandleCommand(c, command))
}

// Call is part of engine.Behavior: it runs a callback.
func (e *entity[C, E]) Call(op *engine.Op, fn any) {
	f, _ := fn.(func(*Context[C, E]) Effect[C, E])
	c := &e.context
	c.op = op
	op.Made = 0
	defer e.contained(op)
	e.carry(op, f(c))
}

// State is part of engine.Behavior: it encodes the state for a snapshot.
func (e *entity[C, E]) State() *engine.State {
	s := &engine.State{}
	var inner error
	if err := errors.Join(contain(e.pid, func() { inner = e.encodeState(s) }), inner); err != nil {
		e.signal(SnapshotFailed{Metadata: e.metadata(s), Err: err})
		return nil
	}
	return s
}

// contained ends a run of user code, and takes note of its panic.
func (e *entity[C, E]) contained(op *engine.Op) {
	e.context.op = nil
	if v := recover(); v != nil {
		op.Panicked(newPanicError(e.pid, v))
	}
}

// carry puts an effect into the op: it encodes and applies the events, and
// computes the answer.
func (e *entity[C, E]) carry(op *engine.Op, eff Effect[C, E]) {
	if f := e.host.rt.obs.Unreturned; f != nil && op.Made > eff.made {
		f(UnreturnedInfo{PersistenceID: e.pid, Message: signalOf(op.Env.Message), Effects: int(op.Made - eff.made)})
	}
	if err := eff.check(); err != nil {
		op.Fail(err)
		return
	}
	if len(eff.parts) > 0 {
		if !e.carryParts(op, &eff) {
			return
		}
	} else if len(eff.events) > 0 && !e.persist(op, eff.events, false) {
		return
	}
	switch eff.decided {
	case replied:
		op.Answer(Answer[C]{eff.value}.compute())
	case refused:
		op.Refuse(eff.err)
	case silent:
		e.noReply(op)
	case delayed:
		if _, waits := op.Env.Caller.(replier); waits {
			op.ReplyLater()
		} else {
			e.noReply(op)
		}
	case undecided:
	}
	if eff.control != 0 {
		op.Control(engineControl(eff.control))
		if f := e.host.rt.obs.Stashed; f != nil && eff.control&stash != 0 && !op.Env.Signal {
			f(StashInfo{PersistenceID: e.pid, Command: op.Env.Message, Aside: true})
		}
	}
}

// carryParts carries the parts of an effect that has more than one. All events
// are encoded before any is applied, so that what can't be is refused as a whole.
func (e *entity[C, E]) carryParts(op *engine.Op, eff *Effect[C, E]) bool {
	records := make([][]journal.Event, len(eff.parts)+1)
	ahead := 0
	for i := range records {
		events := eff.events
		if i > 0 {
			events = eff.parts[i-1].events
		}
		var err error
		if records[i], err = e.encodeAll(op, ahead, events); err != nil {
			op.Fail(err)
			return false
		}
		ahead += len(events)
	}
	e.persistEncoded(op, eff.events, records[0], false)
	for i := range eff.parts {
		p := &eff.parts[i]
		switch {
		case p.call != nil:
			op.Call(p.call, p.async)
		case p.request != nil:
			e.ask(op, p.request)
		default:
			e.persistEncoded(op, p.events, records[i+1], p.async)
		}
	}
	return true
}

// noReply decides that there is no answer. The observer is told when the op has
// taken effect.
func (e *entity[C, E]) noReply(op *engine.Op) {
	op.NoReply()
	if o := observing(op.Env); o != nil {
		op.Requests = append(op.Requests, handled{o})
	}
}

func engineControl(c control) engine.Control {
	var out engine.Control
	for _, x := range [...]struct {
		from control
		to   engine.Control
	}{{stash, engine.Stash}, {unstashAll, engine.UnstashAll}, {stop, engine.Stop}, {unhandled, engine.Unhandled}} {
		if c&x.from != 0 {
			out |= x.to
		}
	}
	return out
}

// ask puts a request into the op. A state is encoded right away.
func (e *entity[C, E]) ask(op *engine.Op, request any) {
	switch r := request.(type) {
	case resolve:
		if r.call != nil {
			op.Resolve(&r.call.env, Answer[C]{r.value}.compute(), r.err)
		}
	case saveState:
		s := &engine.State{Request: r}
		if err := e.encodeState(s); err != nil {
			op.Requests = append(op.Requests, SnapshotFailed{Metadata: e.metadata(s), Err: err})
			return
		}
		op.Save(s)
	default:
		op.Requests = append(op.Requests, r)
	}
}

func (e *entity[C, E]) encodeState(s *engine.State) (err error) {
	s.Manifest, s.Payload, err = e.host.model.encode(e.instance.state)
	return err
}

// persist encodes the events of a unit, then applies them, then tags them. It is
// false when the unit is refused; then the state is untouched.
func (e *entity[C, E]) persist(op *engine.Op, events []E, async bool) bool {
	if len(events) > 1 {
		records, err := e.encodeAll(op, 0, events)
		if err != nil {
			op.Fail(err)
			return false
		}
		e.persistEncoded(op, events, records, async)
		return true
	}
	err := e.mayPersist()
	if err != nil {
		op.Fail(err)
		return false
	}
	record, err := e.encode(op, 0, events[0])
	if err != nil {
		op.Fail(err)
		return false
	}
	record.Metadata = e.inject(op)
	matched := e.applyOne(op, op.SequenceNr()+1, events[0], &record)
	op.PersistOne(record, async, e.due(op, 1, matched))
	e.persisted(op, 1)
	return true
}

// encodeAll encodes the events of a unit with so many events of the same command
// ahead of it.
func (e *entity[C, E]) encodeAll(op *engine.Op, ahead int, events []E) ([]journal.Event, error) {
	if len(events) == 0 {
		return nil, nil
	}
	if err := e.mayPersist(); err != nil {
		return nil, err
	}
	records := make([]journal.Event, len(events))
	metadata := e.inject(op)
	for i, ev := range events {
		var err error
		if records[i], err = e.encode(op, ahead+i, ev); err != nil {
			return nil, err
		}
		records[i].Metadata = metadata
	}
	return records, nil
}

// persistEncoded applies the events of a unit, and tags them.
func (e *entity[C, E]) persistEncoded(op *engine.Op, events []E, records []journal.Event, async bool) {
	if len(events) == 0 {
		return
	}
	matched := false
	for i, ev := range events {
		if e.applyOne(op, op.SequenceNr()+1+uint64(i), ev, &records[i]) {
			matched = true
		}
	}
	op.Persist(records, async, e.due(op, len(events), matched))
	e.persisted(op, len(events))
}

// persisted counts events for the observer.
func (e *entity[C, E]) persisted(op *engine.Op, n int) {
	if e.host.rt.watched {
		observing(op.Env).persist(n, op.SequenceNr())
	}
}

// inject returns the metadata that goes with the events of an op.
func (e *entity[C, E]) inject(op *engine.Op) []byte {
	f := e.host.rt.obs.Inject
	if f == nil {
		return nil
	}
	s, ok := op.Env.Caller.(sender)
	if !ok {
		return nil
	}
	return f(s.from().ctx)
}

func (e *entity[C, E]) mayPersist() error {
	switch {
	case e.host.opts.Recovery.readOnly():
		return ErrReadOnly
	case e.host.rt.journal == nil:
		return ErrNoJournal
	}
	return nil
}

// encode encodes the i-th event of a unit.
func (e *entity[C, E]) encode(op *engine.Op, i int, event E) (journal.Event, error) {
	reject := func(reason error) error {
		return &journal.RejectedError{ID: e.pid, SequenceNr: op.SequenceNr() + 1 + uint64(i), Reason: reason} //nolint:gosec // an index
	}
	if e.host.model.typ.Events == nil {
		return journal.Event{}, reject(fmt.Errorf("%w: %T: Type.Events is missing", codec.ErrNotRegistered, event))
	}
	manifest, payload, err := e.host.model.typ.Events.Encode(event)
	if err != nil {
		return journal.Event{}, reject(err)
	}
	if most := e.host.rt.cfg.MaxEventSize; len(payload) > most {
		return journal.Event{}, reject(fmt.Errorf("%T encodes to %d bytes, at most %d are allowed", event, len(payload), most))
	}
	return journal.Event{Manifest: manifest, Payload: payload}, nil
}

// applyOne applies an event and sets its tags. It reports whether the aggregate
// wants a snapshot.
func (e *entity[C, E]) applyOne(op *engine.Op, seqNr uint64, event E, record *journal.Event) bool {
	if e.host.model.recorded {
		e.instance.applyRecorded(event, Recorded{SequenceNr: seqNr, Time: op.Time(), Metadata: record.Metadata})
	} else {
		e.instance.apply(event, seqNr, record.Metadata)
	}
	if f := e.host.model.typ.Tags; f != nil {
		record.Tags = f(event)
	}
	if t, ok := e.instance.state.(Tagger[E]); ok {
		record.Tags = joinTags(record.Tags, t.Tags(event))
	}
	d, ok := e.instance.state.(SnapshotDecider[E])
	return ok && d.SnapshotDue(event, seqNr)
}

// joinTags returns all tags, each once.
func joinTags(a, b []string) []string {
	if len(a) == 0 {
		return b
	}
	all := slices.Clip(a)
	for _, tag := range b {
		if !slices.Contains(a, tag) {
			all = append(all, tag)
		}
	}
	return all
}

// due encodes the state if a snapshot is due after a unit of n events.
func (e *entity[C, E]) due(op *engine.Op, n int, matched bool) *engine.State {
	s := op.Due(n, matched && e.host.rt.snapshots != nil)
	if s == nil {
		return nil
	}
	if err := e.encodeState(s); err != nil {
		op.Requests = append(op.Requests, SnapshotFailed{Metadata: e.metadata(s), Err: err})
		return nil
	}
	return s
}
