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

// coordination is the singleton that has the coordinator.
const coordination = "sharding"

// sharding is an entity type of a cluster, and what is known about it from outside: which entities run where, which commands
// were sent, delivered, stored and answered.
type sharding struct {
	aside

	plan   ShardsPlan
	all    []*site // there ever were
	byNode map[identity.Node]*site

	store    *stateStore
	memory   memory
	accounts []*account // by shard and number
	byID     map[string]*account
	letters  []letter // by number, from 1
	last     map[sender]uint64
	errands  uint64        // what they have asked so far
	activeAt time.Duration // since when a coordinator is, 0: none is
	misfit   string        // name of the node that is going to have other settings when it starts again
	closing  bool          // clients have sent all that they send
}

func newSharding(c *cluster, seed uint64, plan ShardsPlan) *sharding {
	d := &sharding{
		aside: newAside(c, seed, 0x5a4de), plan: plan, byNode: map[identity.Node]*site{}, byID: map[string]*account{}, last: map[sender]uint64{},
	}
	for n := range plan.Shards {
		for k := range plan.Entities {
			a := &account{id: fmt.Sprintf("%d/%d", n, k), shard: shardcore.Shard(n)}
			d.accounts = append(d.accounts, a)
			d.byID[a.id] = a
		}
	}
	d.store = newStateStore(d)
	d.memory = newMemory(d)
	return d
}

// begin lets clients work.
func (d *sharding) begin() {
	if d.plan.Calm { // ways differ much, and nobody minds
		d.w.Network.Delay = env.Between{Least: time.Millisecond, Most: d.between(5*time.Millisecond, 95*time.Millisecond)}
	}
	d.later(500*time.Millisecond, d.work)
	d.later(4*time.Second, d.disturb)
	d.later(20*time.Second, d.storeTrouble)
}

// odds is true once in n times, unless all is planned or has calmed down.
func (d *sharding) odds(n int) bool { return !d.plan.Calm && !d.quiet && d.rand.IntN(n) == 0 }

// living returns the sites of living members.
func (d *sharding) living() []*site {
	var living []*site
	for _, s := range d.all {
		if s.h.alive() && s.h.m.Member() {
			living = append(living, s)
		}
	}
	return living
}

// disturb lets shards move, and other things happen that operators do, or that go wrong.
func (d *sharding) disturb() {
	living := d.living()
	if len(living) == 0 {
		return
	}
	s := living[d.rand.IntN(len(living))]
	switch n := d.rand.IntN(20); {
	case n < 6:
		s.do(shardcore.Rebalance{}) // nothing, unless the coordinator is there
	case n < 8 && !d.plan.Calm && !s.proxy && s.misfit == "" && !s.holds && !s.halted && !s.leaving:
		d.usurp(s)
	case n < 9:
		s.stopShards()
	case n < 11:
		d.drain(s)
	case n < 12:
		d.misconfigure(s)
	}
}

// usurp gives a node a coordinator while another one has it.
func (d *sharding) usurp(s *site) {
	d.hit("sharding", "second coordinator")
	d.w.Tell("%v has a coordinator, too, for a while", s.h.p.Node())
	s.h.p.Do(func() {
		s.usurps = true
		s.holds = true
		s.step(shardcore.StartCoordinator{})
	})
	s.after(d.between(100*time.Millisecond, 12*time.Second), func() {
		if s.usurps {
			s.usurps = false
			if !s.presides {
				s.step(shardcore.StopCoordinator{Now: true})
			}
		}
	})
}

// said is something that is said again only if there is no answer in time.
type said struct {
	to    identity.Node
	kind  coordinator.Kind
	flush bool
	round uint64
	shard shardcore.Shard // the first one
}

// repeats counts what is said again.
func (s *site) repeats(what said, row string) {
	if s.said[what] {
		s.d.hit("sharding time-out", row)
	}
	s.said[what] = true
}

// saysAgain counts messages that are repeated.
func (s *site) saysAgain(to identity.Node, m *coordinator.Message) {
	row := ""
	switch m.Kind {
	case coordinator.Host, coordinator.BeginHandOff, coordinator.HandOff, coordinator.GetHomes, coordinator.Register, coordinator.RegisterProxy, coordinator.GracefulShutdown:
		row = m.Kind.String() + " again"
	default:
		return
	}
	what := said{to: to, kind: m.Kind, round: m.Term<<32 | m.Round}
	if len(m.Shards) > 0 {
		what.shard = m.Shards[0]
	}
	s.repeats(what, row)
}

// mustHappen are the rows of what is counted when it happens.
func (d *sharding) mustHappen() {
	for k := coordinator.Register; k <= coordinator.Refused; k++ {
		d.c.coverage.hit("shard message", k.String(), 0)
	}
	for k := region.Forward; k <= region.Flushed; k++ {
		d.c.coverage.hit("region frame", k.String(), 0)
	}
	for k := coordinator.PhaseChanged; k <= coordinator.HandOffFailed; k++ {
		d.c.coverage.hit("coordinator", k.String(), 0)
	}
	for p := coordinator.Loading; p <= coordinator.Ended; p++ {
		d.c.coverage.hit("coordinator became", p.String(), 0)
	}
	for r := coordinator.Terminated; r <= coordinator.Diverged; r++ {
		d.c.coverage.hit("coordinator ended", r.String(), 0)
	}
	for k := coordinator.Started; k <= coordinator.HomesDeallocated; k++ {
		d.c.coverage.hit("stored", k.String(), 0)
	}
	for r := shardcore.BufferFull; r <= shardcore.NoShard; r++ {
		d.c.coverage.hit("refused", r.String(), 0)
	}
	for k := shard.Start; k <= shard.Kill; k++ {
		d.c.coverage.hit("entity", k.String(), 0)
	}
	for table, rows := range map[string][]string{
		"entity":            {"can't be loaded", "fenced", "store failed", "store timed out", "does not stop", "goes on"},
		"answer":            {"done", "failed", "refused", "unknown"},
		"journal":           {"lands", "no answer", "fails", "vanishes", "lands late", "conflict"},
		"replicated":        {"done", "not found", "timed out", "failed", "stopped"},
		"register":          {"loaded", "load failed", "saved", "save failed", "conflict", "fenced", "state lost with its nodes"},
		"memory":            {"loaded", "load failed", "updated", "update failed", "fenced"},
		"replicated memory": {"loaded", "load failed", "updated", "update failed"},
		"sharding": {
			"second coordinator", "halted", "begun again", "stopped by force when it leaves", "dismissed", "region has stopped", "lower term refused",
			"entity twice after a pause", "drained", "undrained", "settings differ", "ways to who leaves are slow",
		},
		"sharding time-out": {
			"host again", "begin hand-off again", "hand-off again", "get homes again", "register again", "register proxy again", "graceful shutdown again", "flush again",
		},
		"command lost": {"node has ended", "receiver has ended", "link gap"},
		"checked": {
			"every-asker-is-answered", "every-shard-has-a-home", "undrained-hosts-again", "commands are accounted for", "acknowledged commands are stored once", "planned moves only",
		},
	} {
		for _, row := range rows {
			d.c.coverage.hit(table, row, 0)
		}
	}
}

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
	Config shardcore.Config
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
