// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation

import (
	"math"
	"time"
)

// Never is the time of something that is not going to happen.
const Never = time.Duration(math.MaxInt64)

// Entities are the active entities of a shard. It is not safe for concurrent
// use.
type Entities struct {
	cfg     Settings
	active  map[string]*entry
	idle    list
	checkAt time.Duration

	limited            bool
	limit              int
	windowLimit        int
	part               float64 // of the window
	main, window       policy  // window is nil without one
	sketch             *sketch
	climber            *climber
	victims            []string
	tracksIdle, tracks bool
}

// New returns the entities of a shard that may have so many: see PerShard. The limit is of no
// meaning if the settings have none. The error matches ErrInvalid.
func New(settings Settings, limit int) (*Entities, error) {
	cfg, err := settings.WithDefaults()
	if err != nil {
		return nil, err
	}
	e := &Entities{cfg: cfg, idle: list{byIdle: true}, checkAt: Never}
	e.tracksIdle, e.limited = cfg.IdleTimeout > 0, cfg.Limit > 0
	e.tracks = e.tracksIdle || e.limited
	if e.tracks {
		e.active = map[string]*entry{}
	}
	if e.limited {
		e.main = newPolicy(&cfg.Replacement)
		if cfg.Window.Replacement.Policy != "" {
			e.window, e.part = newPolicy(&cfg.Window.Replacement), cfg.Window.Proportion
		}
		e.limit = -1
		e.SetLimit(limit)
	}
	return e, nil
}

// Len is how many are active.
func (e *Entities) Len() int { return len(e.active) }

// Limit is how many there may be, -1 if any number.
func (e *Entities) Limit() int {
	if !e.limited {
		return -1
	}
	return e.limit
}

// WindowLimit is how many of them may be in the window.
func (e *Entities) WindowLimit() int { return e.windowLimit }

// Next returns when Tick is to be called next; Never if not at all.
func (e *Entities) Next() time.Duration { return e.checkAt }

// Touch notes that a message goes to an entity, which is started by it if it is not active. It
// returns whom to passivate now, which may be the entity itself, after the message. The slice is valid until the
// next call.
func (e *Entities) Touch(now time.Duration, id string) []string {
	if !e.tracks {
		return nil
	}
	e.victims = e.victims[:0]
	at, active := e.active[id]
	if !active {
		at = &entry{id: id}
		e.active[id] = at
	}
	if e.tracksIdle {
		if at.touched = now; active {
			e.idle.remove(at)
		}
		e.idle.push(at)
		if e.checkAt == Never {
			e.checkAt = now + e.cfg.IdleInterval
		}
	}
	if e.limited {
		e.access(at, active)
	}
	return e.victims
}

// Remove forgets an entity that has ended, or is going to. Others are no matter.
func (e *Entities) Remove(id string) {
	if at, active := e.active[id]; active {
		if at.policy != nil {
			at.policy.remove(at)
		}
		e.forget(at)
	}
}

// Tick returns the entities that were idle for too long, those for longest first. The slice
// is valid until the next call.
func (e *Entities) Tick(now time.Duration) []string {
	e.victims = e.victims[:0]
	if now < e.checkAt {
		return nil
	}
	for at := e.idle.oldest; at != nil && now-at.touched > e.cfg.IdleTimeout; at = e.idle.oldest {
		e.victims = append(e.victims, at.id)
		e.Remove(at.id)
	}
	if e.checkAt = now + e.cfg.IdleInterval; e.idle.n == 0 {
		e.checkAt = Never
	}
	return e.victims
}

// SetLimit says how many entities there may be from now on, and returns whom to passivate. The
// slice is valid until the next call. Without a limit in the settings it does nothing.
func (e *Entities) SetLimit(limit int) []string {
	e.victims = e.victims[:0]
	limit = max(0, limit)
	if !e.limited || limit == e.limit {
		return nil
	}
	e.limit = limit
	if e.cfg.Filter == FrequencySketch {
		e.sketch = newSketch(limit)
	}
	if e.window != nil && e.cfg.Window.Climb.Enabled {
		e.climber = newClimber(e.cfg.Window.Climb, limit)
	}
	e.split()
	for e.main.len() > e.mainLimit() {
		e.passivate(e.evict(e.main))
	}
	for e.window != nil && e.window.len() > e.windowLimit {
		e.admit(e.evict(e.window))
	}
	return e.victims
}

// forget drops an entity that is in no policy any more.
func (e *Entities) forget(at *entry) {
	at.policy = nil
	delete(e.active, at.id)
	if e.tracksIdle {
		e.idle.remove(at)
	}
}

func (e *Entities) passivate(at *entry) {
	e.victims = append(e.victims, at.id)
	e.forget(at)
}
