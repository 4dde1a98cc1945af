// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/sharding/passivation"
)

// ErrInvalid is matched by errors about invalid configurations.
var ErrInvalid = errors.New("shard: invalid")

// MaxBuffer is the maximum of BufferSize.
const MaxBuffer = 1_000_000

// Config configures a shard.
type Config struct {
	// Remember is set if entities are remembered: entities that ran when the shard moved or stopped
	// are started again. Passivation does not apply to them.
	Remember bool
	// Index is set if the index of entities with pending work is kept. Its entities are started when
	// the shard starts.
	Index bool
	// IndexRetry is the pause after a failed call of the store of the index. Defaults to 2 seconds.
	IndexRetry time.Duration
	// BufferSize is how many messages may wait for entities. Defaults to 100,000, at most
	// 1,000,000.
	BufferSize int
	// Starts is how many entities may be starting at the same time. Defaults to 1,000.
	Starts int
	// Passivation decides which idle entities are stopped.
	Passivation passivation.Settings
	// Entities is how many active entities the shard may have, if Passivation has a limit: see
	// PerShard of internal/shardcore/passivation.
	Entities int
	// RestartBackoff is the pause before a remembered entity that ended without a request is
	// started again. Defaults to 10 seconds.
	RestartBackoff time.Duration
	// StopTimeout is the time from the beginning of a hand-off until entities are killed. Defaults
	// to 55 seconds.
	StopTimeout time.Duration
	// UpdateTimeout limits an update of the store of remembered entities. Defaults to 5 seconds.
	UpdateTimeout time.Duration
	// Lease is set if the shard may run entities only while its node holds a lease. LeaseRetry is the
	// time between two attempts to acquire the lease, by default 5 seconds.
	Lease      bool
	LeaseRetry time.Duration
	// RecoverOnRequest starts remembered entities, and those of the index, only on Recover or for a
	// message. If it is false, all of them start at once, within Starts.
	RecoverOnRequest bool
}

func (c Config) withDefaults() Config {
	c.BufferSize = cmp.Or(c.BufferSize, 100_000)
	c.Starts = cmp.Or(c.Starts, 1000)
	c.RestartBackoff = cmp.Or(c.RestartBackoff, 10*time.Second)
	c.IndexRetry = cmp.Or(c.IndexRetry, 2*time.Second)
	c.StopTimeout = cmp.Or(c.StopTimeout, 55*time.Second)
	c.UpdateTimeout = cmp.Or(c.UpdateTimeout, 5*time.Second)
	c.LeaseRetry = cmp.Or(c.LeaseRetry, 5*time.Second)
	if c.Remember {
		c.Passivation = passivation.Settings{Disabled: true}
	}
	return c
}

func (c Config) validate() error {
	var errs fielderror.Errors
	for _, n := range []struct {
		field       string
		value, most int64
	}{
		{"BufferSize", int64(c.BufferSize), MaxBuffer},
		{"Starts", int64(c.Starts), MaxBuffer},
		{"Entities", int64(c.Entities), 1 << 40},
		{"RestartBackoff", int64(c.RestartBackoff), math.MaxInt64},
		{"IndexRetry", int64(c.IndexRetry), math.MaxInt64},
		{"StopTimeout", int64(c.StopTimeout), math.MaxInt64},
		{"UpdateTimeout", int64(c.UpdateTimeout), math.MaxInt64},
		{"LeaseRetry", int64(c.LeaseRetry), math.MaxInt64},
	} {
		if n.value < 0 || n.value > n.most {
			errs.Addf("Config."+n.field, "is %d, it must be from 0 to %d", n.value, n.most)
		}
	}
	return errs.Err(ErrInvalid)
}
