// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"cmp"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/journal"
)

// Decide implements engine.Behavior: it calls the handler of a message.
func (e *entity) Decide(op *engine.Op) {
	e.op = op
	defer e.leaveUserCode(op)
	if e.host.rt.watched {
		observing(op.Env).decide()
	}
	if op.Env.Signal {
		e.decideSignal(op)
	} else if handle := e.host.model.commands[reflect.TypeOf(op.Env.Message)]; handle != nil {
		e.applyDecision(op, handle(e, op.Env.Message))
	} else if i, ok := op.Env.Message.(inspection); ok {
		e.inspect(op, i)
	} else if start, ok := op.Env.Message.(hosting.Start); ok {
		if start.Indexed {
			e.startIndexed()
		}
		op.Answer(nil)
	} else {
		op.Control(engine.Unhandled)
	}
	e.op = nil
}

// decideSignal calls the handler of a signal, unless a part rejects the signal.
func (e *entity) decideSignal(op *engine.Op) {
	s := e.signalOf(op.Env.Message)
	signal, ok := s.(Signal)
	if !ok || !e.admits(signal) {
		return
	}
	handle := e.host.model.signals[reflect.TypeOf(s)]
	if handle == nil {
		op.Control(engine.Unhandled)
		return
	}
	e.applyDecision(op, handle(e, s))
}

// Call implements engine.Behavior: it calls a callback.
func (e *entity) Call(op *engine.Op, fn any) {
	f, _ := fn.(callback)
	e.op = op
	op.Made = 0
	defer e.leaveUserCode(op)
	e.applyDecision(op, f(e))
	e.op = nil
}

// State implements engine.Behavior: it encodes the state for a snapshot.
func (e *entity) State() *engine.State {
	s := &engine.State{}
	if err := e.encodeState(s); err != nil {
		e.signal(SnapshotFailed{Metadata: e.metadata(s), Err: err})
		return nil
	}
	return s
}

// leaveUserCode is deferred by the methods that call user code. It records a panic or a call of
// runtime.Goexit, unless the method has ended and set e.op to nil.
func (e *entity) leaveUserCode(op *engine.Op) {
	if e.op == nil {
		return
	}
	e.op = nil
	op.Panicked(newPanicError(e.pid(), cmp.Or(recover(), any("runtime.Goexit was called"))))
}

// applyDecision adds a decision to the op: it encodes and applies the events, and computes the reply.
func (e *entity) applyDecision(op *engine.Op, d decision) {
	for i := range d.steps { // before a step can fail
		if r, ok := d.steps[i].request.(Resolution); ok && r.call != nil {
			op.Resolve(&r.call.env, computeReply(r.value), refusedWith(r.err))
		}
	}
	if op.Made > d.made {
		e.unreturned(UnreturnedInfo{PersistenceID: e.pid(), Message: e.signalOf(op.Env.Message), Effects: int(op.Made - d.made)})
	}
	err := d.check()
	if err == nil && e.emptied {
		err = d.checkWithoutHistory()
	}
	if err != nil {
		op.Fail(err)
		return
	}
	checked, before, requests := len(e.instance.parts()) > 0 && !op.Env.Signal, op.SequenceNr(), len(op.Requests)
	if checked {
		for _, p := range e.instance.parts() {
			p.Mark()
		}
	}
	if len(d.steps) > 0 {
		if !e.applySteps(op, &d.effect) {
			return
		}
	} else if len(d.events) > 0 && !e.persist(op, d.events, false) {
		return
	}
	if checked && !e.accepted(op, before, requests) {
		return
	}
	switch d.kind {
	case replied:
		op.Answer(computeReply(d.value))
	case refused:
		op.Refuse(refusedWith(d.err))
	case delayed:
		if _, waits := op.Env.Caller.(replier); waits {
			op.ReplyLater()
		} else {
			e.noReply(op)
		}
	case undecided:
	}
	if d.control != 0 {
		op.Control(d.control)
		if f := e.host.rt.obs.Stashed; f != nil && d.control&engine.Stash != 0 && !op.Env.Signal {
			e.host.rt.observe(func() { f(StashInfo{PersistenceID: e.pid(), Command: op.Env.Message, Aside: true}) })
		}
	}
}

// accepted reports whether the parts accept the events of a command that were applied. Otherwise it
// refuses the command. The arguments are the last sequence number and the number of requests before
// the events.
func (e *entity) accepted(op *engine.Op, before uint64, requests int) bool {
	if op.SequenceNr() == before {
		return true
	}
	for _, p := range e.instance.parts() {
		if err := p.Check(); err != nil {
			if e.host.rt.watched {
				observing(op.Env).persist(-int(op.SequenceNr()-before), before) //nolint:gosec // a number of events
			}
			op.Discard(requests, err)
			return false
		}
	}
	return true
}

// unreturned reports lost effects to the observer, and to the log once for each type of message.
func (e *entity) unreturned(info UnreturnedInfo) {
	if _, logged := e.host.unreturned.LoadOrStore(reflect.TypeOf(info.Message), nil); !logged {
		e.host.rt.log.Error("eventsourcing: a handler made effects and did not return them: they are lost; join them with And",
			slog.String("persistence_id", info.PersistenceID), slog.String("message", fmt.Sprintf("%T", info.Message)), slog.Int("effects", info.Effects))
	}
	if f := e.host.rt.obs.Unreturned; f != nil {
		e.host.rt.observe(func() { f(info) })
	}
}

// applySteps applies an effect with several steps. It encodes all events before it applies the first
// one: if an event can't be encoded, the command changes nothing.
func (e *entity) applySteps(op *engine.Op, eff *effect) bool {
	records := make([][]journal.Event, len(eff.steps)+1)
	offset := 0
	for i := range records {
		events := eff.events
		if i > 0 {
			events = eff.steps[i-1].events
		}
		var err error
		if records[i], err = e.encodeAll(op, offset, events); err != nil {
			op.Fail(err)
			return false
		}
		offset += len(events)
	}
	e.persistEncoded(op, eff.events, records[0], false)
	for i := range eff.steps {
		p := &eff.steps[i]
		switch {
		case p.call != nil:
			op.Call(p.call, p.async)
		case p.request != nil:
			e.addRequest(op, p.request)
		default:
			e.persistEncoded(op, p.events, records[i+1], p.async)
		}
	}
	return true
}

// noReply ends a notice or a signal without a reply. The observer is called when the op has taken
// effect.
func (e *entity) noReply(op *engine.Op) {
	op.NoReply()
	if o := observing(op.Env); o != nil {
		op.Requests = append(op.Requests, handled{o})
	}
}

// addRequest adds a request to the op. A snapshot encodes the state as it is now.
func (e *entity) addRequest(op *engine.Op, request any) {
	switch r := request.(type) {
	case Resolution: // see applyDecision
	case saveState:
		s := &engine.State{Request: r, SequenceNr: op.SequenceNr()}
		if e.partial {
			op.Requests = append(op.Requests, SnapshotFailed{Metadata: e.metadata(s), Err: errPartial})
		} else if s = e.encodeInto(op, s); s != nil {
			op.Save(s)
		}
	default:
		op.Requests = append(op.Requests, r)
	}
}

// encodeInto encodes the state into s. If the encoding fails, encodeInto adds a SnapshotFailed
// signal to the op and returns nil.
func (e *entity) encodeInto(op *engine.Op, s *engine.State) *engine.State {
	if err := e.encodeState(s); err != nil {
		op.Requests = append(op.Requests, SnapshotFailed{Metadata: e.metadata(s), Err: err})
		return nil
	}
	return s
}

// encodeState encodes the state. A panic of the user's encoder is an error.
func (e *entity) encodeState(s *engine.State) error {
	return catchPanic(e.pid(), func() (err error) {
		s.Manifest, s.Payload, err = e.host.model.encode(e.instance.state)
		return err
	})
}

// persist encodes, applies and tags the events of a unit. It returns false if the unit is refused;
// then the state is unchanged.
func (e *entity) persist(op *engine.Op, events []any, async bool) bool {
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
	var record journal.Event
	if err == nil {
		record, err = e.encode(op, 0, events[0])
	}
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

// encodeAll encodes the events of a unit. offset is the number of events of the same command in
// earlier units.
func (e *entity) encodeAll(op *engine.Op, offset int, events []any) ([]journal.Event, error) {
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
		if records[i], err = e.encode(op, offset+i, ev); err != nil {
			return nil, err
		}
		records[i].Metadata = metadata
	}
	return records, nil
}

// persistEncoded applies and tags the events of a unit.
func (e *entity) persistEncoded(op *engine.Op, events []any, records []journal.Event, async bool) {
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

func (e *entity) persisted(op *engine.Op, n int) {
	if e.host.indexes && e.index == notIndexed && e.hasWork() {
		e.index = indexNeeded
	}
	if e.host.rt.watched {
		observing(op.Env).persist(n, op.SequenceNr())
	}
}

// inject returns the metadata that is stored with the events of an op.
func (e *entity) inject(op *engine.Op) []byte {
	if s, ok := op.Env.Caller.(sender); ok {
		return e.host.rt.inject(s.from().ctx)
	}
	return nil
}

func (e *entity) mayPersist() error {
	switch {
	case e.readOnly:
		return ErrReadOnly
	case e.host.journal == nil:
		return ErrNoJournal
	}
	return nil
}

// encode encodes the i-th event of a command.
func (e *entity) encode(op *engine.Op, i int, event any) (journal.Event, error) {
	reject := func(reason error) error {
		return &journal.RejectedError{ID: e.pid(), SequenceNr: op.SequenceNr() + 1 + uint64(i), Reason: reason} //nolint:gosec // an index
	}
	if e.host.model.events == nil {
		return journal.Event{}, reject(fmt.Errorf("%w: %T: Type.Events is missing", codec.ErrNotRegistered, event))
	}
	manifest, payload, err := e.host.model.events.Encode(event)
	if err != nil {
		return journal.Event{}, reject(err)
	}
	if most := e.host.rt.cfg.MaxEventSize; len(payload) > most {
		return journal.Event{}, reject(fmt.Errorf("%T encodes to %d bytes, at most %d are allowed", event, len(payload), most))
	}
	return journal.Event{Manifest: manifest, Payload: payload}, nil
}

// applyOne applies an event and sets its tags. It reports whether Snapshots.When requests a snapshot.
func (e *entity) applyOne(op *engine.Op, seqNr uint64, event any, record *journal.Event) bool {
	m := e.host.model
	op.Applied = true
	m.apply(&e.instance, event, Recorded{SequenceNr: seqNr, Time: op.Time(), Metadata: record.Metadata})
	if m.tags != nil {
		record.Tags = m.tags(e.instance.state, event)
	}
	return m.when != nil && m.when(e.instance.state, event, seqNr)
}

// due encodes the state if a snapshot is due after a unit of n events.
func (e *entity) due(op *engine.Op, n int, matched bool) *engine.State {
	if e.partial {
		return nil
	}
	s := op.Due(n, matched && e.host.snapshots != nil)
	if s == nil {
		return nil
	}
	return e.encodeInto(op, s)
}

// catchPanic calls user code and returns its error, or its panic as an error. The methods of the
// result do not panic.
func catchPanic(pid string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = newPanicError(pid, v)
		}
	}()
	return panics.Safe(f())
}

func newPanicError(pid string, value any) *PanicError {
	if err, ok := value.(error); ok {
		value = panics.Safe(err)
	}
	return &PanicError{PersistenceID: pid, Value: value, Stack: debug.Stack()}
}
