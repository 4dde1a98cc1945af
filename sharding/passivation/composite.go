// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation

// access notes that an entity is needed, and lets others go for it.
func (e *Entities) access(at *entry, active bool) {
	if e.sketch != nil {
		if at.hash == 0 {
			at.hash = hashOf(at.id)
		}
		e.sketch.add(at.hash)
	}
	switch {
	case active:
		at.policy.touch(at)
	case e.windowLimit > 0:
		var candidate *entry
		if e.window.len() >= e.windowLimit {
			candidate = e.evict(e.window)
		}
		e.add(e.window, at)
		if candidate != nil {
			e.admit(candidate)
		}
	default:
		e.admit(at)
	}
	if e.climber != nil {
		if move := e.climber.access(active); move != 0 {
			e.adapt(move)
		}
	}
}

// admit takes an entity into the main area, in the place of another one if that is full, or
// lets it go.
func (e *Entities) admit(candidate *entry) {
	if e.main.len() < e.mainLimit() {
		e.add(e.main, candidate)
		return
	}
	victim := e.main.victim()
	if victim == nil || e.sketch != nil && e.sketch.estimate(candidate.hash) <= e.sketch.estimate(victim.hash) {
		e.passivate(candidate)
		return
	}
	e.passivate(e.evict(e.main))
	e.add(e.main, candidate)
}

func (e *Entities) add(p policy, at *entry) {
	at.policy = p
	p.add(at)
}

func (e *Entities) evict(p policy) *entry {
	at := p.victim()
	p.evict(at)
	at.policy = nil
	return at
}

func (e *Entities) mainLimit() int { return e.limit - e.windowLimit }

// split gives the window its part of the limit.
func (e *Entities) split() {
	if e.window != nil {
		e.windowLimit = portion(e.part, e.limit)
		e.window.resize(e.windowLimit)
	}
	e.main.resize(e.mainLimit())
}

// adapt makes the window larger or smaller. What doesn't fit any more on one side goes to the
// other, which has as much more room.
func (e *Entities) adapt(move float64) {
	e.part = min(max(e.part+move, e.cfg.Window.Min), e.cfg.Window.Max)
	e.split()
	for e.window.len() > e.windowLimit {
		e.add(e.main, e.evict(e.window))
	}
	for e.main.len() > e.mainLimit() {
		e.add(e.window, e.evict(e.main))
	}
}
