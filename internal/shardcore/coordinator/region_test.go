// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"maps"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// position is the position of a message: its term and round.
type position struct{ term, round uint64 }

func (s position) before(other position) bool {
	return s.term < other.term || s.term == other.term && s.round < other.round
}

// stopping is a shard that is being stopped.
type stopping struct {
	rounds []position // rounds to answer
	from   identity.Node
	again  bool // start again afterwards
}

// region performs the part of a region in the protocol with the coordinator.
type region struct {
	w        *world
	node     identity.Node
	proxy    bool
	instance uint64
	alive    bool // the process runs
	cut      bool

	term        uint64
	coordinator identity.Node
	registered  bool
	leaving     bool
	left        bool
	last        map[shard]position
	homes       map[shard]identity.Node
	hosts       map[shard]bool
	stops       map[shard]*stopping
	wanted      map[shard]bool
}

func (r *region) start() {
	r.instance++
	r.registered, r.leaving, r.left = false, false, false
	r.last, r.homes, r.hosts = map[shard]position{}, map[shard]identity.Node{}, map[shard]bool{}
	r.stops, r.wanted = map[shard]*stopping{}, map[shard]bool{}
}

func (r *region) crash() {
	r.alive = false
	for s := range r.hosts {
		r.w.unhost(r, s)
	}
	r.start()
}

// restart kills the region and starts another one on the same node.
func (r *region) restart() {
	for s := range r.hosts {
		r.w.unhost(r, s)
	}
	r.start()
}

// forget removes the homes on a removed node.
func (r *region) forget(n identity.Node) {
	maps.DeleteFunc(r.homes, func(_ shard, home identity.Node) bool { return home == n })
}

func (r *region) send(to identity.Node, m coordinator.Message) {
	m.Type, m.Instance = "account", r.instance
	r.w.post(r.node, to, m, false)
}

// isCurrent reports whether a message about a shard has the highest position so far.
func (r *region) isCurrent(m coordinator.Message, s shard) bool {
	at := position{m.Term, m.Round}
	if at.before(r.last[s]) {
		r.w.hit["late"]++
		return false
	}
	r.last[s] = at
	return true
}

func (r *region) receive(from identity.Node, m coordinator.Message) {
	if m.Instance != r.instance && m.Kind != coordinator.RegisterAgain {
		r.w.hit["for another instance"]++
		return
	}
	if m.Term < r.term {
		r.send(from, coordinator.Message{Kind: coordinator.Fenced, Term: r.term})
		return
	}
	if m.Term > r.term {
		r.term, r.coordinator, r.registered = m.Term, from, false
	}
	switch m.Kind {
	case coordinator.RegisterAck:
		r.registered = true
	case coordinator.RegisterAgain:
		r.registered = false
	case coordinator.Homes:
		for _, h := range m.Homes {
			for _, s := range h.Shards {
				if r.isCurrent(m, s) {
					r.home(s, h.Node)
				}
			}
		}
	case coordinator.Host:
		var done []shard
		for _, s := range m.Shards {
			if r.isCurrent(m, s) && !r.leaving {
				r.home(s, r.node)
				done = append(done, s)
			}
		}
		r.send(from, coordinator.Message{Kind: coordinator.Hosted, Term: m.Term, Round: m.Round, Shards: done})
	case coordinator.BeginHandOff:
		for _, s := range m.Shards {
			if r.isCurrent(m, s) && r.homes[s] != r.node {
				delete(r.homes, s)
			}
		}
		r.w.after(r.w.delay(), func() { // the region flushes its messages before it acknowledges
			r.send(from, coordinator.Message{Kind: coordinator.BeginHandOffAck, Term: m.Term, Round: m.Round})
		})
	case coordinator.HandOff:
		var none []shard
		for _, s := range m.Shards {
			switch {
			case !r.isCurrent(m, s):
			case r.hosts[s]:
				r.stop(s, from, position{m.Term, m.Round})
			default:
				delete(r.homes, s)
				none = append(none, s)
			}
		}
		if len(none) > 0 {
			r.send(from, coordinator.Message{Kind: coordinator.Stopped, Term: m.Term, Round: m.Round, Shards: none})
		}
	default:
		r.w.hit["not for a region"]++
	}
}

func (r *region) home(s shard, n identity.Node) {
	if n != r.node {
		if r.hosts[s] && r.stops[s] == nil {
			r.w.t.Errorf("seed %d, %v: %v hosts shard %d and received %v as its home", r.w.seed, r.w.now, r.node, s, n)
		}
		if r.w.find(n) == nil {
			return // the node was removed, and the coordinator does not reflect the removal yet
		}
		r.homes[s] = n
		delete(r.wanted, s)
		return
	}
	if r.proxy {
		r.w.t.Errorf("seed %d, %v: proxy %v received Host for shard %d", r.w.seed, r.w.now, r.node, s)
	}
	if r.leaving {
		return
	}
	if at := r.stops[s]; at != nil {
		at.again = true
		return
	}
	r.homes[s] = r.node
	delete(r.wanted, s)
	if !r.hosts[s] {
		r.hosts[s] = true
		r.w.host(r, s)
	}
}

func (r *region) stop(s shard, from identity.Node, round position) {
	if at := r.stops[s]; at != nil {
		at.rounds, at.from, at.again = []position{round}, from, false
		return
	}
	at := &stopping{rounds: []position{round}, from: from}
	r.stops[s] = at
	instance := r.instance
	time := r.w.delay()
	if r.w.rnd.IntN(20) == 0 {
		time += 10 * step * 10 // entities that stop slowly
	}
	r.w.after(time, func() {
		if r.instance != instance || !r.hosts[s] {
			return
		}
		delete(r.stops, s)
		delete(r.hosts, s)
		delete(r.homes, s)
		r.w.unhost(r, s)
		for _, round := range at.rounds {
			r.send(at.from, coordinator.Message{Kind: coordinator.Stopped, Term: round.term, Round: round.round, Shards: []shard{s}})
		}
		if at.again {
			r.home(s, r.node)
		}
	})
}

// use sends to an entity of a shard, which requires the home of the shard.
func (r *region) use(s shard) {
	if _, known := r.homes[s]; !known && !r.left {
		r.wanted[s] = true
	}
}

// tick repeats unanswered messages.
func (r *region) tick() {
	if r.left {
		return
	}
	switch {
	case r.proxy && !r.registered:
		for _, n := range r.w.candidates() {
			r.send(n, coordinator.Message{Kind: coordinator.RegisterProxy})
		}
	case !r.registered:
		for _, n := range r.w.candidates() {
			r.send(n, coordinator.Message{Kind: coordinator.Register})
		}
	case len(r.wanted) > 0:
		var shards []shard
		for s := range r.wanted {
			shards = append(shards, s)
		}
		slices.Sort(shards)
		r.send(r.coordinator, coordinator.Message{Kind: coordinator.GetHomes, Term: r.term, Shards: shards})
	}
	if r.leaving {
		for _, n := range r.w.candidates() {
			r.send(n, coordinator.Message{Kind: coordinator.GracefulShutdown})
			if len(r.hosts) == 0 && r.registered {
				r.send(n, coordinator.Message{Kind: coordinator.RegionStopped})
			}
		}
		r.left = len(r.hosts) == 0 && r.registered && r.w.rnd.IntN(4) == 0
	}
}
