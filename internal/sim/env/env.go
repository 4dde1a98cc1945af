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
// frames that a broker carries. Each node has its own link to the broker, and faults apply to a
// node or to a pair of nodes. A process has its own clock, and can be paused and killed.
package env

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// Env is a simulated environment. It is not safe for concurrent use.
type Env struct {
	// Rand is the source of all random decisions.
	Rand *rand.Rand
	// Network has the faults of the network.
	Network Network
	// Direct bypasses links and frames: messages arrive at most once, in any order. This takes much
	// less memory with thousands of nodes.
	Direct bool
	// Trace is called with each event as text, if it is not nil.
	Trace func(at time.Duration, text string)

	now      time.Duration
	queue    queue
	hash     uint64
	dataRand *rand.Rand // for frames of other lanes than Control, so that they do not influence those of Control

	places  map[string]*Place
	byUID   map[uint64]*Process
	ordered map[route]time.Duration
	traffic Traffic
	gaps    map[[2]uint64]Gap
}

// New returns an environment for a seed.
func New(seed uint64) *Env {
	return &Env{
		Rand: rand.New(rand.NewPCG(seed, 0x5eed)), Network: Network{Delay: Between{time.Millisecond, 5 * time.Millisecond}}, //nolint:gosec // it has to be repeatable
		dataRand: rand.New(rand.NewPCG(seed, 0x1a9e5)), //nolint:gosec // it has to be repeatable
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

// Run advances the time by d, or until done returns true. It calls done after each event.
func (w *Env) Run(d time.Duration, done func() bool) bool {
	end := w.now + d
	for w.queue.len() > 0 && w.queue.first() <= end {
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

// Place is a computer with its link to the broker and its wall clock. Processes of one name run
// there, one after the other.
type Place struct {
	Name string
	// NoUp and NoDown drop all frames to the broker, and from it.
	NoUp, NoDown bool
	// Side is the half of a split broker to which the place is connected.
	Side int
	// Wall is the error of the wall clock.
	Wall time.Duration
	// Drift is the clock drift in parts per million. A positive drift is too fast.
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

// uid returns a new random UID.
func (w *Env) uid() uint64 {
	for {
		if uid := w.Rand.Uint64(); uid != 0 && w.byUID[uid] == nil {
			return uid
		}
	}
}

// Start starts a process. The function program returns its Program. It may use the process, but not
// Send.
func (w *Env) Start(name string, program func(*Process) Program) *Process {
	p := &Process{w: w, place: w.Place(name), began: w.now, wakeAt: never}
	p.node = identity.Node{Name: name, UID: w.uid()}
	p.drift = p.place.Drift
	p.offset = time.Duration(w.Rand.Int64N(int64(time.Hour)))
	w.byUID[p.node.UID] = p
	p.place.processes = append(p.place.processes, p)
	w.mix(2, p.node.UID)
	p.connect()
	p.program = program(p)
	return p
}

// forget removes an ended process from the routing.
func (w *Env) forget(p *Process) {
	p.place.processes = slices.DeleteFunc(p.place.processes, func(o *Process) bool { return o == p })
	delete(w.byUID, p.node.UID)
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

// queue is a heap of events. Events of one time keep their order.
type queue struct {
	events []event
	seq    uint64
}

func (q *queue) len() int { return len(q.events) }

func (q *queue) first() time.Duration { return q.events[0].at }

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

// mix adds an event to the hash.
func (w *Env) mix(kind, value uint64) {
	w.hash = (w.hash ^ kind) * fnvPrime
	w.hash = (w.hash ^ uint64(w.now)) * fnvPrime //nolint:gosec // not negative
	w.hash = (w.hash ^ value) * fnvPrime
}

func (w *Env) mixBytes(b []byte) {
	if w.Direct { // it would take too long
		return
	}
	h := w.hash
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	w.hash = h
}
