// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package passivation has the settings of automatic passivation: which entities of a shard are
// stopped because they are not needed now. The next command starts a stopped entity again.
//
// By default an entity is stopped after two minutes without a message. With Settings.Limit, a
// region keeps at most that number of entities active. When another entity starts, the least
// recently used one of its shard is stopped. Settings.NewStrategy replaces this choice.
//
// Only messages that go through the shard count as use. Remembered entities are never passivated
// automatically.
package passivation

import (
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/refold-io/refold/internal/fielderror"
)

// ErrInvalid is matched by the errors about invalid settings.
var ErrInvalid = errors.New("passivation: invalid")

// Settings define when entities are stopped. The zero value stops them after two idle minutes.
type Settings struct {
	// Disabled turns automatic passivation off.
	Disabled bool
	// IdleTimeout stops entities that have received no message for longer than this time. Defaults
	// to 2 minutes without a Limit, and to no timeout with one. A negative value means no timeout.
	IdleTimeout time.Duration
	// IdleInterval is the time between two checks for idle entities. Defaults to half of
	// IdleTimeout.
	IdleInterval time.Duration
	// Limit is the maximum number of active entities of a region. Its shards share the limit in
	// equal parts, rounded down. A shard with a part of 0 stops each entity right after its
	// message. Defaults to 0: no limit.
	Limit int
	// NewStrategy returns the strategy of a shard that has a limit. Defaults to the least recently
	// used entity.
	NewStrategy func() Strategy
}

// Strategy chooses the entity of a shard to stop when the limit is reached. Each shard has its own
// Strategy and calls one method at a time. The methods must return at once. A Strategy that has
// panicked is not called again: its shard continues with the least recently used entity.
type Strategy interface {
	// Touch records a message to an entity. An unknown entity has just been started.
	Touch(id string)
	// Remove forgets an entity that stops.
	Remove(id string)
	// Next returns the entity to stop next. The shard calls it before the Touch of an entity that
	// needs the place, or when the limit has become smaller. At that time there is at least one
	// entity. The shard then calls Remove. If the ID is not that of an active entity, the shard
	// stops the least recently used entity.
	Next() string
}

// WithDefaults returns the settings with all defaults filled in. The error matches ErrInvalid and
// names each invalid field.
func (s Settings) WithDefaults() (Settings, error) {
	var errs fielderror.Errors
	if s.IdleInterval < 0 {
		errs.Addf("Settings.IdleInterval", "is %v, less than 0", s.IdleInterval)
	}
	if s.Limit < 0 {
		errs.Addf("Settings.Limit", "is %d, less than 0", s.Limit)
	}
	if err := errs.Err(ErrInvalid); err != nil {
		return Settings{}, err
	}
	if s.Disabled {
		return Settings{Disabled: true, IdleTimeout: -1}, nil
	}
	if s.IdleTimeout == 0 && s.Limit > 0 {
		s.IdleTimeout = -1
	}
	s.IdleTimeout = max(-1, cmp.Or(s.IdleTimeout, 2*time.Minute))
	// The interval is bounded because it is added to the current time.
	s.IdleInterval = min(cmp.Or(s.IdleInterval, max(1, s.IdleTimeout/2)), math.MaxInt64/2)
	return s, nil
}
