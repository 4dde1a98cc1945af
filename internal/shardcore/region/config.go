// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/identity"
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
	// BufferSize is how many messages may wait. Defaults to 100,000, at most 1,000,000.
	BufferSize int
	// RetryInterval is the interval at which unanswered requests are repeated. Defaults to 2
	// seconds.
	RetryInterval time.Duration
	// GiveUpAfter is how long a leaving region waits for homes while no coordinator replies. Then
	// it refuses the waiting messages. Defaults to 0: no limit.
	GiveUpAfter time.Duration
	// RestartBackoff is the pause before a failed shard is started again. Defaults to 10 seconds.
	RestartBackoff time.Duration
}

func (c Config) withDefaults() Config {
	c.BufferSize = cmp.Or(c.BufferSize, 100_000)
	c.RetryInterval = cmp.Or(c.RetryInterval, 2*time.Second)
	c.RestartBackoff = cmp.Or(c.RestartBackoff, 10*time.Second)
	return c
}

func (c Config) validate() error {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: Config."+format, append([]any{ErrInvalid}, args...)...))
	}
	if err := identity.CheckName(c.Self.Name); err != nil || c.Self.UID == 0 {
		fail("Self is %v, it must be an incarnation", c.Self)
	}
	if len(c.Type) == 0 || len(c.Type) > coordinator.MaxTypeLength {
		fail("Type has %d bytes, it must have 1 to %d", len(c.Type), coordinator.MaxTypeLength)
	}
	if c.Instance == 0 {
		fail("Instance is 0, it must be positive")
	}
	if c.BufferSize < 0 || c.BufferSize > MaxBuffer {
		fail("BufferSize is %d, it must be from 0 to %d", c.BufferSize, MaxBuffer)
	}
	if c.RetryInterval < 0 {
		fail("RetryInterval is %v, less than 0", c.RetryInterval)
	}
	if c.GiveUpAfter < 0 {
		fail("GiveUpAfter is %v, less than 0", c.GiveUpAfter)
	}
	if c.RestartBackoff < 0 {
		fail("RestartBackoff is %v, less than 0", c.RestartBackoff)
	}
	return errors.Join(errs...)
}
