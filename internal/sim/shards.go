// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/sharding/passivation"
)

// coordination is the singleton that runs the coordinator.
const coordination = "sharding"

// sharding is the simulated entity type of a cluster. It also keeps an external record for the
// checks: the nodes on which entities run, and the commands that were sent, delivered, stored and
// acknowledged.
type sharding struct {
	workload

	plan   ShardsPlan
	all    []*shardNode // all nodes that ever existed
	byNode map[identity.Node]*shardNode

	store          *stateStore
	rememberStore  rememberedEntities
	accounts       []*account // by shard and number
	byID           map[string]*account
	commands       []command // by number, from 1
	journal        []logged  // the events of all accounts
	last           map[sender]uint64
	storeCallCount uint64        // number of store calls
	activeAt       time.Duration // time at which a coordinator became active, 0 if none is active
	misconfigured  string        // name of the node whose next process has a different setting
	closing        bool          // clients send no more commands
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
	d.store = &stateStore{d: d, fold: coordinator.NewFold(coordinator.State{}), homes: map[home]bool{}}
	if plan.Replicated {
		d.store.replicated = &replicatedStore{d: d, known: map[edition]coordinator.State{}, acked: map[edition]bool{}}
	}
	d.rememberStore = rememberedEntities{
		d: d, known: map[shardcore.Shard]bool{}, entities: map[shardcore.Shard]map[string]bool{}, owner: map[shardcore.Shard]owner{},
	}
	if plan.ReplicatedMemory {
		d.rememberStore.replicated = &replicatedEntities{
			d: d, knows: map[owner]map[string]bool{}, last: map[shardcore.Shard]map[string]bool{}, unsure: map[shardcore.Shard]bool{},
			open: map[shardcore.Shard]int{}, turns: map[home][]func(){},
		}
	}
	return d
}

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
		d.startSecondCoordinator(s)
	case n >= 9 && n < 11:
		d.drain(s)
	case n < 12:
		d.misconfigure(s)
	case n < 15:
		d.pin()
	}
}

// startSecondCoordinator starts a second coordinator while another node has the coordinator.
func (d *sharding) startSecondCoordinator(s *shardNode) {
	d.hit("sharding", "second coordinator")
	d.w.Logf("%v runs a second coordinator for a while", s.h.p.Node())
	s.h.p.Do(func() {
		s.secondCoordinator = true
		s.step(shardcore.StartCoordinator{})
	})
	s.after(d.between(100*time.Millisecond, 12*time.Second), func() {
		if s.secondCoordinator {
			s.secondCoordinator = false
			if !s.hasSingleton {
				s.step(shardcore.StopCoordinator{Now: true})
			}
		}
	})
}

// countRepeat counts a request that is repeated because it has no reply.
func (s *shardNode) countRepeat(row string, subject ...any) {
	key := row + fmt.Sprint(subject...)
	if s.sentRequests[key] {
		s.d.hit("sharding time-out", row)
	}
	s.sentRequests[key] = true
}

// hostedBy records a reply to Host.
func (s *shardNode) hostedBy(from identity.Node, shards []shardcore.Shard) {
	for _, n := range shards {
		delete(s.sentRequests, "host again"+fmt.Sprint(from, n))
	}
}

func (s *shardNode) countRepeatedMessage(to identity.Node, m *coordinator.Message) {
	switch m.Kind {
	case coordinator.Host: // each has its own round
		if len(m.Shards) > 0 {
			s.countRepeat("host again", to, m.Shards[0])
		}
	case coordinator.BeginHandOff, coordinator.HandOff, coordinator.GetHomes, coordinator.Register, coordinator.RegisterProxy, coordinator.GracefulShutdown:
		s.countRepeat(m.Kind.String()+" again", to, m.Term, m.Round, m.Shards[:min(1, len(m.Shards))])
	default:
	}
}

func (d *sharding) mustHappen() {
	c := d.c.coverage
	rows(c, "shard message", coordinator.Register, coordinator.Refused, nil)
	rows(c, "region frame", region.Forward, region.Flushed, nil)
	rows(c, "coordinator", coordinator.PhaseChanged, coordinator.HandOffFailed, nil)
	rows(c, "coordinator became", coordinator.Loading, coordinator.Ended, nil)
	rows(c, "coordinator ended", coordinator.Terminated, coordinator.Diverged, nil)
	rows(c, "stored", coordinator.Started, coordinator.ShardsReleased, nil)
	rows(c, "refused", shardcore.BufferFull, shardcore.NoShard, nil)
	rows(c, "entity", shard.Start, shard.Kill, nil)
	for table, rows := range map[string][]string{
		"entity":            {"load failed", "fenced", "store failed", "store timed out", "does not stop", "busy"},
		"answer":            {"done", "failed", "refused", "unknown"},
		"journal":           {"stored", "stored without a reply", "failed", "lost", "stored late", "conflict"},
		"replicated":        {"done", "not found", "timed out", "failed", "stopped"},
		"register":          {"loaded", "load failed", "saved", "save failed", "conflict", "fenced", "state lost with its nodes"},
		"memory":            {"loaded", "load failed", "updated", "update failed", "fenced"},
		"replicated memory": {"loaded", "load failed", "updated", "update failed"},
		"sharding": {
			"second coordinator", "halted", "restarted", "stopped by force when it leaves", "coordinator stopped", "region has stopped", "lower term refused",
			"malformed", "entity twice after a pause", "drained", "undrained", "settings differ", "links to a leaving node are slow",
			"pinned", "released", "load reported",
		},
		"standby":     {"event applied", "recovery reads the tail", "recovery reads nothing", "promoted", "another node was chosen"},
		"shard lease": {"held", "denied", "lost", "released", "release failed"},
		"sharding time-out": {
			"host again", "begin hand-off again", "hand-off again", "get homes again", "register again", "register proxy again", "graceful shutdown again", "flush again",
		},
		"path":         {"to an entity", "to a node", "from a peer", "queued", "between effects"},
		"command lost": {"node has ended", "receiver has ended", "link gap"},
		"checked": {
			"every-command-has-a-reply", "every-shard-has-a-home", "undrained-hosts-again", "pinned-shards-are-home", "shards-have-standbys", "commands are accounted for", "acknowledged commands are stored once", "planned moves only",
		},
	} {
		c.expect(table, rows...)
	}
}

// shardRole is the role of the nodes that host shards. The others run proxies.
const shardRole = "shards"

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
	// Calm excludes faults: nodes join and leave, and shards move, but no command may be lost. A
	// command may be refused only if gaveUp permits it.
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
	p.Config.Shard.RestartBackoff = p.Config.Region.RestartBackoff
	p.Config.Shard.StopTimeout = p.Config.Coordinator.HandOffTimeout - 5*time.Second
	if r.IntN(4) == 0 {
		p.Config.RecoverNumber = 1 + r.IntN(4)
	}
	if small := rand.New(rand.NewPCG(seed, 0xb0ff)); !p.Calm && small.IntN(12) == 0 { //nolint:gosec // must be repeatable
		p.Config.Region.BufferSize, p.Config.Shard.BufferSize = 20+small.IntN(200), 20+small.IntN(200)
	}
	p.ReplicatedMemory = remember && r.IntN(2) == 0
	p.Config.Coordinator.ReadsLoad = rand.New(rand.NewPCG(seed, 0x10ad)).IntN(2) == 0 //nolint:gosec // must be repeatable
	moves := rand.New(rand.NewPCG(seed, 0x57a2d))                                     //nolint:gosec // must be repeatable
	if moves.IntN(2) == 0 {
		p.Config.Coordinator.Standbys = 1 + moves.IntN(2)
	}
	p.Config.Coordinator.HandOffAtOnce = moves.IntN(4) == 0 && !p.Calm // a leaving node may refuse commands in transit
	p.Config.Shard.Lease = moves.IntN(4) == 0 && !p.Calm               // a shard that waits for its lease refuses commands at a hand-off
	p.Config.Region.Settings = coordinator.Settings{
		Shards: p.Shards, Routing: 1, Role: shardRole, State: storeKind(true, p.Replicated), Remember: storeKind(remember, p.ReplicatedMemory),
	}
	return p
}

// String returns the special properties of the plan.
func (p ShardsPlan) String() string {
	return fmt.Sprintf("%d shards of %d entities, proxy %q, replicated coordinator state %t, remember entities %t, replicated memory %t, calm %t, by load %t, %d standbys, hand-off at once %t, leases %t",
		p.Shards, p.Entities, p.Proxy, p.Replicated, p.Config.Region.Remember, p.ReplicatedMemory, p.Calm, p.Config.Coordinator.ReadsLoad, p.Config.Coordinator.Standbys, p.Config.Coordinator.HandOffAtOnce, p.Config.Shard.Lease)
}

// drain drains a node. Some time later it restarts the node or cancels the drain, possibly before
// the drain is complete. Only one node is drained at a time, and other nodes can take its shards.
func (d *sharding) drain(s *shardNode) {
	if !s.hosts() || !d.canSpare(s) {
		return
	}
	d.w.Logf("%v is drained", s.h.p.Node())
	s.drains++
	nr := s.drains
	d.delayWaysTo(s)
	s.schedule(shardcore.Leave{KeepRouting: true})
	s.after(maxLeaving, func() {
		if !s.m.Drained() || s.drains != nr {
			return
		}
		leavesInTime(s)
		if len(s.m.Hosted()) == 0 {
			d.hit("sharding", "drained")
		}
	})
	if d.rand.IntN(2) == 0 {
		s.after(d.between(time.Millisecond, maxLeaving+5*time.Second), s.undrain)
		return
	}
	s.after(maxLeaving+d.between(time.Second, 20*time.Second), s.restart)
}

// canSpare reports whether at least two other nodes can take the shards of a node. It returns false
// while a node is drained, and after the fault phase.
func (d *sharding) canSpare(s *shardNode) bool {
	living := d.living()
	others := filter(living, func(other *shardNode) bool { return other != s && other.hosts() })
	return len(others) > 1 && !d.c.restarts && !slices.ContainsFunc(living, func(other *shardNode) bool { return other.m.Drained() })
}

func (s *shardNode) undrain() {
	if s.m.Ending() || s.d.c.leaving[s.h.p.Node()] {
		return
	}
	s.d.hit("sharding", "undrained")
	s.d.w.Logf("%v accepts shards again, and has %d", s.h.p.Node(), len(s.m.Hosted()))
	s.step(shardcore.Undrain{})
}

// undrainedHosts checks that a node gets shards again after a canceled drain. It requires this only
// if there are more shards than hosting nodes. It returns a description of a node without shards,
// or "".
func (d *sharding) undrainedHosts() string {
	hosts := filter(d.living(), (*shardNode).hosts)
	for _, s := range hosts {
		if s.drains > 0 && len(s.m.Hosted()) == 0 && d.plan.Shards > len(hosts) {
			return s.h.p.Node().String() + " has no shards after its drain was canceled"
		}
	}
	return ""
}

// hosts reports whether a node accepts shards. It reads only the state of the node itself.
func (s *shardNode) hosts() bool {
	return !s.proxy && s.wrongSetting == "" && !s.m.Drained() && s.active() && s.h.up()
}

// restart ends the process of the node: a member leaves the cluster, a node that is not a member is
// killed. The simulation then starts a new process.
func (s *shardNode) restart() {
	switch {
	case !s.h.alive():
	case s.d.c.undisturbedNow, s.wrongSetting != "" && !s.h.m.Member(), s.d.c.lastSeed(s.h):
		s.after(5*time.Second, s.restart)
	case !s.h.m.Member():
		s.h.kill()
	case s.wrongSetting == "" && s.d.rand.IntN(2) == 0: // a node with a different setting leaves at once
		s.h.shutDown()
	default:
		s.d.c.leaving[s.h.p.Node()] = true
		s.h.submit(node.Membership{Input: membership.Leave{Node: s.h.p.Node()}})
	}
}

// delayWaysTo delays random links to a node that is about to leave, so that messages in flight
// arrive late. It does so only in calm plans, and never delays the link from the coordinator. It
// returns the time until the node leaves.
func (d *sharding) delayWaysTo(s *shardNode) time.Duration {
	coord, known := s.m.Coordinator()
	if !d.plan.Calm || !known || s.m.LocalCoordinator() != nil || d.rand.IntN(3) == 0 { // a coordinator on the leaving node would wait for its store
		return 0
	}
	name, by := s.h.p.Node().Name, d.between(100*time.Millisecond, 700*time.Millisecond)
	var from []string
	for _, other := range d.living() {
		if n := other.h.p.Node(); n.Name != name && n != coord && d.rand.IntN(4) > 0 {
			from = append(from, n.Name)
			d.w.Network.Late(n.Name, name, by)
		}
	}
	d.w.Logf("messages of %v to %s take %v longer", from, name, by)
	d.hit("sharding", "links to a leaving node are slow")
	d.w.After(maxLeaving, func() {
		for _, n := range from {
			d.w.Network.Late(n, name, 0)
		}
	})
	return d.between(0, time.Second)
}

func (s *shardNode) asks(k coordinator.Kind) {
	switch k {
	case coordinator.Register, coordinator.RegisterProxy, coordinator.GetHomes, coordinator.GracefulShutdown:
		if s.askedAt == shardcore.Never {
			s.askedAt = s.h.p.Now()
		}
	default:
	}
}

// gaveUp reports whether a command may be refused in a calm plan. The region must be leaving and
// lack the home of the shard. Its requests must have been unanswered for giveUpAfter, and no
// coordinator may have been active long enough to reply. The region may stop in the step that
// refuses its last commands.
func (s *shardNode) gaveUp(r *shardcore.Refusal) bool {
	d := s.d
	_, known := s.m.Home(r.Shard)
	if r.Reason != shardcore.Stopped || !s.m.Ending() || s.stopped || known || s.askedAt == shardcore.Never || s.h.p.Now() < s.askedAt+giveUpAfter {
		return false
	}
	return d.activeAt == 0 || d.w.Now() < d.activeAt+retryInterval+enoughToAnswer
}

// enoughToAnswer is the maximum time between a request and its reply in a calm plan.
const enoughToAnswer = 2 * time.Second

// answeredSoon checks that the caller of a refused command gets a reply.
func (d *sharding) answeredSoon(nr uint64) {
	d.hit("sharding", "refused as no coordinator answers")
	d.w.After(enoughToAnswer, func() {
		if l := d.command(nr); l.outcome == waits && !l.from.gone {
			l.from.h.violate("planned-moves-lose-nothing", "the caller of the refused command %d for %s has no reply", nr, l.account.id)
		}
	})
}

func storeKind(used, replicated bool) string {
	switch {
	case !used:
		return "none"
	case replicated:
		return "replicated"
	}
	return "journal"
}

// misconfigure restarts a node with a setting that differs from the other nodes. Later it restarts
// the node with the common settings. Only one node has a different setting at a time, and that node
// does not run the coordinator.
func (d *sharding) misconfigure(s *shardNode) {
	wrong := slices.ContainsFunc(d.living(), func(other *shardNode) bool { return other.wrongSetting != "" })
	if wrong || !s.hosts() && !s.proxy || d.misconfigured != "" || !d.canSpare(s) {
		return
	}
	d.misconfigured = s.h.p.Node().Name
	d.w.Logf("%v is about to restart with other settings", s.h.p.Node())
	s.restart()
}

func (s *shardNode) configure() {
	d, region := s.d, &s.cfg.Region
	if s.proxy {
		region.Settings.State, region.Settings.Remember = "", ""
	}
	if d.misconfigured != s.h.p.Node().Name {
		return
	}
	d.misconfigured = ""
	fields := []string{"Shards", "ShardOf", "Role", "State", "Remember"}
	if s.proxy {
		fields = fields[:3]
	}
	s.wrongSetting = fields[d.rand.IntN(len(fields))]
	switch settings := &region.Settings; s.wrongSetting {
	case "Shards":
		settings.Shards += 1 - 2*d.rand.IntN(2)
		s.cfg.Coordinator.Shards = settings.Shards
	case "ShardOf":
		settings.Routing++
	case "Role":
		settings.Role, region.Role = "", ""
	case "State":
		settings.State = storeKind(true, !d.plan.Replicated)
	case "Remember":
		region.Remember = !region.Remember
		settings.Remember = storeKind(region.Remember, false)
	}
	d.w.Logf("%v has a different %s", s.h.p.Node(), s.wrongSetting)
	s.after(d.between(6*time.Second, 30*time.Second), s.restart)
}

// otherSettingsAreRefused checks that a node with a different setting hosts no shard and is not
// registered. If a coordinator has refused the node, the reported settings must differ in exactly
// this one.
func otherSettingsAreRefused(s *shardNode) {
	if s.wrongSetting == "" {
		return
	}
	if hosted := s.m.Hosted(); s.m.Registered() || len(hosted) > 0 {
		s.h.violate("other-settings-are-refused", "its %s differs, but registered is %t, and it hosts the shards %v", s.wrongSetting, s.m.Registered(), hosted)
	}
	by, theirs := s.m.Refused()
	if theirs == nil {
		return
	}
	s.d.hit("sharding", "settings differ")
	if fields := s.cfg.Region.Settings.Differences(*theirs); !slices.Equal(fields, []string{s.wrongSetting}) {
		s.h.violate("other-settings-are-refused", "its %s differs, but %v reports the settings %+v", s.wrongSetting, by, *theirs)
	}
}

// onlyOtherSettingsAreRefused checks that a coordinator refuses only nodes with a different
// setting, and reports exactly this setting.
func onlyOtherSettingsAreRefused(s *shardNode, n *coordinator.Note) {
	if n.Kind != coordinator.RegionRefused {
		return
	}
	if other := s.d.byNode[n.Node]; other == nil || !slices.Equal(n.Fields, []string{other.wrongSetting}) {
		s.h.violate("other-settings-are-refused", "%v is refused for its %q", n.Node, n.Fields)
	}
}
