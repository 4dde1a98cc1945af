// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/internal/hosting"
)

// entity is the shell of one engine.Machine: its mailbox, its state and its timers. An entity that
// has input is scheduled on a worker, which calls takeTurn. An idle entity consists of this struct
// and its state only.
//
// The fields below mu are guarded by mu. All others belong to the goroutine that takes the turn.
type entity struct {
	next     *entity // in the queue of the workers
	host     *host
	machine  engine.Machine
	instance instance
	stream   groupcommit.Stream
	own      *string                 // the ID, if the type has a PersistenceID
	context  effect                  // the Context of all handlers, see contextOf
	op       *engine.Op              // the message that user code handles; nil outside of user code
	extra    *extra                  // nil until it is needed
	abandon  context.CancelCauseFunc // ends the recovery; nil if none runs
	lastUsed atomic.Int32            // host.sweeps at the last message
	running  atomic.Bool             // the instance is recovered and has not failed

	absent     bool // the entity has no instance
	passivates bool // the entity stops because it is idle, or by Effect.Passivate
	commanded  bool // the instance has received a command
	readOnly   bool // the instance was recovered to an earlier event
	partial    bool // the instance was recovered without its events, see Recovery.Disabled
	emptied    bool // a failed recovery is reported to an empty state
	onCaller   bool // a caller has the turn, and may append its events
	index      indexState

	mu      sync.Mutex
	mailbox engine.Queue
	inputs  *[]input // other input of the machine, in order; nil for none
	stored  int32    // number of stored units that the machine has not handled yet
	waiting int32    // messages that waited in the machine after the last turn
	stops   stops
	queued  bool // a worker or a caller has the turn
	gone    bool // the host has removed it
}

// input is an input of the machine, or a function that is called in the next turn.
type input struct {
	engine.Input

	call func(out *engine.Effects)
}

type stops uint8

const (
	stopIdle   stops = 1 << iota // stop if the entity has no work
	stopMoved                    // after the messages in the mailbox, by hosting.Host.Drain
	stopClosed                   // after the messages in the mailbox, because the host closes
	stopKill                     // at once, because the runtime ends
	stopForce                    // at once, by hosting.Host.Kill

	stopDrain = stopMoved | stopClosed
)

// extra holds the fields that few entities need.
type extra struct {
	timers     map[string]*timer
	backoff    *time.Timer
	receive    *receiveTimer
	deadline   *time.Timer // of Type.Deadline
	deadlineAt time.Time   // the time for which deadline is set or was set
	tick       *time.Timer // of the parts
	entry      *indexEntry // in state indexRequested or indexed
	unsent     []*engine.Step
}

func newEntity(h *host, id, pid string) *entity {
	e := &entity{host: h, absent: true}
	if h.model.naming.to != nil {
		e.own = &id
	}
	e.context.entity = e
	e.machine.Init(&h.engine, e, pid)
	return e
}

func (e *entity) pid() string { return e.machine.ID() }

func (e *entity) id() string {
	if e.own != nil {
		return *e.own
	}
	return cutID(e.pid(), e.host.model.name)
}

type acceptance uint8

const (
	accepted    acceptance = iota
	entityGone             // the entity has left the host
	mailboxFull            // the mailbox is at its limit
)

// accept puts a message into the mailbox if it holds fewer than limit messages. If limit is
// negative, the mailbox has no limit.
func (e *entity) accept(env *engine.Envelope, limit int) acceptance {
	meter := e.meter()
	e.mu.Lock()
	switch {
	case e.gone:
		e.mu.Unlock()
		return entityGone
	case limit >= 0 && e.mailbox.Len() >= limit:
		e.mu.Unlock()
		return mailboxFull
	}
	if meter != nil {
		meter.Queued.Add(1)
	}
	if e.idle() && e.accepts(env) {
		e.queued = true
		e.mu.Unlock()
		return accepted
	}
	e.mailbox.Push(env)
	e.schedule()
	return accepted
}

// idle reports whether a caller may take the turn for a message that arrives now. No message that was
// sent before it may wait: mu is locked, and if no turn runs or waits, the machine has no owner. While
// events of others are being stored, workers take all turns: they fill a batch of the journal faster
// than callers that wake up one by one.
func (e *entity) idle() bool {
	h := e.host
	return h.offers && !e.queued && e.mailbox.Len() == 0 && e.machine.Open() && (h.writer == nil || h.writer.Idle())
}

// meter returns the meter of the entity, nil if no load is measured.
func (e *entity) meter() *hosting.Meter {
	if e.host.hooks.Meter == nil {
		return nil
	}
	return e.host.hooks.Meter(e.id())
}

// measure counts a turn that began at a time with a number of messages in the mailbox. mu is locked.
func measure(m *hosting.Meter, began time.Time, messages, left int) {
	m.Busy.Add(int64(time.Since(began)))
	m.Handled.Add(uint64(max(0, messages-left)))
	m.Queued.Add(int64(left - messages))
}

// schedule passes the entity to the workers and unlocks mu.
func (e *entity) schedule() {
	wake := !e.queued
	e.queued = true
	e.mu.Unlock()
	if wake {
		e.host.rt.workers.push(e)
	}
}

// post adds an input for the machine.
func (e *entity) post(in engine.Input) {
	e.mu.Lock()
	e.add(input{Input: in})
	e.schedule()
}

// add adds an input. mu is locked.
func (e *entity) add(in input) {
	if e.inputs == nil {
		e.inputs = new([]input)
	}
	*e.inputs = append(*e.inputs, in)
}

// do calls f in the next turn.
func (e *entity) do(f func(out *engine.Effects)) {
	e.mu.Lock()
	e.add(input{call: f})
	e.schedule()
}

func (e *entity) stop(s stops) {
	e.mu.Lock()
	if !e.gone {
		e.stops |= s
	}
	e.schedule()
}

func (e *entity) signal(s Signal) { e.signalFrom(context.Background(), s) }

func (e *entity) signalFrom(ctx context.Context, s Signal) {
	if e.host.engine.Signals {
		env := envelope(ctx, s)
		env.Signal = true
		e.accept(env, -1)
	}
}

// leave marks an entity as gone unless it has input. It returns the commands and the stops for the
// next instance; signals are meant for this one. The host's shard is locked.
func (e *entity) leave() (rest engine.Queue, requested stops, gone bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone || e.mailbox.Len() > 0 && !e.machine.Draining() || e.inputs != nil || e.stored > 0 {
		return rest, 0, false
	}
	left := e.mailbox.Len()
	for env := e.mailbox.Pop(); env != nil; env = e.mailbox.Pop() {
		if !env.Signal {
			rest.Push(env)
		}
	}
	if meter := e.meter(); meter != nil {
		meter.Queued.Add(int64(rest.Len() - left))
	}
	requested, e.stops, e.gone = e.stops, 0, true
	return rest, requested, true
}

// Written implements groupcommit.Owner.
func (e *entity) Written(_ *groupcommit.Request, err error) {
	if err != nil {
		e.post(engine.Input{Kind: engine.NotStored, Err: err})
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
	handled, ended := true, false
	defer func() { // also if user code calls runtime.Goexit
		e.mu.Lock()
		switch {
		case !ended:
			// The machine may have counted this unit already. A second count would acknowledge the next
			// unit before it is stored.
			e.add(input{Input: engine.Input{Kind: engine.Continue}})
		case !handled:
			e.stored++
		}
		e.queued = false
		if e.hasInput() {
			e.schedule()
			return
		}
		e.mu.Unlock()
	}()
	handled = e.answerStored()
	ended = true
}

// answerStored handles a stored unit on the writer's goroutine if the unit can lead only to
// replies. This is the common case, and it needs no turn of a worker. Otherwise answerStored does
// nothing and returns false. The caller owns the entity as in a turn.
func (e *entity) answerStored() bool {
	if !e.machine.Plain() || len(e.instance.parts()) > 0 || e.host.model.deadline != nil {
		return false
	}
	out := e.host.rt.effects.Get().(*engine.Effects) //nolint:errcheck,forcetypeassert // New makes nothing else
	e.step(engine.Input{Kind: engine.Stored, N: 1}, out)
	e.host.rt.effects.Put(out)
	return true
}

// hasArrivals reports whether messages arrived during the turn. A signal among them, such as that of
// a deadline, is meant for this instance and would be lost with it.
func (e *entity) hasArrivals() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mailbox.Len() > 0
}

// hasInput reports whether the entity needs a turn. A drained entity keeps messages. mu is locked.
func (e *entity) hasInput() bool {
	return e.stored > 0 || e.inputs != nil || e.mailbox.Len() > 0 && !e.machine.Draining() || e.stops != 0
}

// Room implements groupcommit.Owner.
func (e *entity) Room() { e.do(e.submitUnsent) }

// messagesPerTurn limits a turn, so that one entity does not occupy a worker.
const messagesPerTurn = 256

// takeTurn takes a turn: it handles the input that has arrived. It reports whether another turn is needed.
func (e *entity) takeTurn(out *engine.Effects) (again bool) {
	e.mu.Lock()
	var inputs []input
	if e.inputs != nil {
		inputs = *e.inputs
	}
	stored, mailbox, requested := e.stored, e.mailbox, e.stops
	e.stored, e.inputs, e.mailbox, e.stops = 0, nil, engine.Queue{}, 0
	e.mu.Unlock()
	return e.handle(stored, inputs, mailbox, requested, out)
}

// takeCallersTurn takes a turn for one message on the goroutine of its caller. The entity has accepted
// the caller's offer, so the caller owns it. If the writer of a local journal has nothing else to do, the
// caller also appends the events of the turn, after it has given up the entity. It never waits for a
// network, because an append does not end with the caller's context.
func (e *entity) takeCallersTurn(c *call) {
	rt, w := e.host.rt, e.host.writer
	out := rt.effects.Get().(*engine.Effects) //nolint:errcheck,forcetypeassert // New makes nothing else
	var mailbox engine.Queue
	mailbox.Push(&c.env)
	again, ended := true, false
	e.onCaller = e.host.local
	defer func() { // also if user code calls runtime.Goexit
		if ended {
			return
		}
		if v := recover(); v != nil {
			// It is no panic of user code. It ends the process, as on a worker, even if the caller recovers.
			stack := debug.Stack()
			e.do(func(*engine.Effects) { panic(fmt.Sprintf("%v\n%s", v, stack)) })
		}
		if again {
			rt.workers.push(e)
		}
		if w != nil {
			w.Commit(&e.stream, false)
		}
	}()
	if again = e.handle(0, nil, mailbox, 0, out); again {
		again = false
		rt.workers.push(e)
	}
	rt.effects.Put(out)
	if w != nil && w.Left() {
		w.Commit(&e.stream, c.ctx.Err() == nil)
	} else {
		rt.letCallersRun()
	}
	ended = true
}

// handle handles input in a turn: the number of stored units, other input, messages and requests to
// stop. It reports whether another turn is needed.
func (e *entity) handle(stored int32, inputs []input, mailbox engine.Queue, requested stops, out *engine.Effects) (again bool) {
	meter := e.meter()
	var began time.Time
	if meter != nil {
		began = time.Now()
	}
	messages := mailbox.Len()
	idle, kill, ended := requested&stopIdle != 0, requested&(stopForce|stopKill) != 0, false
	defer func() { // also if user code calls runtime.Goexit
		e.onCaller = false
		e.mu.Lock()
		if len(inputs) > 0 {
			rest := inputs
			if e.inputs != nil {
				rest = append(rest, *e.inputs...)
			}
			e.inputs = &rest
		}
		if meter != nil {
			measure(meter, began, messages, mailbox.Len())
		}
		e.mailbox.Prepend(&mailbox)
		e.stops |= requested
		e.waiting = e.machine.Waiting()
		if e.absent || idle {
			e.mu.Unlock()
			if e.absent {
				e.host.remove(e, out)
			}
			if ended && idle && !e.gone && !e.machine.Parting() {
				e.busy()
			}
			e.mu.Lock()
		}
		again = e.hasInput() || !ended
		e.queued = again
		e.mu.Unlock()
	}()

	e.machine.SetNow(e.host.rt.now())
	if stored > 0 {
		e.step(engine.Input{Kind: engine.Stored, N: int(stored)}, out)
	}
	for len(inputs) > 0 {
		in := inputs[0]
		inputs = inputs[1:]
		if in.call != nil {
			in.call(out)
		} else {
			e.step(in.Input, out)
		}
	}
	if mailbox.Len() > 0 && !kill && !e.machine.Draining() {
		e.used()
		for range messagesPerTurn {
			env := mailbox.Pop()
			if env == nil {
				break
			}
			e.deliver(env, out)
		}
	}
	if mailbox.Len() > 0 && !kill && !e.machine.Draining() {
		requested &= stopDrain // postponed until the mailbox is empty
	} else if requested != 0 {
		e.handleStops(requested, &mailbox, out)
		requested = 0
	}
	if mailbox.Len() == 0 && e.machine.Vacant() && e.commanded && e.host.leaves {
		e.stopIdle(nil, out)
	}
	ended = true
	return again
}

func (e *entity) deliver(env *engine.Envelope, out *engine.Effects) {
	command, signal := env.Message, env.Signal // env may be reused after the step
	if _, start := command.(hosting.Start); !signal && !start {
		e.commanded = true
	}
	e.step(engine.Input{Kind: engine.Deliver, Env: env}, out)
	if f := e.host.rt.obs.Stashed; f != nil && !signal && e.machine.Last() == env && !isHidden(command) {
		e.host.rt.observe(func() { f(StashInfo{PersistenceID: e.pid(), Command: command}) })
	}
}

// handleStops stops the instance. The messages are those that wait at a Kill.
func (e *entity) handleStops(s stops, messages *engine.Queue, out *engine.Effects) {
	if s&stopIdle != 0 {
		e.stopIdle(e.farewell(StopIdle), out)
	}
	if s&stopDrain != 0 {
		reason := StopMoved
		if s&stopClosed != 0 {
			reason = StopClosed
		}
		e.step(engine.Input{Kind: engine.Drain, Env: e.farewell(reason)}, out)
	}
	if s&(stopForce|stopKill) != 0 {
		in := engine.Input{Kind: engine.Kill}
		if s&stopForce != 0 {
			in.Err = e.host.hooks.Killed
		}
		e.step(in, out)
		e.reject(messages, out)
	}
}

// stopIdle stops the entity if it has no work.
func (e *entity) stopIdle(farewell *engine.Envelope, out *engine.Effects) {
	if e.hasTimers() || e.hasArrivals() {
		return
	}
	e.step(engine.Input{Kind: engine.Idle, Env: farewell}, out)
	e.passivates = e.passivates || e.absent || e.machine.Parting()
}

// farewell returns the Stopping signal, nil if the type does not handle it.
func (e *entity) farewell(reason StopReason) *engine.Envelope {
	if !e.host.farewells {
		return nil
	}
	return &engine.Envelope{Message: Stopping{Reason: reason}, Signal: true}
}

// busy reports that the entity stays in memory after hosting.Host.Passivate.
func (e *entity) busy() {
	if f := e.host.hooks.Busy; f != nil {
		f(e.id())
	}
}

// reject answers messages with the error of a machine that has drained or was killed.
func (e *entity) reject(messages *engine.Queue, out *engine.Effects) {
	for env := messages.Pop(); env != nil; env = messages.Pop() {
		e.step(engine.Input{Kind: engine.Deliver, Env: env}, out)
	}
}

func (e *entity) used() {
	e.lastUsed.Store(e.host.sweeps.Load())
	if e.extra != nil && e.extra.receive != nil {
		e.extra.receive.last = e.host.rt.steady()
	}
}

func (e *entity) needExtra() *extra {
	if e.extra == nil {
		e.extra = &extra{}
	}
	return e.extra
}

// step takes a step of the machine. If an immediate journal has stored units of the step, the steps
// that report them follow.
func (e *entity) step(in engine.Input, out *engine.Effects) {
	e.stepOnce(in, out)
	for len(out.Append) > 0 && e.host.writer.Immediate() {
		e.mu.Lock()
		in = engine.Input{Kind: engine.Stored, N: int(e.stored)}
		e.stored = 0
		e.mu.Unlock()
		if in.N == 0 {
			return
		}
		e.stepOnce(in, out)
	}
}

func (e *entity) stepOnce(in engine.Input, out *engine.Effects) {
	out.Reset()
	defer func() { // also if user code calls runtime.Goexit
		e.perform(out)
		if !out.More {
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.inputs == nil || !slices.ContainsFunc(*e.inputs, func(i input) bool { return i.Kind == engine.Continue }) {
			e.add(input{Input: engine.Input{Kind: engine.Continue}})
		}
	}()
	e.machine.Step(e.machine.Now(), in, out)
}
