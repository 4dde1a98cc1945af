// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"cmp"
	"errors"
	"time"

	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// ErrInvalid is matched by errors about invalid configurations.
var ErrInvalid = errors.New("shardcore: invalid")

// Config configures an entity type on a node. Settings that several machines share are set once.
type Config struct {
	// Region configures the region or the proxy.
	Region region.Config
	// Shard configures each shard. Starts and the limit of Passivation are shared by all shards of
	// the node. The values of Remember, Entities and RecoverOnRequest are replaced. With Index, shards
	// get a home again without a request, as with Region.Remember.
	Shard shard.Config
	// Coordinator configures the coordinator. Self, Type, Role, Remember and Settings are replaced
	// by those of Region.
	Coordinator coordinator.Config
	// RecoverNumber is how many remembered entities the node starts in each RecoverInterval.
	// Defaults to 0: all at once, within Shard.Starts.
	RecoverNumber int
	// RecoverInterval is the time between two such groups of starts. Defaults to 100 milliseconds.
	RecoverInterval time.Duration
	// CoordinatorBackoff is the pause before a failed coordinator is started again. It doubles with
	// each failure, up to five times its value. Defaults to 5 seconds.
	CoordinatorBackoff time.Duration
}

// maxBackoff is the maximum pause as a multiple of CoordinatorBackoff.
const maxBackoff = 5

// withDefaults returns the effective configuration, or an error that names each invalid field.
func (c Config) withDefaults() (Config, error) {
	var errs fielderror.Errors
	fielderror.NotNegative(&errs, "Config.CoordinatorBackoff", c.CoordinatorBackoff)
	fielderror.NotNegative(&errs, "Config.RecoverNumber", c.RecoverNumber)
	fielderror.NotNegative(&errs, "Config.RecoverInterval", c.RecoverInterval)
	c.CoordinatorBackoff = cmp.Or(c.CoordinatorBackoff, 5*time.Second)
	c.RecoverInterval = cmp.Or(c.RecoverInterval, 100*time.Millisecond)
	c.Shard.Remember = c.Region.Remember
	c.Region.Remember = c.Region.Remember || c.Shard.Index
	r := c.Region
	c.Coordinator.Self, c.Coordinator.Type, c.Coordinator.Role, c.Coordinator.Remember = r.Self, r.Type, r.Role, r.Remember
	c.Coordinator.Settings = r.Settings
	c.Coordinator.Shards = cmp.Or(c.Coordinator.Shards, 1000)
	c.Shard.Entities = 0
	c.Shard.Starts = cmp.Or(c.Shard.Starts, 1000)
	c.Shard.RecoverOnRequest = c.RecoverNumber > 0
	_, inRegion := region.New(r)
	_, inCoordinator := coordinator.New(c.Coordinator)
	_, inShard := shard.New(c.Shard)
	return c, errors.Join(errs.Err(ErrInvalid), inRegion, inCoordinator, inShard)
}
