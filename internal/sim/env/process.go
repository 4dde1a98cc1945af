// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"math"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

const (
	never = time.Duration(math.MaxInt64)
	// maxWaiting is how many frames wait for a paused process; the broker drops the
	// rest.
	maxWaiting = 20_000
)

// Program is what a process runs. Its methods are called one after the other.
type Program interface {
	// Wake says that the time of WakeAt has come.
	Wake()
	// Receive hands over a message.
	Receive(m Message)
	// Connection says that the link to the broker broke, or is there again. Not
	// all breaks are noticed.
	Connection(up bool)
}

// Message is what processes say to each other.
type Message struct {
	From identity.Node
	// To is what it was sent to: an incarnation, or a name, with UID 0.
	To   identity.Node
	Lane link.Lane
	Kind link.Kind
	// Arrived is when, on the receiver's clock.
	Arrived time.Duration
	Data    []byte
}

// Process is one run of a program.
type Process struct {
	w       *World
	node    identity.Node
	place   *Place
	program Program
	links   *link.Machine

	began  time.Duration // on the clock of the world
	offset time.Duration // of its own clock then
	drift  int64

	wakeAt time.Duration // on the clock of the world
	linkAt time.Duration

	dead    bool
	paused  bool
	resumed time.Duration
	late    []func() // what happened during a pause, in order
	woken   bool
	frames  int
}

// World returns where it runs.
func (p *Process) World() *World { return p.w }

// Node returns who it is.
func (p *Process) Node() identity.Node { return p.node }

// Place returns where it runs.
func (p *Process) Place() *Place { return p.place }

// Dead reports whether it has ended.
func (p *Process) Dead() bool { return p.dead }

// Paused reports whether it does not get any processor time.
func (p *Process) Paused() bool { return p.paused }

// Resumed returns when it was last resumed, on the clock of the world.
func (p *Process) Resumed() time.Duration { return p.resumed }

// Now is the time on the process's own monotonic clock.
func (p *Process) Now() time.Duration { return p.local(p.w.now) }

// Began returns when it began, on the clock of the world.
func (p *Process) Began() time.Duration { return p.began }

// Wall is the time on the wall when its clock was 0.
func (p *Process) Wall() time.Time {
	return time.Unix(1_700_000_000, 0).Add(p.began + p.place.Wall - p.offset)
}

func (p *Process) local(at time.Duration) time.Duration {
	passed := at - p.began
	return p.offset + passed + time.Duration(int64(passed)/1000*p.drift/1000)
}

// global is the first time of the world at which the process's clock shows at.
func (p *Process) global(at time.Duration) time.Duration {
	passed := at - p.offset
	g := p.began + passed - time.Duration(int64(passed)/1000*p.drift/1000)
	for p.local(g) < at {
		g += max(1, at-p.local(g))
	}
	return g
}

// WakeAt calls Wake at a time on the process's own clock, instead of any earlier
// wish; the largest duration is never.
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

// wake is called when a wish to wake comes true.
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

// After calls f when some time has passed on the process's own clock, unless the process
// has ended.
func (p *Process) After(d time.Duration, f func()) {
	p.w.After(p.global(p.Now()+max(0, d))-p.w.now, func() { p.Do(f) })
}

// Do runs a part of the process, or puts it off until the process is resumed. Nothing of
// a process may be called but through its world.
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

// Connection tells the process about its link to the broker.
func (p *Process) Connection(up bool) { p.Do(func() { p.program.Connection(up) }) }

// Pause stops a process as SIGSTOP does.
func (p *Process) Pause() {
	if !p.dead {
		p.paused = true
		p.w.mix(5, p.node.UID)
	}
}

// Resume lets it go on: what it has missed comes all at once, what it waited for before or after the
// messages.
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

// Kill ends a process as SIGKILL does. It may end itself.
func (p *Process) Kill() {
	if p.dead {
		return
	}
	p.w.mix(7, p.node.UID)
	p.dead = true
	p.late = nil
	p.w.forget(p)
}
