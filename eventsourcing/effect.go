// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/snapshot"
)

// Effect is the list of actions that a handler returns: events to store, callbacks, timers and so
// on. It is a value; every method returns a longer copy. No action starts before the handler has
// returned the Effect. An Effect that is not returned does nothing, see Observer.Unreturned. The
// handler of a command adds a reply at the end; the result is a Decision.
//
// The actions are performed in the order in which they were added. Each action waits until all
// events before it are durable.
type Effect[S, E, R any] struct{ effect effect }

// Decision is an Effect with a reply. Reply, ReplyFunc, Refuse, ReplyLater, ThenReply,
// Context.Stash and Context.Unhandled return one. The zero value has no reply: the caller of the
// command gets ErrNoReply.
type Decision[S, E, R any] struct{ decision decision }

// effect is an Effect without its type parameters.
type effect struct {
	entity  *entity // nil in a zero Effect
	events  []any   // of the first unit, when it is a plain Persist; of type E
	steps   []step  // after events
	control engine.Control
	made    uint16 // number of joined chains, see Observer.Unreturned
}

type step struct {
	events  []any
	call    callback
	request any
	async   bool
}

// decision is a Decision without its type parameters.
type decision struct {
	effect

	value any // the reply itself, or a replyFunc
	err   error
	kind  replyKind
}

type replyKind uint8

const (
	undecided replyKind = iota
	replied
	refused
	delayed
)

// callback is a function of Then or ThenReply.
type callback func(e *entity) decision

type replyFunc interface{ compute() any }

type replyFuncOf[R any] func() R

func (f replyFuncOf[R]) compute() any { return f() }

// computeReply returns the reply, and calls the function of ReplyFunc for it.
func computeReply(value any) any {
	if f, ok := value.(replyFunc); ok {
		return f.compute()
	}
	return value
}

// Persist stores events as one unit, all or none. The events are applied at once, so the next
// handler sees the state that includes them. Replies and callbacks wait until the events are
// durable. Without events Persist does nothing. The effect owns the events.
func (e Effect[S, E, R]) Persist(events ...E) Effect[S, E, R] {
	if len(events) == 0 {
		return e
	}
	return Effect[S, E, R]{e.effect.persist(values(events))}
}

// values returns the elements of a slice in a slice of interfaces.
func values[E any](events []E) []any {
	all := make([]any, len(events))
	for i, ev := range events {
		all[i] = ev
	}
	return all
}

// PersistAsync is Persist for events that do not hold back other commands: replies to later
// commands may leave before the events are durable, although the state that their handlers saw
// includes them.
func (e Effect[S, E, R]) PersistAsync(events ...E) Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.persistAsync(values(events))}
}

// Then calls f when all events before it are durable, at most once, and never in a recovery. No
// other command is handled before f has run. f may have side effects. f may return a further
// effect, which is performed after the pending ones; to do nothing more, f returns ctx.Effect.
// After PersistAsync or ThenAsync, Then does not hold back other commands. f is not called if a
// write before it failed.
func (e Effect[S, E, R]) Then(f func(*Context[S, E, R]) Effect[S, E, R]) Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.then(callbackOf(f), f == nil, e.effect.lastAsync())}
}

// ThenAsync is Then without holding back other commands.
func (e Effect[S, E, R]) ThenAsync(f func(*Context[S, E, R]) Effect[S, E, R]) Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.then(callbackOf(f), f == nil, true)}
}

func callbackOf[S, E, R any](f func(*Context[S, E, R]) Effect[S, E, R]) callback {
	return func(e *entity) decision { return decision{effect: f(contextOf[S, E, R](e)).effect} }
}

// And adds the actions of another effect after those of this one. Units of events that are joined in
// this way are written together, but each unit is atomic only by itself.
func (e Effect[S, E, R]) And(next Effect[S, E, R]) Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.join(next.effect)}
}

// Go runs f on a separate goroutine and sends the message that f returns to the entity; nil sends
// none. The context of f has the values of the present command's context and ends when the runtime
// is closed.
func (e Effect[S, E, R]) Go(f func(context.Context) Message[S]) Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.request(e.effect.goRequest(func(ctx context.Context) any { return f(ctx) }))}
}

// StartTimer sends a message to the entity after a pause, at once if the pause is not positive. It
// replaces a timer with the same name. Timers survive the recovery after a failed write, and end
// when the entity stops.
func (e Effect[S, E, R]) StartTimer(name string, after time.Duration, message Message[S]) Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.request(timerRequest{name: name, after: after, message: message})}
}

// StartTicker sends a message to the entity at every interval, first after one interval. It
// replaces a timer with the same name. The command fails with ErrInvalid if the interval is not
// positive.
func (e Effect[S, E, R]) StartTicker(name string, every time.Duration, message Message[S]) Effect[S, E, R] {
	if every <= 0 {
		return Effect[S, E, R]{e.effect.request(fmt.Errorf("%w: StartTicker %q: interval %v is not positive", ErrInvalid, name, every))}
	}
	return Effect[S, E, R]{e.effect.request(timerRequest{name: name, after: every, repeat: true, message: message})}
}

// StopTimer stops a timer. A message that the timer has sent may still arrive.
func (e Effect[S, E, R]) StopTimer(name string) Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.request(timerRequest{name: name})}
}

// ReceiveTimeout sends the entity a ReceiveTimeout signal each time d passes without a command. 0
// stops the signals.
func (e Effect[S, E, R]) ReceiveTimeout(d time.Duration) Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.request(receiveTimeout(d))}
}

// UnstashAll handles the commands that are stashed now, in the order in which they were stashed and
// before all other commands.
func (e Effect[S, E, R]) UnstashAll() Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.controlled(engine.UnstashAll)}
}

// Stop stops the entity when it has handled the commands that it has received. Stashed commands are
// answered ErrStopped. The next command starts the entity again.
func (e Effect[S, E, R]) Stop() Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.controlled(engine.End)}
}

// Passivate is Stop for an entity that is idle. The two differ only with sharding: a remembered
// entity (see package sharding) that has passivated is not started before its next command.
func (e Effect[S, E, R]) Passivate() Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.controlled(engine.End).request(passivation{})}
}

// SaveSnapshot saves the state after the events that the effect contains so far. A SnapshotSaved or
// SnapshotFailed signal reports the outcome.
func (e Effect[S, E, R]) SaveSnapshot() Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.request(saveState{})}
}

// DeleteSnapshots deletes the matching snapshots. The deletion fails if events are deleted and no
// remaining snapshot would cover them. A SnapshotsDeleted or SnapshotsNotDeleted signal reports the
// outcome.
func (e Effect[S, E, R]) DeleteSnapshots(criteria snapshot.Criteria) Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.request(deleteSnapshots{criteria})}
}

// DeleteEvents deletes events from the journal. An EventsDeleted or EventsNotDeleted signal reports
// the outcome. A projection that has not handled these events yet does not receive them, and reports no
// error.
func (e Effect[S, E, R]) DeleteEvents(request DeleteEvents) Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.request(request)}
}

// Resolve answers an earlier command that chose ReplyLater: Token.With and Token.Refuse return the
// resolution. If the resolving command fails, the earlier one is answered with ErrNoReply and that
// error. A second resolution of the same token is dropped, and so is the resolution of a zero token.
func (e Effect[S, E, R]) Resolve(r Resolution) Effect[S, E, R] {
	return Effect[S, E, R]{e.effect.request(r)}
}

// Reply answers the command with a value, once all events before it are durable. For a value that
// depends on the events of this effect use ReplyFunc. The value must not share memory with the
// state.
func (e Effect[S, E, R]) Reply(value R) Decision[S, E, R] {
	return Decision[S, E, R]{decision{effect: e.effect, value: value, kind: replied}}
}

// ReplyFunc answers the command with the value that f returns. f is called once, after the events of
// this effect were applied and before any other command is handled. The value must not share memory
// with the state.
func (e Effect[S, E, R]) ReplyFunc(f func() R) Decision[S, E, R] {
	return Decision[S, E, R]{decision{effect: e.effect, value: replyFuncOf[R](f), kind: replied}}
}

// Refuse answers the command with an error, which must not be nil. Only a *Refusal, or an error
// that wraps one, keeps its identity for a caller on another node or for an outbox; any other error
// has the code "internal" there.
func (e Effect[S, E, R]) Refuse(err error) Decision[S, E, R] {
	return Decision[S, E, R]{decision{effect: e.effect, err: err, kind: refused}}
}

// ReplyLater leaves the reply to a later message, which resolves the Token of this command. The
// caller gets ErrNoReply if the entity stops before the reply.
func (e Effect[S, E, R]) ReplyLater() Decision[S, E, R] {
	return Decision[S, E, R]{decision{effect: e.effect, kind: delayed}}
}

// ThenReply runs f as Then does; the Decision of f answers the command.
func (e Effect[S, E, R]) ThenReply(f func(*Context[S, E, R]) Decision[S, E, R]) Decision[S, E, R] {
	call := func(e *entity) decision { return f(contextOf[S, E, R](e)).decision }
	return Decision[S, E, R]{decision{effect: e.effect.then(call, f == nil, e.effect.lastAsync())}}
}

// begin counts a new chain, which the handler must return.
func (e *effect) begin() {
	if e.made > 0 {
		return
	}
	e.made = 1
	if e.entity == nil {
		return
	}
	if e.entity.op == nil {
		e.entity.host.rt.log.Error("eventsourcing: a context was used after its handler had returned", slog.String("persistence_id", e.entity.pid()))
		return
	}
	e.entity.op.Made++
}

// add adds a step to a copy of the list, because two effects may extend the same one.
func (e *effect) add(s step) { e.steps = append(slices.Clip(e.steps), s) }

func (e effect) persist(events []any) effect {
	e.begin()
	if e.events == nil && len(e.steps) == 0 {
		e.events = events
		return e
	}
	e.add(step{events: events})
	return e
}

func (e effect) persistAsync(events []any) effect {
	e.begin()
	e.add(step{events: events, async: true})
	return e
}

func (e effect) then(call callback, missing, async bool) effect {
	if missing {
		return e.request(fmt.Errorf("%w: Then needs a function", ErrInvalid))
	}
	e.begin()
	e.add(step{call: call, async: async})
	return e
}

func (e effect) request(r any) effect {
	e.begin()
	e.add(step{request: r})
	return e
}

func (e effect) controlled(c engine.Control) effect {
	e.begin()
	e.control |= c
	return e
}

// join returns the effect with the actions of next after its own.
func (e effect) join(next effect) effect {
	if len(next.events) > 0 {
		if len(e.events) == 0 && len(e.steps) == 0 {
			e.events = next.events
		} else {
			e.add(step{events: next.events})
		}
	}
	if len(next.steps) > 0 {
		e.steps = slices.Concat(e.steps, next.steps)
	}
	e.control |= next.control
	e.made += next.made
	if e.entity == nil {
		e.entity = next.entity
	}
	return e
}

// check returns the error of the first action with invalid arguments.
func (d *decision) check() error {
	for i := range d.steps {
		if err, ok := d.steps[i].request.(error); ok {
			return err
		}
	}
	if d.kind == refused && isNilError(d.err) {
		return fmt.Errorf("%w: Refuse needs an error", ErrInvalid)
	}
	return nil
}

// checkWithoutHistory returns an error if an effect of a handler of RecoveryFailed would persist, save or
// delete something.
func (d *decision) checkWithoutHistory() error {
	persists := len(d.events) > 0
	for i := range d.steps {
		switch d.steps[i].request.(type) {
		case saveState, deleteSnapshots, DeleteEvents:
			persists = true
		}
		persists = persists || len(d.steps[i].events) > 0
	}
	if persists {
		return fmt.Errorf("%w: the entity was not recovered, so it can't store or delete anything", ErrReadOnly)
	}
	return nil
}

// isNilError reports whether an error is nil or holds a nil value, such as a nil pointer.
func isNilError(err error) bool {
	v := reflect.ValueOf(err)
	return err == nil || slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan}, v.Kind()) && v.IsNil()
}

// lastAsync reports whether the last unit or callback is asynchronous. Then the next callback is
// asynchronous too.
func (e *effect) lastAsync() bool {
	for _, s := range slices.Backward(e.steps) {
		if s.request == nil {
			return s.async
		}
	}
	return false
}
