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

// ErrInvalid is matched by errors about invalid configurations.
var ErrInvalid = errors.New("shard: invalid")

// MaxBuffer is the maximum of BufferSize.
const MaxBuffer = 1_000_000

// Config configures a shard.
type Config struct {
	// Remember is set if entities are remembered: those that ran before run again. Passivation does
	// not apply to them.
	Remember bool
	// BufferSize is how many messages may wait for entities. Defaults to 100,000, at most
	// 1,000,000.
	BufferSize int
	// Starts is how many entities may be starting at the same time. Defaults to 1,000.
	Starts int
	// Passivation decides which idle entities are stopped.
	Passivation passivation.Settings
	// Entities is how many the shard may have, if Passivation has a limit: see PerShard of
	// internal/shardcore/passivation.
	Entities int
	// RestartBackoff is the pause before a remembered entity that ended by itself is started again.
	// Defaults to 10 seconds.
	RestartBackoff time.Duration
	// StopTimeout is the time from the begin of a hand-off until entities are killed. Defaults to
	// 55 seconds.
	StopTimeout time.Duration
	// UpdateTimeout limits an update of the store of remembered entities. Defaults to 5 seconds.
	UpdateTimeout time.Duration
	// RecoverNumber is how many remembered entities are started in each RecoverInterval. Defaults
	// to 0: all at once, within Starts.
	RecoverNumber int
	// RecoverOnRequest starts remembered entities only by Recover, which replaces RecoverNumber and
	// RecoverInterval.
	RecoverOnRequest bool
	// RecoverInterval is the time between these starts. Defaults to 100 milliseconds.
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
