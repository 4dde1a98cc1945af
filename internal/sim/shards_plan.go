// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/sharding/passivation"
)

// shardRole is the role of the nodes that host shards. The others have proxies.
const shardRole = "shards"

// enoughMessages is how many messages clients send to entities at least.
const enoughMessages = 10_000

const (
	// retryInterval is how often a region says again what is not answered.
	retryInterval = 2 * time.Second
	// giveUpAfter is how long a region that leaves waits for homes while no coordinator answers: as long as in package sharding.
	giveUpAfter = 3 * retryInterval
)

// ShardsPlan is what is chosen about sharding before a simulation begins.
type ShardsPlan struct {
	// Config is that of all nodes, without what differs from node to node.
	Config shards.Config
	// Shards is how many there are, Entities how many each of them has.
	Shards, Entities int
	// Proxy is the name of a node that hosts no shards, "" if there is none.
	Proxy string
	// Replicated says that the coordinator keeps its state in replicated data, else in a journal.
	Replicated bool
	// ReplicatedMemory says that replicated data tells which entities run, else a journal.
	ReplicatedMemory bool
	// Calm says that nothing happens but what is planned: nodes join and leave, shards move. Then no message is lost or refused.
	Calm bool
}

// NewShardsPlan chooses what a seed stands for.
func NewShardsPlan(seed uint64, plan Plan) ShardsPlan {
	r := rand.New(rand.NewPCG(seed, 0x5a4d)) //nolint:gosec // it has to be repeatable
	p := ShardsPlan{Shards: 8 + r.IntN(25), Entities: 2 + r.IntN(4), Calm: r.IntN(8) == 0, Replicated: r.IntN(2) == 0}
	if len(plan.Names) > 3 && r.IntN(3) == 0 {
		p.Proxy = plan.Names[len(plan.Names)-1] // no seed
	}
	remember := r.IntN(2) == 0
	p.Config = shards.Config{
		Region: region.Config{
			Type: "account", Role: shardRole, Instance: 1, Remember: remember, RetryInterval: retryInterval, GiveUpAfter: giveUpAfter,
			RestartBackoff: time.Duration(1+r.IntN(5)) * time.Second,
		},
		Shard: shard.Config{
			Passivation: passivation.Settings{IdleTimeout: time.Duration(3+r.IntN(20)) * time.Second, Limit: 20 + r.IntN(100)}, Starts: 5 + r.IntN(50),
			UpdateTimeout: 4 * time.Second,
		},
		Coordinator: coordinator.Config{
			Shards: p.Shards, MinRegions: 1 + r.IntN(3), HandOffTimeout: time.Duration(8+r.IntN(30)) * time.Second,
			RebalanceInterval: time.Duration(3+r.IntN(8)) * time.Second, StartTimeout: time.Duration(3+r.IntN(8)) * time.Second,
			SaveTimeout: time.Duration(2+r.IntN(4)) * time.Second,
		},
		CoordinatorBackoff: time.Duration(1+r.IntN(5)) * time.Second,
	}
	p.Config.Shard.StopTimeout = p.Config.Coordinator.HandOffTimeout - 5*time.Second
	if r.IntN(4) == 0 {
		p.Config.Shard.RecoverNumber = 1 + r.IntN(4)
	}
	p.ReplicatedMemory = remember && r.IntN(2) == 0
	p.Config.Region.Settings = coordinator.Settings{
		Shards: p.Shards, Routing: 1, Role: shardRole, State: storeKind(true, p.Replicated), Remember: storeKind(remember, p.ReplicatedMemory),
	}
	return p
}

// String says what is special about the plan.
func (p ShardsPlan) String() string {
	return fmt.Sprintf("%d shards of %d entities, proxy %q, replicated %t, remembered %t, replicated %t, calm %t",
		p.Shards, p.Entities, p.Proxy, p.Replicated, p.Config.Region.Remember, p.ReplicatedMemory, p.Calm)
}
