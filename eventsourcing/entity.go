// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/groupcommit"
)

// entity is the shell around one machine: its mailbox, and what belongs to it in memory. While it
// has nothing to do it is only this struct.
//
// A worker that takes its turn owns everything but what mu guards.
type entity[S, E any] struct {
	task     task
	host     *Local[S, E]
	pid      string
	machine  engine.Machine
	instance instance[S, E]
	stream   groupcommit.Stream
	context  Context[S, E, None] // of all handlers, see contextOf
	op       *engine.Op          // that user code handles, else nil
	now      time.Time           // of this turn
	lastUsed atomic.Int64        // Unix nanoseconds of the steady clock
	extra    *extra              // what few entities need; nil until then

	mu     sync.Mutex
	inbox  engine.Queue
	events []event[S, E] // what else happened, in order
	stored int           // units stored that the machine does not know of
	wants  wants
	queued bool // with the workers
	gone   bool // removed from the host

	absent     bool // has no instance; not guarded by mu
	passivates bool // asked for it, or was asked to; not guarded by mu
}

// event is something other than a message and a stored unit that happened.
type event[S, E any] struct {
	input engine.Input
	fresh instance[S, E] // of Recovered

	// Instead of an input:
	room     bool          // the writer has room
	tick     bool          // of the parts
	receive  *receiveTimer // is due
	deadline time.Time     // is due
}

type wants uint8

const (
	wantIdle wants = 1 << iota
	wantDrain
	wantKill
	wantForce // by hosting.Host.Kill
)

// extra is the part of an entity's memory that few entities need.
type extra struct {
	timers   map[string]*timer
	wake     *time.Timer // ends the back-off
	receive  *receiveTimer
	deadline *time.Timer // of Type.Deadline
	state    time.Time   // what deadline is set to, or was
	tick     *time.Timer // of the parts
	unsent   []*engine.Step
}

func newEntity[S, E any](h *Local[S, E], pid string) *entity[S, E] {
	e := &entity[S, E]{host: h, pid: pid}
	e.task.turn = e
	e.context.entity = e
	e.machine.Init(&h.engine, e, pid)
	return e
}

// id is the entity's own ID.
func (e *entity[S, E]) id() string { return cutID(e.pid, e.host.model.typ.Name) }

// accepted says what became of a message for a mailbox.
type accepted uint8

const (
	mailboxTook accepted = iota
	// mailboxGone: the entity has left the host.
	mailboxGone
	// mailboxFull: it holds as much as a stash may.
	mailboxFull
)

// accept puts a message into the mailbox if it holds fewer than most; negative means no bound.
func (e *entity[S, E]) accept(env *engine.Envelope, most int) accepted {
	e.mu.Lock()
	switch {
	case e.gone:
		e.mu.Unlock()
		return mailboxGone
	case most >= 0 && e.inbox.Len() >= most:
		e.mu.Unlock()
		return mailboxFull
	}
	e.inbox.Push(env)
	e.schedule()
	return mailboxTook
}

// schedule hands the entity to the workers and unlocks mu.
func (e *entity[S, E]) schedule() {
	wake := !e.queued
	e.queued = true
	e.mu.Unlock()
	if wake {
		e.host.rt.workers.push(&e.task)
	}
}

// happen takes in an input for the machine.
func (e *entity[S, E]) happen(ev event[S, E]) {
	e.mu.Lock()
	e.events = append(e.events, ev)
	e.schedule()
}

func (e *entity[S, E]) input(in engine.Input) { e.happen(event[S, E]{input: in}) }

// want asks for a change of life at the next turn, behind the messages that are there.
func (e *entity[S, E]) want(w wants) {
	e.mu.Lock()
	e.wants |= w
	e.schedule()
}

// signal sends a signal of the runtime to the aggregate.
func (e *entity[S, E]) signal(s Signal) { e.signalFrom(context.Background(), s) }

// signalFrom sends a signal with the context of what led to it.
func (e *entity[S, E]) signalFrom(ctx context.Context, s Signal) {
	if e.host.engine.Signals {
		env := envelope(ctx, s)
		env.Signal = true
		e.accept(env, -1)
	}
}

// leave marks an entity without messages as gone; the host's shard is locked.
func (e *entity[S, E]) leave() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone || e.inbox.Len() > 0 || len(e.events) > 0 || e.stored > 0 {
		return false
	}
	e.gone = true
	return true
}

// Written is part of groupcommit.Owner.
func (e *entity[S, E]) Written(_ *groupcommit.Request, err error) {
	if err != nil {
		e.input(engine.Input{Kind: engine.NotStored, Err: err})
		return
	}
	e.mu.Lock()
	if e.queued {
		e.stored++
		e.mu.Unlock()
		return
	}
	e.queued = true
	e.mu.Unlock()
	e.finishTurn(!e.answerStored())
}

// answerStored lets out, on the writer's goroutine, answers that only waited for a unit to be
// stored: most do, and a turn of a worker would cost as much as all the rest. It is false when
// there is more to it, and then nothing was done. The caller owns the entity as in a turn.
func (e *entity[S, E]) answerStored() bool {
	if !e.machine.Plain() || len(e.instance.parts) > 0 || e.host.model.typ.Deadline != nil {
		return false
	}
	out := e.host.rt.effects.Get().(*engine.Effects) //nolint:errcheck,forcetypeassert // New makes nothing else
	e.step(engine.Input{Kind: engine.Stored, N: 1}, out)
	e.host.rt.effects.Put(out)
	return true
}

// finishTurn gives up the entity, or hands it to the workers if something has happened meanwhile or
// a unit that was stored is not yet taken in.
func (e *entity[S, E]) finishTurn(stored bool) {
	e.mu.Lock()
	if stored {
		e.stored++
	}
	e.queued = false
	if e.stored > 0 || len(e.events) > 0 || e.inbox.Len() > 0 || e.wants != 0 {
		e.schedule()
		return
	}
	e.mu.Unlock()
}

// Room is part of groupcommit.Owner.
func (e *entity[S, E]) Room() { e.happen(event[S, E]{room: true}) }

// messagesPerTurn bounds a turn, so that no entity keeps a worker.
const messagesPerTurn = 256

// takeTurn is part of turner: it takes in what has happened.
func (e *entity[S, E]) takeTurn(out *engine.Effects) (again bool) {
	e.mu.Lock()
	stored, events, inbox, wanted := e.stored, e.events, e.inbox, e.wants
	e.stored, e.events, e.inbox, e.wants = 0, nil, engine.Queue{}, 0
	e.mu.Unlock()

	e.now = e.host.rt.now()
	if stored > 0 {
		e.step(engine.Input{Kind: engine.Stored, N: stored}, out)
	}
	for i := range events {
		e.take(&events[i], out)
	}
	if inbox.Len() > 0 {
		e.used()
		for range messagesPerTurn {
			env := inbox.Pop()
			if env == nil {
				break
			}
			e.deliver(env, out)
		}
	}
	if wanted&wantDrain != 0 && inbox.Len() > 0 {
		wanted &^= wantDrain // behind what was accepted before
		e.mu.Lock()
		e.wants |= wantDrain
		e.mu.Unlock()
	}
	if wanted != 0 {
		e.changeLife(wanted, out)
	}
	if e.absent { // now that nothing of this turn can start it again
		e.host.remove(e)
	}

	e.mu.Lock()
	e.inbox.Prepend(&inbox)
	again = e.stored > 0 || len(e.events) > 0 || e.inbox.Len() > 0 || e.wants != 0
	e.queued = again
	e.mu.Unlock()
	return again
}

// deliver has the machine take in a message.
func (e *entity[S, E]) deliver(env *engine.Envelope, out *engine.Effects) {
	stashed := e.host.rt.obs.Stashed
	if stashed == nil || env.Signal {
		e.step(engine.Input{Kind: engine.Deliver, Env: env}, out)
		return
	}
	info := StashInfo{PersistenceID: e.pid, Command: env.Message} // the envelope may be gone then
	e.step(engine.Input{Kind: engine.Deliver, Env: env}, out)
	if _, ok := info.Command.(hidden); !ok && e.machine.Last() == env {
		stashed(info)
	}
}

// take takes in one event.
func (e *entity[S, E]) take(ev *event[S, E], out *engine.Effects) {
	switch {
	case ev.room:
		e.submitUnsent(out)
		return
	case ev.tick:
		e.tick()
		return
	case ev.receive != nil:
		e.receiveDue(ev.receive)
		return
	case !ev.deadline.IsZero():
		e.deadlineDue(ev.deadline)
		return
	case ev.input.Kind == engine.Recovered && ev.input.Err == nil:
		e.instance = ev.fresh
		if e.machine.Recovering() { // and was not stopped meanwhile
			e.partsRecovered()
		}
	}
	e.step(ev.input, out)
	if ev.input.Kind == engine.Recovered && ev.input.Err == nil {
		e.forgetDeadline()
		e.watchDeadline()
	}
}

func (e *entity[S, E]) changeLife(w wants, out *engine.Effects) {
	if w&wantIdle != 0 && !e.awaits() {
		e.step(engine.Input{Kind: engine.Idle}, out)
		e.passivates = e.passivates || e.absent
	}
	if w&wantIdle != 0 && !e.absent && e.host.hooks.Busy != nil {
		e.host.hooks.Busy(e.id())
	}
	if w&wantDrain != 0 {
		e.step(engine.Input{Kind: engine.Drain}, out)
	}
	if w&wantForce != 0 {
		e.step(engine.Input{Kind: engine.Kill, Err: e.host.hooks.Killed}, out)
	}
	if w&wantKill != 0 {
		e.step(engine.Input{Kind: engine.Kill}, out)
	}
}

// used notes that a command came.
func (e *entity[S, E]) used() {
	if e.host.opts.PassivateAfter > 0 {
		e.lastUsed.Store(e.host.rt.steady().UnixNano())
	}
	if e.extra != nil && e.extra.receive != nil {
		e.extra.receive.last = e.host.rt.steady()
	}
}

// more returns the entity's extra memory.
func (e *entity[S, E]) more() *extra {
	if e.extra == nil {
		e.extra = &extra{}
	}
	return e.extra
}

// step has the machine take in an input, and carries out what it asks for. What is left to do waits
// for the next turn.
func (e *entity[S, E]) step(in engine.Input, out *engine.Effects) {
	out.Reset()
	e.machine.Step(e.now, in, out)
	e.perform(out)
	if out.More {
		e.goOn()
	}
}

// goOn has the machine continue in the next turn.
func (e *entity[S, E]) goOn() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.events {
		if e.events[i].input.Kind == engine.Continue {
			return
		}
	}
	e.events = append(e.events, event[S, E]{input: engine.Input{Kind: engine.Continue}})
}
