// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package world simulates computers and the network between them, in one thread and
// from one seed: the same seed gives the same events at the same times.
//
//	Program   <-- Wake, Receive, Connection --   Process   -- frames -->   broker   --> Process
//	          --- Send, WakeAt, After, Call --> (a clock,              (faults)
//	                                             links)
//
// What a process runs is a Program, about which this package knows nothing. Its messages
// pass the real machines of package internal/link, in frames that a broker carries: each
// node has a link of its own to it, and each pair of nodes may have troubles of its own.
// A process has a clock that differs from that of the world, can be paused, and
// killed.
package env

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// World is all that is simulated. It is not safe for concurrent use.
type World struct {
	// Rand is where all that happens by chance comes from.
	Rand *rand.Rand
	// Network is what ails the network.
	Network Network
	// Direct leaves out the frames: messages come as they were sent, none twice, in any order. It
	// takes much less memory with thousands of nodes.
	Direct bool
	// Story is told what happens, if it is not nil.
	Story func(at time.Duration, text string)

	now   time.Duration
	queue queue
	hash  uint64
	other *rand.Rand // for frames that are not of the lane Control: they change nothing for those that are

	places  map[string]*Place
	byUID   map[uint64]*Process
	procs   []*Process
	ordered map[way]time.Duration
	traffic Traffic
	gaps    map[[2]uint64]Gap
}

// New returns a world of which nothing is known but the seed.
func New(seed uint64) *World {
	return &World{
		Rand: rand.New(rand.NewPCG(seed, 0x5eed)), Network: Network{Delay: Between{time.Millisecond, 5 * time.Millisecond}}, //nolint:gosec // it has to be repeatable
		other: rand.New(rand.NewPCG(seed, 0x1a9e5)), //nolint:gosec // it has to be repeatable
		hash:  fnvOffset, places: map[string]*Place{}, byUID: map[uint64]*Process{}, ordered: map[way]time.Duration{},
		gaps: map[[2]uint64]Gap{},
	}
}

// Now is the time since the world began.
func (w *World) Now() time.Duration { return w.now }

// Hash stands for all that has happened so far.
func (w *World) Hash() uint64 { return w.hash }

// Tell adds a line to the story.
func (w *World) Tell(format string, args ...any) {
	if w.Story != nil {
		w.Story(w.now, fmt.Sprintf(format, args...))
	}
}

// Told reports whether anybody listens to the story.
func (w *World) Told() bool { return w.Story != nil }

// After calls f when some time has passed.
func (w *World) After(d time.Duration, f func()) { w.queue.push(event{at: w.now + max(0, d), do: f}) }

// Run lets time pass until it is over or done returns true. It is asked after
// each event.
func (w *World) Run(d time.Duration, done func() bool) bool {
	end := w.now + d
	for w.queue.len() > 0 && w.queue.first() <= end {
		e := w.queue.pop()
		w.now = max(w.now, e.at)
		w.happen(&e)
		if done != nil && done() {
			return true
		}
	}
	w.now = max(w.now, end)
	return false
}

func (w *World) happen(e *event) {
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

// Place is where the processes of one name run, one after the other: a computer with its
// cable and its clock on the wall.
type Place struct {
	Name string
	// NoUp and NoDown say that nothing gets from here to the broker, or from the broker to here.
	NoUp, NoDown bool
	// Side is the half of a split broker that it is connected to.
	Side int
	// Wall is by how much its wall clock is wrong.
	Wall time.Duration
	// Drift is by how many millionths its clocks are too fast.
	Drift int64
	// Slow is how long messages take there in addition.
	Slow time.Duration

	nr        int
	processes []*Process
}

// Place returns the place with a name.
func (w *World) Place(name string) *Place {
	p := w.places[name]
	if p == nil {
		p = &Place{Name: name, nr: len(w.places)}
		w.places[name] = p
	}
	return p
}

// Processes returns all processes there ever were, in the order in which they began. It must not be
// modified.
func (w *World) Processes() []*Process { return w.procs }

// uid draws a UID.
func (w *World) uid() uint64 {
	for {
		if uid := w.Rand.Uint64(); uid != 0 && w.byUID[uid] == nil {
			return uid
		}
	}
}

// Start starts a process. What it runs is made by program, which may use the process but
// not Send yet.
func (w *World) Start(name string, program func(*Process) Program) *Process {
	p := &Process{w: w, place: w.Place(name), began: w.now, wakeAt: never}
	p.node = identity.Node{Name: name, UID: w.uid()}
	p.drift = p.place.Drift
	p.offset = time.Duration(w.Rand.Int64N(int64(time.Hour)))
	w.procs = append(w.procs, p)
	w.byUID[p.node.UID] = p
	p.place.processes = append(p.place.processes, p)
	w.mix(2, p.node.UID)
	p.connect()
	p.program = program(p)
	return p
}

// forget removes a process that has ended from where messages go.
func (w *World) forget(p *Process) {
	p.place.processes = slices.DeleteFunc(p.place.processes, func(o *Process) bool { return o == p })
	delete(w.byUID, p.node.UID)
}
