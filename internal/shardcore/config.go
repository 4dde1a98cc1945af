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

// ErrInvalid is matched by errors about invalid configurations.
var ErrInvalid = errors.New("shardcore: invalid")

// Config configures an entity type on a node. Settings that several machines share are set once.
type Config struct {
	// Region configures the region or the proxy.
	Region region.Config
	// Shard configures each shard. Starts, RecoverNumber and the limit of Passivation are shared by
	// all shards of the node. Remember and, unless set, RestartBackoff are taken from Region;
	// Entities and RecoverOnRequest must not be set.
	Shard shard.Config
	// Coordinator configures the coordinator. Self, Type, Role, Remember and Settings are taken
	// from Region and must not be set.
	Coordinator coordinator.Config
	// PeerBytes is how many bytes of messages of other nodes may wait. One message may always wait.
	// Further ones are refused. Defaults to 64 MiB.
	PeerBytes int
	// CoordinatorBackoff is the pause before a failed coordinator is started again. It doubles with
	// each failure, up to five times its value. Defaults to 5 seconds.
	CoordinatorBackoff time.Duration
}

// maxBackoff is the maximum pause as a multiple of CoordinatorBackoff.
const maxBackoff = 5

// withDefaults returns the effective configuration, or an error that names each invalid field.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	fail := func(field string) {
		errs = append(errs, fmt.Errorf("%w: Config.%s must not be set", ErrInvalid, field))
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
	if c.PeerBytes < 0 {
		errs = append(errs, fmt.Errorf("%w: Config.PeerBytes is %d, less than 0", ErrInvalid, c.PeerBytes))
	}
	c.PeerBytes = cmp.Or(c.PeerBytes, 64<<20)
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
