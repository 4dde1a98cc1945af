// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package env simulates computers and the network between them in one thread. Its only input is a
// seed: the same seed gives the same events at the same times.
//
//	Program   <-- Wake, Receive, Connection --   Process   -- frames -->   broker   --> Process
//	          --- Send, WakeAt, After, Call --> (a clock,              (faults)
//	                                             links)
//
// A Process runs a Program. Its messages pass through the machines of package internal/link, in
// frames that a broker forwards. Each node has its own link to the broker. Faults apply to a node
// or to a pair of nodes. A process has its own clock, and can be paused and killed.
package env

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

// Env is a simulated environment. It is not safe for concurrent use.
type Env struct {
	// Rand is the source of all random decisions.
	Rand *rand.Rand
	// Network is the configuration of the network, with its delays and faults.
	Network Network
	// Direct bypasses links and frames: messages arrive at most once, in any order. This takes much
	// less memory with thousands of nodes.
	Direct bool
	// Trace is called with each event as text, if it is not nil.
	Trace func(at time.Duration, text string)

	now      time.Duration
	queue    queue
	hash     uint64
	dataRand *rand.Rand // dataRand is used for frames on all lanes except Control, so that these frames do not change the random decisions for Control

	places  map[string]*Place
	byUID   map[uint64]*Process
	ordered map[route]time.Duration
	traffic Traffic
	gaps    map[[2]uint64]Gap
}

// New returns an environment for a seed.
func New(seed uint64) *Env {
	return &Env{
		Rand: rand.New(rand.NewPCG(seed, 0x5eed)), Network: Network{Delay: Between{time.Millisecond, 5 * time.Millisecond}}, //nolint:gosec // must be repeatable
		dataRand: rand.New(rand.NewPCG(seed, 0x1a9e5)), //nolint:gosec // must be repeatable
		hash:     fnvOffset, places: map[string]*Place{}, byUID: map[uint64]*Process{}, ordered: map[route]time.Duration{},
		gaps: map[[2]uint64]Gap{},
	}
}

// Now returns the time since the start.
func (w *Env) Now() time.Duration { return w.now }

// Hash returns a hash of all events so far.
func (w *Env) Hash() uint64 { return w.hash }

// Logf adds a line to the trace.
func (w *Env) Logf(format string, args ...any) {
	if w.Trace != nil {
		w.Trace(w.now, fmt.Sprintf(format, args...))
	}
}

// Traced reports whether there is a trace.
func (w *Env) Traced() bool { return w.Trace != nil }

// After calls f after some time.
func (w *Env) After(d time.Duration, f func()) { w.queue.push(event{at: w.now + max(0, d), do: f}) }

// Run advances the time by d, or until done returns true. It calls done, if it is not nil, after
// each event, and reports whether done returned true.
func (w *Env) Run(d time.Duration, done func() bool) bool {
	end := w.now + d
	for len(w.queue.events) > 0 && w.queue.events[0].at <= end {
		e := w.queue.pop()
		w.now = max(w.now, e.at)
		w.handle(&e)
		if done != nil && done() {
			return true
		}
	}
	w.now = max(w.now, end)
	return false
}

// Until advances the time until holds returns true, at most by the duration most. It calls holds at
// the interval and returns its last result. It returns false as soon as failed returns true. failed
// may be nil.
func (w *Env) Until(most, interval time.Duration, holds, failed func() bool) bool {
	for end := w.now + most; w.now < end && !holds(); {
		if w.Run(interval, failed) {
			return false
		}
	}
	return holds()
}

func (w *Env) handle(e *event) {
	switch {
	case e.do != nil:
		w.mix(1, uint64(e.at)) //nolint:gosec // not negative
		e.do()
	case e.data != nil:
		w.arrive(e)
	default:
		e.to.wake(e.at)
	}
}

// Place is a computer with its link to the broker and its wall clock. All processes with the name
// of the place run there, one after the other.
type Place struct {
	Name string
	// NoUp drops all frames to the broker, NoDown all frames from it.
	NoUp, NoDown bool
	// Side is the half of a split broker to which the place is connected.
	Side int
	// Wall is the difference between the wall clock and the true time.
	Wall time.Duration
	// Drift is the drift of the process clocks in parts per million. With a positive drift, a clock
	// runs too fast.
	Drift int64
	// Slow is the additional delay of messages.
	Slow time.Duration

	nr        int
	processes []*Process
}

// Place returns the place with a name.
func (w *Env) Place(name string) *Place {
	p := w.places[name]
	if p == nil {
		p = &Place{Name: name, nr: len(w.places)}
		w.places[name] = p
	}
	return p
}

func (w *Env) uid() uint64 {
	for {
		if uid := w.Rand.Uint64(); uid != 0 && w.byUID[uid] == nil {
			return uid
		}
	}
}

// Start starts a process. The function program returns its Program. It may use the process, but
// must not call Send.
func (w *Env) Start(name string, program func(*Process) Program) *Process {
	p := &Process{w: w, place: w.Place(name), began: w.now, wakeAt: never}
	p.node = identity.Node{Name: name, UID: w.uid()}
	p.drift = p.place.Drift
	p.offset = time.Duration(w.Rand.Int64N(int64(time.Hour)))
	w.byUID[p.node.UID] = p
	p.place.processes = append(p.place.processes, p)
	w.mix(2, p.node.UID)
	if !w.Direct {
		links, err := link.New(link.Config{Self: p.node, MaxFrame: maxFrame})
		if err != nil {
			panic(fmt.Sprintf("sim: links of %v: %v", p.node, err)) // the simulator's names are valid
		}
		p.links = links
	}
	p.program = program(p)
	return p
}

// event is a future event: a call of do, the arrival of a frame, or a wake-up of a process.
type event struct {
	at   time.Duration
	seq  uint64
	do   func()
	from *Process
	to   *Process
	data []byte // the frame, or the message with Direct
	kind uint16 // of a message
	name bool   // sent to the name without a UID
	lane uint8
}

// queue is a heap of events. Events at the same time keep their order of insertion.
type queue struct {
	events []event
	seq    uint64
}

func (q *queue) less(i, j int) bool {
	a, b := &q.events[i], &q.events[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (q *queue) push(e event) {
	q.seq++
	e.seq = q.seq
	q.events = append(q.events, e)
	for i := len(q.events) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			return
		}
		q.events[i], q.events[parent] = q.events[parent], q.events[i]
		i = parent
	}
}

func (q *queue) pop() event {
	e := q.events[0]
	last := len(q.events) - 1
	q.events[0] = q.events[last]
	q.events[last] = event{}
	q.events = q.events[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if q.less(child, least) {
				least = child
			}
		}
		if least == i {
			return e
		}
		q.events[i], q.events[least] = q.events[least], q.events[i]
		i = least
	}
}

// The hash is FNV-1a over words and bytes.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func (w *Env) mix(kind, value uint64) {
	w.hash = (w.hash ^ kind) * fnvPrime
	w.hash = (w.hash ^ uint64(w.now)) * fnvPrime //nolint:gosec // not negative
	w.hash = (w.hash ^ value) * fnvPrime
}

func (w *Env) mixBytes(b []byte) {
	if w.Direct { // hashing all data would take too long
		return
	}
	h := w.hash
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	w.hash = h
}

const (
	never = time.Duration(math.MaxInt64)
	// maxWaiting is the number of frames that the broker buffers for a paused process. The broker
	// drops further frames.
	maxWaiting = 20_000
)

// Program is the program of a process. Its methods are called one at a time.
type Program interface {
	// Wake is called at the time of WakeAt.
	Wake()
	// Receive delivers a message.
	Receive(m Message)
	// Connection reports that the link to the broker was lost or restored. Some losses are not
	// reported.
	Connection(up bool)
}

// Message is a message between processes.
type Message struct {
	From identity.Node
	// To is the addressed incarnation. If its UID is 0, the message is addressed to the name.
	To   identity.Node
	Kind link.Kind
	// Arrived is the time of arrival on the receiver's clock.
	Arrived time.Duration
	Data    []byte
}

// Process is one run of a program.
type Process struct {
	w       *Env
	node    identity.Node
	place   *Place
	program Program
	links   *link.Machine

	began  time.Duration // on the clock of the environment
	offset time.Duration // the process's own clock at began
	drift  int64

	wakeAt time.Duration // on the clock of the environment
	linkAt time.Duration

	dead    bool
	paused  bool
	resumed time.Duration
	late    []func() // calls that were due during a pause, in order
	woken   bool
	frames  int
}

// Node returns the identity of the process.
func (p *Process) Node() identity.Node { return p.node }

// Place returns the computer of the process.
func (p *Process) Place() *Place { return p.place }

// Dead reports whether the process has ended.
func (p *Process) Dead() bool { return p.dead }

// Paused reports whether the process is paused.
func (p *Process) Paused() bool { return p.paused }

// Resumed returns the time of the last Resume, on the clock of the environment.
func (p *Process) Resumed() time.Duration { return p.resumed }

// Now returns the time of the process's own monotonic clock.
func (p *Process) Now() time.Duration { return p.local(p.w.now) }

// Began returns the time of the start, on the clock of the environment.
func (p *Process) Began() time.Duration { return p.began }

// Wall returns the wall time at which the process's own clock was 0.
func (p *Process) Wall() time.Time {
	return time.Unix(1_700_000_000, 0).Add(p.began + p.place.Wall - p.offset)
}

func (p *Process) local(at time.Duration) time.Duration {
	passed := at - p.began
	return p.offset + passed + time.Duration(int64(passed)/1000*p.drift/1000)
}

// global returns the first time of the environment at which the process's clock reaches at.
func (p *Process) global(at time.Duration) time.Duration {
	passed := at - p.offset
	g := p.began + passed - time.Duration(int64(passed)/1000*p.drift/1000)
	for p.local(g) < at {
		g += max(1, at-p.local(g))
	}
	return g
}

// WakeAt calls Wake at a time of the process's own clock. It replaces an earlier call. The maximum
// duration means never.
func (p *Process) WakeAt(at time.Duration) {
	switch {
	case p.dead:
	case at == never:
		p.wakeAt = never
	default:
		if g := max(p.w.now, p.global(at)); g != p.wakeAt {
			p.wakeAt = g
			p.w.queue.push(event{at: g, to: p})
		}
	}
}

// Alarm calls a state machine at the times that the machine requests. The zero value is ready to
// use.
type Alarm struct {
	at  time.Duration
	set bool
}

// Set schedules one call of tick at the time that next returns, unless an earlier call is
// scheduled. The function next returns the next time of the machine, now returns the current time,
// and after calls a function after a delay.
func (a *Alarm) Set(next, now func() time.Duration, after func(time.Duration, func()), tick func()) {
	at := next()
	if at == never || a.set && at >= a.at {
		return
	}
	a.at, a.set = at, true
	after(at-now(), func() {
		if !a.set || a.at != at {
			return
		}
		a.set = false
		if next() <= now() {
			tick()
		}
		a.Set(next, now, after, tick)
	})
}

func (p *Process) wake(at time.Duration) {
	switch {
	case p.dead:
	case p.linkAt == at && p.links != nil && !p.paused:
		p.linkAt = 0
		p.links.Tick(p.Now())
		p.flush()
		if p.wakeAt == at {
			p.wake(at)
		}
	case p.wakeAt != at:
	case p.paused:
		p.woken = true
	default:
		p.wakeAt = never
		p.w.mix(3, p.node.UID)
		p.program.Wake()
		p.flush()
	}
}

// After calls f after some time of the process's own clock, unless the process has ended.
func (p *Process) After(d time.Duration, f func()) {
	p.w.After(p.global(p.Now()+max(0, d))-p.w.now, func() { p.Do(f) })
}

// Do runs a function in the process, or delays it until the process is resumed. All calls into a
// process go through its environment.
func (p *Process) Do(f func()) {
	switch {
	case p.dead:
	case p.paused:
		p.late = append(p.late, f)
	default:
		p.w.mix(4, p.node.UID)
		f()
		p.flush()
	}
}

// Connection reports a change of the link to the broker.
func (p *Process) Connection(up bool) { p.Do(func() { p.program.Connection(up) }) }

// Pause stops a process as SIGSTOP does.
func (p *Process) Pause() {
	if !p.dead {
		p.paused = true
		p.w.mix(5, p.node.UID)
	}
}

// Resume continues a paused process. All calls that were due during the pause run at once. A
// wake-up that was due runs before or after all of them, at random.
func (p *Process) Resume() {
	if p.dead || !p.paused {
		return
	}
	p.paused, p.resumed, p.frames, p.linkAt = false, p.w.now, 0, 0
	p.w.mix(6, p.node.UID)
	late := p.late
	p.late = nil
	timersFirst := p.w.Rand.IntN(2) == 0
	if p.woken && timersFirst {
		p.woken = false
		p.wake(p.wakeAt)
	}
	for _, f := range late {
		p.Do(f)
	}
	if p.woken {
		p.woken = false
		p.wake(p.wakeAt)
	}
}

// Kill ends a process as SIGKILL does. A process may call it for itself.
func (p *Process) Kill() {
	if p.dead {
		return
	}
	p.w.mix(7, p.node.UID)
	p.dead = true
	p.late = nil
	p.place.processes = slices.DeleteFunc(p.place.processes, func(o *Process) bool { return o == p })
	delete(p.w.byUID, p.node.UID)
}
