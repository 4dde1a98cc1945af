// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/refold-io/refold/sharding/passivation"
)

// ErrInvalid is matched by the errors about configurations that can't be.
var ErrInvalid = errors.New("shard: invalid")

// MaxBuffer is the largest BufferSize.
const MaxBuffer = 1_000_000

// Config is how a shard works.
type Config struct {
	// Remember says that entities are remembered: those that ran before run again. They are never passivated by
	// Passivation.
	Remember bool
	// BufferSize is how many messages are kept, in all, for entities that can't take them yet. Defaults to
	// 100,000, at most 1,000,000.
	BufferSize int
	// Starts is how many entities may be starting at a time. Defaults to 1,000.
	Starts int
	// Passivation says which entities are stopped because nobody needs them.
	Passivation passivation.Settings
	// Entities is how many the shard may have, if Passivation has a limit: see PerShard of internal/shardcore/passivation.
	Entities int
	// RestartBackoff is how long after its unexpected end a remembered entity is started again. Defaults to 10 seconds.
	RestartBackoff time.Duration
	// StopTimeout is how long after a hand-off began entities are ended by force. Defaults to 55
	// seconds.
	StopTimeout time.Duration
	// UpdateTimeout is how long the store of remembered entities may take. Defaults to 5 seconds.
	UpdateTimeout time.Duration
	// RecoverNumber is how many remembered entities are started in each RecoverInterval. Defaults to 0:
	// all at once, within Starts.
	RecoverNumber int
	// RecoverOnRequest says that remembered entities are started by Recover, in place of the two.
	RecoverOnRequest bool
	// RecoverInterval is the time between them. Defaults to 100 milliseconds.
	RecoverInterval time.Duration
}

func (c Config) withDefaults() Config {
	c.BufferSize = cmp.Or(c.BufferSize, 100_000)
	c.Starts = cmp.Or(c.Starts, 1000)
	c.RestartBackoff = cmp.Or(c.RestartBackoff, 10*time.Second)
	c.StopTimeout = cmp.Or(c.StopTimeout, 55*time.Second)
	c.UpdateTimeout = cmp.Or(c.UpdateTimeout, 5*time.Second)
	c.RecoverInterval = cmp.Or(c.RecoverInterval, 100*time.Millisecond)
	if c.Remember {
		c.Passivation = passivation.Settings{Disabled: true}
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	for _, n := range []struct {
		field string
		value int64
		most  int64
	}{
		{"BufferSize", int64(c.BufferSize), MaxBuffer},
		{"Starts", int64(c.Starts), MaxBuffer},
		{"Entities", int64(c.Entities), 1 << 40},
		{"RecoverNumber", int64(c.RecoverNumber), MaxBuffer},
		{"RestartBackoff", int64(c.RestartBackoff), math.MaxInt64},
		{"StopTimeout", int64(c.StopTimeout), math.MaxInt64},
		{"UpdateTimeout", int64(c.UpdateTimeout), math.MaxInt64},
		{"RecoverInterval", int64(c.RecoverInterval), math.MaxInt64},
	} {
		if n.value < 0 || n.value > n.most {
			errs = append(errs, fmt.Errorf("%w: Config.%s is %d, it must be from 0 to %d", ErrInvalid, n.field, n.value, n.most))
		}
	}
	return errors.Join(errs...)
}
