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
	// maxWaiting is the number of frames that the broker buffers for a paused process. It drops
	// further ones.
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
	// To is the addressed incarnation, or a name with UID 0.
	To   identity.Node
	Lane link.Lane
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
	offset time.Duration // its own clock at that time
	drift  int64

	wakeAt time.Duration // on the clock of the environment
	linkAt time.Duration

	dead    bool
	paused  bool
	resumed time.Duration
	late    []func() // events during a pause, in order
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

// global returns the first time of the environment at which the process's clock shows at.
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

// Alarm calls a machine at the times that the machine asks for. The zero value is ready.
type Alarm struct {
	at  time.Duration
	set bool
}

// Set calls tick once at the time next, unless an earlier call is scheduled. The functions return
// the next time of the machine and the current time, and call a function after some time.
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

// wake handles a wake-up event.
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

// Resume continues a paused process. All missed events happen at once, and a missed wake-up happens
// before or after them.
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
	p.w.forget(p)
}
