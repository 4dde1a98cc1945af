// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
)

// request carries out what an op asked for, now that it has taken effect.
func (e *entity[S, E]) request(r any) {
	switch r := r.(type) {
	case handled:
		r.command.end(nil)
	case goRequest[S]:
		e.goAsync(r)
	case timerRequest:
		e.setTimer(r)
	case receiveTimeout:
		e.setReceiveTimeout(time.Duration(r))
	case deleteSnapshots:
		e.host.rt.stores.do(func() { e.dropSnapshots(r.criteria) })
	case DeleteEvents:
		e.requestDeletion(r)
	case passivation:
		e.passivates = true
	case SnapshotFailed:
		e.tell(r, r.Err)
	}
}

// requestDeletion starts a deletion of events, or refuses it without touching the journal.
func (e *entity[S, E]) requestDeletion(r DeleteEvents) {
	durable := e.machine.DurableNr()
	if r.UpTo > durable {
		err := fmt.Errorf("%w: delete events of %q up to %d: the last durable one is %d", ErrInvalid, e.pid, r.UpTo, durable)
		e.tell(EventsNotDeleted{Request: r, Err: err}, err)
		return
	}
	if r.UpTo == 0 {
		r.UpTo = durable
	}
	e.host.rt.stores.do(func() { e.dropEvents(r) })
}

// goContext adds the context of the present message to a request of Go.
func (e *entity[S, E]) goContext(r goRequest[S]) goRequest[S] {
	if e.op != nil {
		if s, ok := e.op.Env.Caller.(sender); ok {
			r.ctx, r.root = s.from().background(e.host.rt.ctx), s.from().root()
		}
	}
	return r
}

// goAsync runs user code on its own goroutine.
func (e *entity[S, E]) goAsync(r goRequest[S]) {
	rt := e.host.rt
	ctx, root := rt.ctx, context.Background()
	if r.ctx != nil {
		ctx, root = r.ctx, r.root
	}
	rt.async.Go(func() {
		var command Message[S]
		if err := contain(e.pid, func() { command = r.f(ctx) }); err != nil {
			rt.log.Error("asynchronous work panicked", slog.String("persistence_id", e.pid), slog.Any("error", err))
			return
		}
		if any(command) != nil {
			e.host.tellSelf(e.id(), envelope(root, command))
		}
	})
}

// tellSelf delivers a command that the entity sends to itself; it starts the entity again if it has
// stopped in the meantime.
func (h *Local[S, E]) tellSelf(id string, env *engine.Envelope) {
	if err := h.route(hosting.NewMessage(id, env, true)); err != nil {
		h.rt.dropped(h.model.typ.Name+"|"+id, env.Message, err)
	}
}

// timer is a named timer of an entity.
type timer struct {
	t       *time.Timer
	stopped bool // guarded by the entity's mu
}

// setTimer starts, replaces or stops a timer.
func (e *entity[S, E]) setTimer(r timerRequest) {
	x := e.more()
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

// fire delivers the command of a timer.
func (e *entity[S, E]) fire(x *extra, t *timer, r timerRequest) {
	e.mu.Lock()
	if t.stopped || e.gone {
		e.mu.Unlock()
		return
	}
	if r.repeat {
		t.t.Reset(r.after)
	} else {
		delete(x.timers, r.name)
	}
	e.mu.Unlock()
	env := &engine.Envelope{Message: r.message}
	if e.host.rt.watched {
		e.host.rt.begin(e.pid, env)
	}
	if e.accept(env, -1) == mailboxGone { // it left meanwhile
		observing(env).end(ErrStopped)
	}
}

// receiveTimer watches for commands that do not come.
type receiveTimer struct {
	after time.Duration
	last  time.Time
	t     *time.Timer
}

func (e *entity[S, E]) setReceiveTimeout(d time.Duration) {
	x := e.more()
	if x.receive != nil {
		x.receive.t.Stop()
		x.receive = nil
	}
	if d <= 0 {
		return
	}
	r := &receiveTimer{after: d, last: e.host.rt.steady()}
	x.receive = r
	r.t = time.AfterFunc(d, func() { e.happen(event[S, E]{receive: r}) })
}

// receiveDue tells the aggregate that no command came, or looks again later.
func (e *entity[S, E]) receiveDue(r *receiveTimer) {
	if e.extra == nil || e.extra.receive != r {
		return
	}
	now := e.host.rt.steady()
	quiet := now.Sub(r.last)
	if quiet < r.after {
		r.t.Reset(r.after - quiet)
		return
	}
	r.last = now
	r.t.Reset(r.after)
	e.signal(ReceiveTimeout{})
}

// watchDeadline sets the timer of an entity to its deadline. It may be
// that of events which are in flight, since under load there are always some: the signal is turned
// down if it is not the deadline when it is handled.
func (e *entity[S, E]) watchDeadline() {
	deadline := e.host.model.typ.Deadline
	if deadline == nil {
		return
	}
	var at time.Time
	if err := contain(e.pid, func() { at = deadline(e.instance.state) }); err != nil {
		e.host.rt.log.Error("the deadline panicked, there is none", slog.String("persistence_id", e.pid), slog.Any("error", err))
	}
	if at.IsZero() && e.extra == nil {
		return
	}
	x := e.more()
	if at.Equal(x.state) {
		return
	}
	x.state = at
	if x.deadline != nil {
		x.deadline.Stop()
		x.deadline = nil
	}
	if !at.IsZero() {
		x.deadline = time.AfterFunc(at.Sub(e.now), func() { e.happen(event[S, E]{deadline: at}) })
	}
}

// forgetDeadline has a fresh instance told about its deadline, although the one before was: what
// that led to may not be stored.
func (e *entity[S, E]) forgetDeadline() {
	x := e.extra
	if x == nil || x.state.IsZero() {
		return
	}
	x.state = time.Time{}
	if x.deadline != nil {
		x.deadline.Stop()
		x.deadline = nil
	}
}

// deadlineDue tells the aggregate that its state has timed out.
func (e *entity[S, E]) deadlineDue(at time.Time) {
	if e.extra != nil && e.extra.state.Equal(at) {
		e.extra.deadline = nil
		e.signal(StateTimeout{Deadline: at})
	}
}

// partsRecovered lets the parts of a fresh instance start. Those of a
// past state never do.
func (e *entity[S, E]) partsRecovered() {
	if e.host.opts.Recovery.readOnly() {
		return
	}
	for _, c := range e.instance.parts {
		e.outgoing(c.Recovered(e.host.rt.steady()))
	}
	e.tickParts()
}

// outgoing carries out the work that a part requests.
func (e *entity[S, E]) outgoing(o hosting.Outgoing) {
	for _, s := range o.Sends {
		e.host.rt.send(s, e.signalFrom)
	}
	for _, s := range o.Signals {
		e.signal(s)
	}
}

// tickParts sets the timer for the next tick of a part.
func (e *entity[S, E]) tickParts() {
	var next time.Time
	for _, c := range e.instance.parts {
		if at := c.Next(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		if e.extra != nil && e.extra.tick != nil {
			e.extra.tick.Stop()
		}
		return
	}
	x := e.more()
	d := max(0, next.Sub(e.host.rt.steady()))
	if x.tick == nil {
		x.tick = time.AfterFunc(d, func() { e.happen(event[S, E]{tick: true}) })
		return
	}
	x.tick.Reset(d)
}

// tick calls the parts whose time has come.
func (e *entity[S, E]) tick() {
	if e.machine.Recovering() {
		return
	}
	now := e.host.rt.steady()
	for _, c := range e.instance.parts {
		if at := c.Next(); !at.IsZero() && !at.After(now) {
			e.outgoing(c.Tick(now))
		}
	}
	e.tickParts()
}

// stopTimers ends what would wake an instance that is gone.
func (e *entity[S, E]) stopTimers() {
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
	for _, t := range []*time.Timer{x.wake, x.deadline, x.tick} {
		if t != nil {
			t.Stop()
		}
	}
	if x.receive != nil {
		x.receive.t.Stop()
	}
	e.extra = nil
}

// admits reports whether a signal still means something to the aggregate.
func (e *entity[S, E]) admits(s Signal) bool {
	if t, ok := s.(StateTimeout); ok {
		deadline := e.host.model.typ.Deadline
		return deadline != nil && deadline(e.instance.state).Equal(t.Deadline)
	}
	return e.instance.admits(s)
}

// awaits reports whether something will wake the entity that would be lost if it left memory.
func (e *entity[S, E]) awaits() bool {
	if e.instance.busy() {
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

// clock tells a runtime two times: the one that events carry, which may be set back and forth, and
// a steady one. What waits for a time to pass goes by that.
type clock struct {
	opened time.Time // with its monotonic reading
	wall   func() time.Time
}

// now is the time as events carry it.
func (c *clock) now() time.Time { return c.wall().UTC().Truncate(time.Microsecond) }

// steady never jumps and never goes back.
func (c *clock) steady() time.Time { return c.opened.Add(time.Since(c.opened)) }
