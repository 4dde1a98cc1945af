// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/panics"
)

// request carries out a request of an op that has taken effect.
func (e *entity) request(r any) {
	switch r := r.(type) {
	case handled:
		r.command.end(nil)
	case goRequest:
		e.goAsync(r)
	case timerRequest:
		e.setTimer(r)
	case receiveTimeout:
		e.setReceiveTimeout(time.Duration(r))
	case deleteSnapshots:
		e.host.rt.stores.do(func() { e.removeSnapshots(r.criteria, e.deleteSnapshots) })
	case DeleteEvents:
		e.requestDeletion(r)
	case passivation:
		e.passivates = true
	case SnapshotFailed:
		e.notify(r)
	}
}

// requestDeletion starts a deletion of events, or refuses it without a call of the journal.
func (e *entity) requestDeletion(r DeleteEvents) {
	if e.partial {
		e.notify(EventsNotDeleted{Request: r, Err: fmt.Errorf("delete events of %q: %w", e.pid(), errPartial)})
		return
	}
	durable := e.machine.DurableNr()
	if r.UpTo > durable {
		err := fmt.Errorf("%w: delete events of %q up to %d: the last durable one is %d", ErrInvalid, e.pid(), r.UpTo, durable)
		e.notify(EventsNotDeleted{Request: r, Err: err})
		return
	}
	if r.UpTo == 0 {
		r.UpTo = durable
	}
	e.host.rt.stores.do(func() { e.removeEvents(r) })
}

// goRequest returns a request of Effect.Go with the context of the present message.
func (e *effect) goRequest(f func(context.Context) any) goRequest {
	r := goRequest{f: f}
	if e.entity != nil && e.entity.op != nil {
		if s, ok := e.entity.op.Env.Caller.(sender); ok {
			r.ctx, r.root = s.from().background(e.entity.host.rt.ctx), s.from().root()
		}
	}
	return r
}

func (e *entity) goAsync(r goRequest) {
	rt := e.host.rt
	ctx, root := rt.ctx, context.Background()
	if r.ctx != nil {
		ctx, root = r.ctx, r.root
	}
	rt.async.Go(func() {
		var command any
		err := catchPanic(e.pid(), func() error {
			command = r.f(ctx)
			return nil
		})
		if err != nil {
			rt.log.Error("asynchronous work panicked", slog.String("persistence_id", e.pid()), slog.Any("error", err))
			return
		}
		if command != nil {
			e.host.tellSelf(e.id(), envelope(root, command))
		}
	})
}

// tellSelf delivers a message that an entity sends to itself. It starts the entity if it has stopped
// in the meantime.
func (h *host) tellSelf(id string, env *engine.Envelope) {
	if err := h.route(hosting.NewMessage(id, env, true)); err != nil {
		h.rt.dropped(h.model.naming.display(id), env.Message, err)
	}
}

type timer struct {
	t       *time.Timer
	stopped bool // guarded by the entity's mu
}

// setTimer starts, replaces or stops a timer.
func (e *entity) setTimer(r timerRequest) {
	x := e.needExtra()
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := x.timers[r.name]; old != nil {
		old.stopped = true
		old.t.Stop()
		delete(x.timers, r.name)
	}
	if r.message == nil {
		return
	}
	if x.timers == nil {
		x.timers = make(map[string]*timer)
	}
	t := &timer{}
	x.timers[r.name] = t
	t.t = time.AfterFunc(r.after, func() { e.fire(x, t, r) })
}

func (e *entity) fire(x *extra, t *timer, r timerRequest) {
	e.mu.Lock()
	ended := t.stopped || e.gone
	if !ended && r.repeat {
		t.t.Reset(r.after)
	}
	e.mu.Unlock()
	if ended {
		return
	}
	env := &engine.Envelope{Message: r.message}
	if e.host.rt.watched {
		e.host.rt.begin(e.pid(), env)
	}
	if e.accept(env, -1) == entityGone {
		observing(env).end(ErrStopped)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !r.repeat && x.timers[r.name] == t { // only now, so that the entity is never idle before it has the message
		delete(x.timers, r.name)
	}
}

type receiveTimer struct {
	after time.Duration
	last  time.Time // of the last command or signal
	t     *time.Timer
}

func (e *entity) setReceiveTimeout(d time.Duration) {
	x := e.needExtra()
	if x.receive != nil {
		x.receive.t.Stop()
		x.receive = nil
	}
	if d <= 0 {
		return
	}
	r := &receiveTimer{after: d, last: e.host.rt.steady()}
	x.receive = r
	r.t = time.AfterFunc(d, func() { e.do(func(*engine.Effects) { e.receiveDue(r) }) })
}

// receiveDue sends the signal if no command arrived in time, and sets the timer again.
func (e *entity) receiveDue(r *receiveTimer) {
	if e.extra == nil || e.extra.receive != r {
		return
	}
	now := e.host.rt.steady()
	if quiet := now.Sub(r.last); quiet < r.after {
		r.t.Reset(r.after - quiet)
		return
	}
	r.last = now
	r.t.Reset(r.after)
	e.signal(ReceiveTimeout{})
}

// updateDeadline sets the timer of an entity to its deadline. The deadline may follow from events
// that are still in flight. A deadline from such events is harmless, because the signal is dropped
// unless the state still has the deadline when the signal is handled; see admits.
func (e *entity) updateDeadline() {
	deadline := e.host.model.deadline
	if deadline == nil {
		return
	}
	var at time.Time
	err := catchPanic(e.pid(), func() error {
		at = deadline(e.instance.state)
		return nil
	})
	if err != nil {
		e.host.rt.log.Error("Type.Deadline panicked, the entity has no deadline", slog.String("persistence_id", e.pid()), slog.Any("error", err))
	}
	if at.IsZero() && e.extra == nil {
		return
	}
	x := e.needExtra()
	if at.Equal(x.deadlineAt) {
		return
	}
	e.resetDeadline()
	x.deadlineAt = at
	if !at.IsZero() {
		x.deadline = time.AfterFunc(at.Sub(e.machine.Now()), func() { e.do(func(*engine.Effects) { e.deadlineDue(at) }) })
	}
}

// resetDeadline stops the timer. A recovered instance receives the signal for its deadline again,
// because the events that the handler of the first signal persisted may not be stored.
func (e *entity) resetDeadline() {
	x := e.extra
	if x == nil {
		return
	}
	x.deadlineAt = time.Time{}
	if x.deadline != nil {
		x.deadline.Stop()
		x.deadline = nil
	}
}

func (e *entity) deadlineDue(at time.Time) {
	if e.extra != nil && e.extra.deadlineAt.Equal(at) {
		e.extra.deadline = nil
		e.signal(StateTimeout{Deadline: at})
	}
}

// startParts starts the parts of a recovered instance, unless the entity was recovered to an
// earlier state.
func (e *entity) startParts() {
	if e.readOnly {
		return
	}
	for _, p := range e.instance.parts() {
		e.callPart(func() hosting.Outgoing { return p.Recovered(e.host.rt.steady()) })
	}
	e.tickParts()
}

// callPart calls a method of a part. A panic is logged and has no further effect.
func (e *entity) callPart(f func() hosting.Outgoing) {
	var o hosting.Outgoing
	if p := panics.Call(func() { o = f() }); p != nil {
		e.host.rt.log.Error("part panicked", slog.String("persistence_id", e.pid()), slog.Any("error", p), slog.String("stack", string(p.Stack)))
	}
	for _, s := range o.Sends {
		e.host.rt.send(s, e.signalFrom)
	}
	for _, s := range o.Signals {
		e.signal(s)
	}
}

// nextTick returns Part.Next, zero if it panics.
func (e *entity) nextTick(p hosting.Part) (at time.Time) {
	e.callPart(func() (none hosting.Outgoing) { at = p.Next(); return none })
	return at
}

// tickParts sets the timer to the earliest tick of a part.
func (e *entity) tickParts() {
	var next time.Time
	for _, p := range e.instance.parts() {
		if at := e.nextTick(p); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		if e.extra != nil && e.extra.tick != nil {
			e.extra.tick.Stop()
		}
		return
	}
	x := e.needExtra()
	d := max(0, next.Sub(e.host.rt.steady()))
	if x.tick == nil {
		x.tick = time.AfterFunc(d, func() { e.do(func(*engine.Effects) { e.tick() }) })
		return
	}
	x.tick.Reset(d)
}

// tick calls the parts whose time has come. Without a running instance it does nothing: the answers to
// repeated sends would wait in the entity, without a limit, until the journal is available. The next
// instance starts its parts again.
func (e *entity) tick() {
	if !e.machine.Running() {
		return
	}
	now := e.host.rt.steady()
	for _, p := range e.instance.parts() {
		if at := e.nextTick(p); !at.IsZero() && !at.After(now) {
			e.callPart(func() hosting.Outgoing { return p.Tick(now) })
		}
	}
	e.tickParts()
}

func (e *entity) stopTimers() {
	x := e.extra
	if x == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range x.timers {
		t.stopped = true
		t.t.Stop()
	}
	for _, t := range []*time.Timer{x.backoff, x.deadline, x.tick} {
		if t != nil {
			t.Stop()
		}
	}
	if x.receive != nil {
		x.receive.t.Stop()
	}
	if x.entry != nil && x.entry.timer != nil {
		x.entry.timer.Stop()
	}
	e.extra = nil
}

// admits reports whether a signal is still valid for the state.
func (e *entity) admits(s Signal) bool {
	if t, ok := s.(StateTimeout); ok {
		deadline := e.host.model.deadline
		return deadline != nil && deadline(e.instance.state).Equal(t.Deadline)
	}
	return e.instance.admits(s)
}

// hasTimers reports whether a timer would be lost if the entity left memory.
func (e *entity) hasTimers() bool {
	if slices.ContainsFunc(e.instance.parts(), func(p hosting.Part) bool { return !e.nextTick(p).IsZero() }) {
		return true
	}
	x := e.extra
	if x == nil {
		return false
	}
	e.mu.Lock()
	timers := len(x.timers)
	e.mu.Unlock()
	return timers > 0 || x.receive != nil || x.deadline != nil
}

// clock has the two clocks of a runtime: Config.Now, which may jump, and a steady one. Waits use the
// steady clock.
type clock struct {
	opened time.Time // with its monotonic reading
	wall   func() time.Time
}

// now returns the time for events and snapshots.
func (c *clock) now() time.Time { return c.wall().UTC().Truncate(time.Microsecond) }

// steady returns a time that never jumps and never decreases.
func (c *clock) steady() time.Time { return c.opened.Add(time.Since(c.opened)) }
