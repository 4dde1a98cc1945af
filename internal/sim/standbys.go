// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// standby follows the journal of the entities on a node, if the plan has standbys: the counterpart of
// the standby in package eventsourcing.
type standby struct {
	applied int              // number of applied events of the journal
	slow    bool             // the node lags
	held    map[*account]int // by entity: the number of applied events
}

// promotions is the record of the probes of a coordinator, and of the shards whose home it has removed.
type promotions struct {
	term    uint64
	round   uint64
	probes  []map[identity.Node]int // the positions in the replies to each probe
	removed map[shardcore.Shard]removal
}

type removal struct {
	node   identity.Node
	probes int // number of probes before
	at     time.Duration
}

func (s *shardNode) startStandby() {
	if s.standbys() == 0 {
		return
	}
	s.standby = &standby{applied: len(s.d.journal), held: map[*account]int{}, slow: s.d.rand.IntN(3) == 0}
	s.follow()
}

func (s *shardNode) standbys() int {
	if s.proxy {
		return 0
	}
	return s.cfg.Coordinator.Standbys
}

// follow reads a page of the journal now and then.
func (s *shardNode) follow() {
	d, f := s.d, s.standby
	most := 500 * time.Millisecond
	if f.slow {
		most = 6 * time.Second
	}
	s.after(d.between(10*time.Millisecond, most), func() {
		s.follow()
		if d.store.fails() {
			return
		}
		for page := 100; page > 0 && f.applied < len(d.journal); page-- {
			s.applyEvent(d.journal[f.applied])
			f.applied++
		}
	})
}

// applyEvent applies an event to the state of an entity, unless the entity runs on this node.
func (s *shardNode) applyEvent(at logged) {
	if !s.isStandby(at.account.shard) || slices.ContainsFunc(at.account.running, func(e *entity) bool { return e.s == s }) {
		delete(s.standby.held, at.account)
		return
	}
	if held, known := s.standby.held[at.account]; known && at.nr != held+1 && at.nr > held {
		s.h.violate("standby-misses-nothing", "its state of %s has %d events, and the next one is event %d", at.account.id, held, at.nr)
	}
	s.standby.held[at.account] = max(at.nr, s.standby.held[at.account])
	s.d.hit("standby", "event applied")
}

// logged is an event in the journal: the event nr of an account.
type logged struct {
	account *account
	nr      int
}

// isStandby computes from the membership whether this node is a standby of a shard, or its home.
func (s *shardNode) isStandby(shard shardcore.Shard) bool {
	nodes := s.mayHost()
	return slices.Contains(nodes, s.h.p.Node()) && coordinator.IsStandby(shard, s.h.p.Node(), nodes, s.standbys())
}

func (s *shardNode) mayHost() (nodes []identity.Node) {
	for _, m := range s.h.m.View().Members {
		if m.HasRole(shardRole) && (m.Status == identity.Up || m.Status == identity.Leaving) {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// unfollow removes the states of which the node is no longer a standby.
func (s *shardNode) unfollow() {
	if s.standby != nil {
		maps.DeleteFunc(s.standby.held, func(a *account, _ int) bool { return !s.isStandby(a.shard) })
	}
}

// takeState removes the state of an entity that starts. The entity then reads the events that follow.
func (e *entity) takeState() {
	f := e.s.standby
	if f == nil {
		return
	}
	held, found := f.held[e.a]
	delete(f.held, e.a)
	switch {
	case !found:
	case held > len(e.a.stored):
		e.s.h.violate("standby-misses-nothing", "its state of %s has %d events, but only %d are stored", e.a.id, held, len(e.a.stored))
	case held < len(e.a.stored):
		e.s.d.hit("standby", "recovery reads the tail")
	default:
		e.s.d.hit("standby", "recovery reads nothing")
	}
}

// standbyIsSilent checks that only a node that hosts the shard of an entity delivers a command to it.
func standbyIsSilent(e *entity) {
	if _, home := slices.BinarySearch(e.s.m.Hosted(), e.at.Shard); !home {
		e.s.h.violate("standby-is-silent", "%s receives a command, but the node does not host shard %d", e.a.id, e.at.Shard)
	}
}

// probed records the begin of a probe of the coordinator on this node.
func (s *shardNode) probed(m *coordinator.Message) {
	p := &s.promotions
	if m.Kind != coordinator.Host || len(m.Shards) > 0 || s.standbys() == 0 {
		return
	}
	if p.term != m.Term {
		*p = promotions{term: m.Term, removed: map[shardcore.Shard]removal{}}
	}
	if p.round != m.Round {
		p.round = m.Round
		p.probes = append(p.probes, map[identity.Node]int{})
	}
}

// responded records the position in a reply to the running probe.
func (s *shardNode) responded(from identity.Node, m *coordinator.Message) {
	p := &s.promotions
	if m.Kind != coordinator.Hosted || m.Term != p.term || m.Round != p.round || m.Followed == "" || len(p.probes) == 0 {
		return
	}
	p.probes[len(p.probes)-1][from] = must(strconv.Atoi(m.Followed))
}

// promotes checks the homes that a coordinator is about to store. A shard whose home was removed must
// not go to a node that has applied less of the journal than a standby that replied to all probes since
// the removal.
func (s *shardNode) promotes(c *coordinator.Change) {
	p, running := &s.promotions, s.m.LocalCoordinator()
	if s.standbys() == 0 || running == nil || p.term != c.Term {
		return
	}
	state, _ := running.State()
	for _, e := range c.Events {
		before := state
		state, _ = state.Apply(e) // a region that leaves has lost its shards in earlier events of the change
		switch e.Kind {
		case coordinator.RegionTerminated:
			if at, found := before.Region(e.Node); found {
				for _, n := range at {
					p.removed[n] = removal{e.Node, len(p.probes), s.d.w.Now()}
				}
			}
		case coordinator.HomesAllocated:
			for _, n := range e.Shards {
				if was, found := p.removed[n]; found {
					delete(p.removed, n)
					s.mayPromote(&before, n, e.Node, was)
				}
			}
		default:
		}
	}
}

func (s *shardNode) mayPromote(state *coordinator.State, shard shardcore.Shard, to identity.Node, was removal) {
	d, chosen := s.d, s.d.byNode[to]
	// A probe does not wait for a region that has not replied to the one before.
	probes := s.promotions.probes[max(0, was.probes-1):]
	if _, pinned := state.Pin(shard); pinned || chosen == nil || chosen.standby == nil || len(s.promotions.probes) == was.probes {
		return
	}
	nodes := []identity.Node{was.node}
	for _, r := range state.Regions() {
		nodes = append(nodes, r.Node)
	}
	if coordinator.IsStandby(shard, to, nodes, s.standbys()) {
		d.hit("standby", "promoted")
	} else {
		d.hit("standby", "another node was chosen")
	}
	for _, other := range d.living() {
		n := other.h.p.Node()
		if !slices.Contains(nodes, n) || n == was.node || !coordinator.IsStandby(shard, n, nodes, s.standbys()) || !other.hosts() || other.drains > 0 || d.c.healthySince(other.h) > was.at {
			continue
		}
		least, always := len(d.journal), true
		for _, probe := range probes {
			position, replied := probe[n]
			least, always = min(least, position), always && replied
		}
		if always && least > chosen.standby.applied {
			s.h.violate("promotes-the-most-advanced", "%v becomes the home of shard %d at %d, but the standby %v had applied %d events", to, shard, chosen.standby.applied, n, least)
		}
	}
}

// withoutStandbys returns a shard that has fewer standbys than required on nodes other than its home, or
// "".
func (d *sharding) withoutStandbys() string {
	for _, s := range d.living() {
		c := s.m.LocalCoordinator()
		if s.standbys() == 0 || c == nil || !s.hasSingleton {
			continue
		}
		state, _ := c.State()
		for n := range shardcore.Shard(d.plan.Shards) { //nolint:gosec // small
			home, found := state.Home(n)
			hosts := filter(d.living(), func(other *shardNode) bool { return !other.proxy })
			on := filter(hosts, func(other *shardNode) bool { return other.h.p.Node() != home && other.isStandby(n) })
			if found && len(on) < min(s.standbys(), len(hosts)-1) {
				return "shard " + strconv.Itoa(int(n)) + " has too few standbys"
			}
		}
	}
	return ""
}
