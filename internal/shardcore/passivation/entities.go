// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package passivation chooses the entities of a shard that are stopped because they are not needed
// now. It has no clock and no goroutine, and the work for each message does not depend on the
// number of entities.
//
// A shard reports each message with Touch and stops the entities that it returns:
//
//	for _, id := range entities.Touch(now, "42") { passivate(id) }
//	for _, id := range entities.Tick(now) { passivate(id) }
//
// Returned entities are no longer tracked. The caller removes entities that stop for another
// reason.
package passivation

import (
	"math"
	"time"

	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/sharding/passivation"
)

// Never is the time of an event that does not happen.
const Never = time.Duration(math.MaxInt64)

// Entities are the active entities of a shard. They are not safe for concurrent use.
type Entities struct {
	cfg     passivation.Settings
	active  map[string]*entry
	ends    entry // the anchor of the ring: next is the least recently used entity
	checkAt time.Duration
	// limit is -1 if the settings have none.
	limit int
	// strategy is nil for the least recently used entity.
	strategy passivation.Strategy
	// stop has the entities that the current call returns.
	stop []string
}

// New returns the entities of a shard that may have limit active entities; see PerShard. The limit
// is ignored if the settings have none. The error matches passivation.ErrInvalid.
func New(settings passivation.Settings, limit int) (*Entities, error) {
	cfg, err := settings.WithDefaults()
	if err != nil {
		return nil, err
	}
	e := &Entities{cfg: cfg, checkAt: Never, limit: -1}
	e.ends.prev, e.ends.next = &e.ends, &e.ends
	if cfg.Limit > 0 {
		e.limit = max(0, limit)
		if cfg.NewStrategy != nil {
			_ = panics.Call(func() { e.strategy = cfg.NewStrategy() })
		}
	}
	if cfg.IdleTimeout > 0 || e.limit >= 0 {
		e.active = make(map[string]*entry)
	}
	return e, nil
}

// PerShard is the limit of each of the shards of a region. There is at least one shard.
func PerShard(limit, shards int) int { return limit / max(1, shards) }

// Next returns the time at which Tick has to be called, or Never.
func (e *Entities) Next() time.Duration { return e.checkAt }

// Touch records a message to an entity, which starts if it is not active. It returns the entities
// to stop now. If the limit is 0, it returns the entity itself, which stops after the message. The
// slice is valid until the next call.
func (e *Entities) Touch(now time.Duration, id string) []string {
	e.stop = e.stop[:0]
	if e.active == nil {
		return nil
	}
	if e.cfg.IdleTimeout > 0 && e.checkAt == Never {
		e.checkAt = now + e.cfg.IdleInterval
	}
	if e.limit == 0 {
		e.stop = append(e.stop, id)
		return e.stop
	}
	at, active := e.active[id]
	if active {
		at.unlink()
	} else {
		if e.limit > 0 && len(e.active) == e.limit {
			e.stopNext()
		}
		at = &entry{id: id}
		e.active[id] = at
	}
	at.touched, at.prev, at.next = now, e.ends.prev, &e.ends
	at.prev.next, at.next.prev = at, at
	e.consult(func(s passivation.Strategy) { s.Touch(id) })
	return e.stop
}

// Remove forgets an entity that stops or has stopped. It ignores an unknown entity.
func (e *Entities) Remove(id string) {
	at, active := e.active[id]
	if !active {
		return
	}
	delete(e.active, id)
	at.unlink()
	e.consult(func(s passivation.Strategy) { s.Remove(id) })
}

// Tick returns the entities that have been idle for too long, the longest idle one first. The slice
// is valid until the next call.
func (e *Entities) Tick(now time.Duration) []string {
	e.stop = e.stop[:0]
	if e.cfg.IdleTimeout <= 0 || now < e.checkAt {
		return nil
	}
	for at := e.ends.next; at != &e.ends && now-at.touched > e.cfg.IdleTimeout; at = e.ends.next {
		e.stopEntity(at.id)
	}
	if e.checkAt = now + e.cfg.IdleInterval; len(e.active) == 0 {
		e.checkAt = Never
	}
	return e.stop
}

// SetLimit changes the maximum number of active entities and returns those to stop. It does nothing
// if the settings have no limit. The slice is valid until the next call.
func (e *Entities) SetLimit(limit int) []string {
	e.stop = e.stop[:0]
	if e.limit < 0 {
		return nil
	}
	e.limit = max(0, limit)
	for len(e.active) > e.limit {
		e.stopNext()
	}
	return e.stop
}

func (e *Entities) stopNext() {
	id := e.ends.next.id
	e.consult(func(s passivation.Strategy) {
		if chosen := s.Next(); e.active[chosen] != nil {
			id = chosen
		}
	})
	e.stopEntity(id)
}

// consult calls the strategy, if there is one. The strategy belongs to the application. After a
// panic it may be inconsistent, so it is not called again.
func (e *Entities) consult(f func(passivation.Strategy)) {
	if e.strategy != nil && panics.Call(func() { f(e.strategy) }) != nil {
		e.strategy = nil
	}
}

func (e *Entities) stopEntity(id string) {
	e.stop = append(e.stop, id)
	e.Remove(id)
}

// entry is an active entity in the ring of all active entities, in the order of their last
// messages. The anchor of the ring is not an entity.
type entry struct {
	id         string
	touched    time.Duration
	prev, next *entry
}

func (at *entry) unlink() { at.prev.next, at.next.prev = at.next, at.prev }
