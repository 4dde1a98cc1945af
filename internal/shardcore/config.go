// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// ErrInvalid is matched by the errors about configurations that can't be.
var ErrInvalid = errors.New("shardcore: invalid")

// Config is how an entity type works on a node. What several machines have to know is said once.
type Config struct {
	// Region is that of the region, or the proxy.
	Region region.Config
	// Shard is that of each shard, but for what all shards of the node share: Starts, RecoverNumber, and the limit of Passivation. RememberCall
	// and, unless it is set, RestartBackoff are those of Region; ShardInput and RecoverAsked must not be set.
	Shard shard.Config
	// LocalCoordinator is that of the coordinator. Self, Type, Role, RememberCall and Settings are those of Region and must not be set.
	Coordinator coordinator.Config
	// CoordinatorBackoff is how long after a failure of the coordinator another one is started. It doubles with each failure, up
	// to five times as much. Defaults to 5 seconds.
	CoordinatorBackoff time.Duration
}

// maxBackoff is how often the CoordinatorBackoff it takes at most until there is another coordinator.
const maxBackoff = 5

// withDefaults returns the configuration as it is used, or all that is wrong with it.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	fail := func(field string) {
		errs = append(errs, fmt.Errorf("%w: Config.%s is set, it follows from others", ErrInvalid, field))
	}
	if c.Coordinator.Self.Name != "" || c.Coordinator.Type != "" || c.Coordinator.Role != "" || c.Coordinator.Remember || c.Coordinator.Settings != (coordinator.Settings{}) {
		fail("Coordinator: Self, Type, Role, Remember or Settings")
	}
	if c.Shard.Remember {
		fail("Shard.Remember")
	}
	if c.Shard.Entities != 0 {
		fail("Shard.Entities")
	}
	if c.Shard.RecoverOnRequest {
		fail("Shard.RecoverAsked")
	}
	if c.CoordinatorBackoff < 0 {
		errs = append(errs, fmt.Errorf("%w: Config.CoordinatorBackoff is %v, less than 0", ErrInvalid, c.CoordinatorBackoff))
	}
	r := c.Region
	c.Coordinator.Self, c.Coordinator.Type, c.Coordinator.Role, c.Coordinator.Remember = r.Self, r.Type, r.Role, r.Remember
	c.Coordinator.Settings = r.Settings
	c.Coordinator.Shards = cmp.Or(c.Coordinator.Shards, 1000)
	c.Shard.Remember, c.Shard.RestartBackoff = r.Remember, cmp.Or(c.Shard.RestartBackoff, r.RestartBackoff)
	c.Shard.Starts = cmp.Or(c.Shard.Starts, 1000)
	c.Shard.RecoverInterval = cmp.Or(c.Shard.RecoverInterval, 100*time.Millisecond)
	c.Shard.RecoverOnRequest = c.Shard.RecoverNumber > 0
	c.CoordinatorBackoff = cmp.Or(c.CoordinatorBackoff, 5*time.Second)
	if _, err := coordinator.New(c.Coordinator); err != nil {
		errs = append(errs, err)
	}
	if _, err := shard.New(c.Shard); err != nil {
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}
