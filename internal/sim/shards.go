// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/sharding/passivation"
)

// coordination is the singleton that runs the coordinator.
const coordination = "sharding"

// sharding is the simulated entity type of a cluster, with the observer's view of it: which
// entities run where, and which commands were sent, delivered, stored and acknowledged.
type sharding struct {
	workload

	plan   ShardsPlan
	all    []*shardNode // of all times
	byNode map[identity.Node]*shardNode

	store          *stateStore
	rememberStore  rememberedEntities
	accounts       []*account // by shard and number
	byID           map[string]*account
	commands       []command // by number, from 1
	last           map[sender]uint64
	storeCallCount uint64        // number of store calls
	activeAt       time.Duration // since when a coordinator is, 0: none is
	misconfigured  string        // name of the node that will have another setting when it starts again
	closing        bool          // clients have sent all that they send
}

func newSharding(c *cluster, seed uint64, plan ShardsPlan) *sharding {
	d := &sharding{
		workload: newWorkload(c, seed, 0x5a4de), plan: plan, byNode: map[identity.Node]*shardNode{}, byID: map[string]*account{}, last: map[sender]uint64{},
	}
	for n := range plan.Shards {
		for k := range plan.Entities {
			a := &account{id: fmt.Sprintf("%d/%d", n, k), shard: shardcore.Shard(n)}
			d.accounts = append(d.accounts, a)
			d.byID[a.id] = a
		}
	}
	d.store = newStateStore(d)
	d.rememberStore = newMemory(d)
	return d
}

// begin starts the clients.
func (d *sharding) begin() {
	if d.plan.Calm { // link delays differ much in calm plans
		d.w.Network.Delay = env.Between{Least: time.Millisecond, Most: d.between(5*time.Millisecond, 95*time.Millisecond)}
	}
	d.later(500*time.Millisecond, d.work)
	d.later(4*time.Second, d.injectFaults)
	d.later(20*time.Second, d.storeTrouble)
}

// oneIn returns true with probability 1/n, and false in calm plans and in the quiet phase.
func (d *sharding) oneIn(n int) bool { return !d.plan.Calm && !d.quiet && d.rand.IntN(n) == 0 }

// living returns the shard nodes of living members.
func (d *sharding) living() []*shardNode {
	return filter(d.all, func(s *shardNode) bool { return s.h.alive() && s.h.m.Member() })
}

// injectFaults moves shards, performs operator actions and injects faults.
func (d *sharding) injectFaults() {
	living := d.living()
	if len(living) == 0 {
		return
	}
	s := living[d.rand.IntN(len(living))]
	switch n := d.rand.IntN(20); {
	case n < 6:
		s.schedule(shardcore.Rebalance{}) // no effect without a coordinator
	case n < 8 && !d.plan.Calm && !s.proxy && s.wrongSetting == "" && s.m.LocalCoordinator() == nil && s.active():
		d.usurp(s)
	case n < 9:
		s.stopShards()
	case n < 11:
		d.drain(s)
	case n < 12:
		d.misconfigure(s)
	}
}

// usurp starts a second coordinator while another node has the coordinator.
func (d *sharding) usurp(s *shardNode) {
	d.hit("sharding", "second coordinator")
	d.w.Logf("%v runs a second coordinator for a while", s.h.p.Node())
	s.h.p.Do(func() {
		s.usurps = true
		s.step(shardcore.StartCoordinator{})
	})
	s.after(d.between(100*time.Millisecond, 12*time.Second), func() {
		if s.usurps {
			s.usurps = false
			if !s.hasSingleton {
				s.step(shardcore.StopCoordinator{Now: true})
			}
		}
	})
}

// sentRequest is a request that is repeated only without a reply.
type sentRequest struct {
	to    identity.Node
	kind  coordinator.Kind
	flush bool
	round uint64
	shard shardcore.Shard // the first one
}

// countRepeat counts a repeated request.
func (s *shardNode) countRepeat(subject sentRequest, row string) {
	if s.sentRequests[subject] {
		s.d.hit("sharding time-out", row)
	}
	s.sentRequests[subject] = true
}

// countRepeatedMessage counts messages that are repeated.
func (s *shardNode) countRepeatedMessage(to identity.Node, m *coordinator.Message) {
	row := ""
	switch m.Kind {
	case coordinator.Host, coordinator.BeginHandOff, coordinator.HandOff, coordinator.GetHomes, coordinator.Register, coordinator.RegisterProxy, coordinator.GracefulShutdown:
		row = m.Kind.String() + " again"
	default:
		return
	}
	subject := sentRequest{to: to, kind: m.Kind, round: m.Term<<32 | m.Round}
	if len(m.Shards) > 0 {
		subject.shard = m.Shards[0]
	}
	s.countRepeat(subject, row)
}

// mustHappen are the coverage rows that every large run must count.
func (d *sharding) mustHappen() {
	c := d.c.coverage
	rows(c, "shard message", coordinator.Register, coordinator.Refused, nil)
	rows(c, "region frame", region.Forward, region.Flushed, nil)
	rows(c, "coordinator", coordinator.PhaseChanged, coordinator.HandOffFailed, nil)
	rows(c, "coordinator became", coordinator.Loading, coordinator.Ended, nil)
	rows(c, "coordinator ended", coordinator.Terminated, coordinator.Diverged, nil)
	rows(c, "stored", coordinator.Started, coordinator.HomesDeallocated, nil)
	rows(c, "refused", shardcore.BufferFull, shardcore.NoShard, nil)
	rows(c, "entity", shard.Start, shard.Kill, nil)
	for table, rows := range map[string][]string{
		"entity":            {"load failed", "fenced", "store failed", "store timed out", "does not stop", "busy"},
		"answer":            {"done", "failed", "refused", "unknown"},
		"journal":           {"lands", "no answer", "fails", "vanishes", "lands late", "conflict"},
		"replicated":        {"done", "not found", "timed out", "failed", "stopped"},
		"register":          {"loaded", "load failed", "saved", "save failed", "conflict", "fenced", "state lost with its nodes"},
		"memory":            {"loaded", "load failed", "updated", "update failed", "fenced"},
		"replicated memory": {"loaded", "load failed", "updated", "update failed"},
		"sharding": {
			"second coordinator", "halted", "restarted", "stopped by force when it leaves", "dismissed", "region has stopped", "lower term refused",
			"entity twice after a pause", "drained", "undrained", "settings differ", "links to a leaving node are slow",
		},
		"sharding time-out": {
			"host again", "begin hand-off again", "hand-off again", "get homes again", "register again", "register proxy again", "graceful shutdown again", "flush again",
		},
		"path":         {"to an entity", "to a node", "from a peer", "queued", "between effects"},
		"command lost": {"node has ended", "receiver has ended", "link gap"},
		"checked": {
			"every-command-has-a-reply", "every-shard-has-a-home", "undrained-hosts-again", "commands are accounted for", "acknowledged commands are stored once", "planned moves only",
		},
	} {
		c.expect(table, rows...)
	}
}

// shardRole is the role of the nodes that host shards. The others run proxies.
const shardRole = "shards"

// enoughMessages is the minimum number of messages that clients send.
const enoughMessages = 10_000

const (
	// retryInterval is the interval at which a region repeats unanswered requests.
	retryInterval = 2 * time.Second
	// giveUpAfter is how long a leaving region waits for homes while no coordinator replies, as in
	// package sharding.
	giveUpAfter = 3 * retryInterval
)

// ShardsPlan is the random configuration of sharding in a simulation.
type ShardsPlan struct {
	// Config is the configuration that all nodes share.
	Config shardcore.Config
	// Shards is the number of shards, Entities the number of entities in each.
	Shards, Entities int
	// Proxy is the name of a node that hosts no shards, "" if there is none.
	Proxy string
	// Replicated selects replicated data as the store of the coordinator instead of a journal.
	Replicated bool
	// ReplicatedMemory selects replicated data as the store of remembered entities instead of a
	// journal.
	ReplicatedMemory bool
	// Calm excludes faults: nodes join and leave, and shards move, but no message may be lost or
	// refused.
	Calm bool
}

// NewShardsPlan returns the plan of a seed.
func NewShardsPlan(seed uint64, plan Plan) ShardsPlan {
	r := rand.New(rand.NewPCG(seed, 0x5a4d)) //nolint:gosec // must be repeatable
	p := ShardsPlan{Shards: 8 + r.IntN(25), Entities: 2 + r.IntN(4), Calm: r.IntN(8) == 0, Replicated: r.IntN(2) == 0}
	if len(plan.Names) > 3 && r.IntN(3) == 0 {
		p.Proxy = plan.Names[len(plan.Names)-1] // not a seed node
	}
	remember := r.IntN(2) == 0
	p.Config = shardcore.Config{
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
		p.Config.RecoverNumber = 1 + r.IntN(4)
	}
	p.ReplicatedMemory = remember && r.IntN(2) == 0
	p.Config.Region.Settings = coordinator.Settings{
		Shards: p.Shards, Routing: 1, Role: shardRole, State: storeKind(true, p.Replicated), Remember: storeKind(remember, p.ReplicatedMemory),
	}
	return p
}

// String returns the special properties of the plan.
func (p ShardsPlan) String() string {
	return fmt.Sprintf("%d shards of %d entities, proxy %q, replicated %t, remembered %t, replicated %t, calm %t",
		p.Shards, p.Entities, p.Proxy, p.Replicated, p.Config.Region.Remember, p.ReplicatedMemory, p.Calm)
}
