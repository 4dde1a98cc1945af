// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"cmp"
	"errors"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// ErrInvalid is matched by errors about invalid configurations.
var ErrInvalid = errors.New("region: invalid")

// MaxBuffer is the maximum of BufferSize.
const MaxBuffer = 1_000_000

// Config configures a region.
type Config struct {
	// Self is the node. Required.
	Self identity.Node
	// Type is the name of the entity type. Required, at most 255 bytes.
	Type string
	// Instance numbers the regions of this type that the node has had, from 1. Required.
	Instance uint64
	// Role is the role of the nodes that may run the coordinator. Defaults to "": all nodes.
	Role string
	// Proxy is set if the node hosts no shards.
	Proxy bool
	// Remember is set if entities are remembered: a failed shard is started again after
	// RestartBackoff without a message.
	Remember bool
	// Settings are compared with those of the coordinator's node. Defaults to no comparison.
	Settings coordinator.Settings
	// BufferSize and RetryInterval have the meaning, the limits and the defaults of the fields of
	// sharding.Tuning, RestartBackoff those of ShardBackoff.
	BufferSize                    int
	RetryInterval, RestartBackoff time.Duration
	// GiveUpAfter is how long a leaving region waits for homes while no coordinator replies. Then
	// it refuses the waiting messages. Defaults to 0: no limit.
	GiveUpAfter time.Duration
}

func (c Config) withDefaults() Config {
	c.BufferSize = cmp.Or(c.BufferSize, 100_000)
	c.RetryInterval = cmp.Or(c.RetryInterval, 2*time.Second)
	c.RestartBackoff = cmp.Or(c.RestartBackoff, 10*time.Second)
	return c
}

func (c Config) validate() error {
	var errs fielderror.Errors
	if err := identity.CheckName(c.Self.Name); err != nil || c.Self.UID == 0 {
		errs.Addf("Config.Self", "is %v, it must be an incarnation", c.Self)
	}
	if len(c.Type) == 0 || len(c.Type) > coordinator.MaxTypeLength {
		errs.Addf("Config.Type", "has %d bytes, it must have 1 to %d", len(c.Type), coordinator.MaxTypeLength)
	}
	if c.Instance == 0 {
		errs.Addf("Config.Instance", "is 0, it must be positive")
	}
	if c.BufferSize < 0 || c.BufferSize > MaxBuffer {
		errs.Addf("Config.BufferSize", "is %d, it must be from 0 to %d", c.BufferSize, MaxBuffer)
	}
	fielderror.NotNegative(&errs, "Config.RetryInterval", c.RetryInterval)
	fielderror.NotNegative(&errs, "Config.GiveUpAfter", c.GiveUpAfter)
	fielderror.NotNegative(&errs, "Config.RestartBackoff", c.RestartBackoff)
	return errs.Err(ErrInvalid)
}
