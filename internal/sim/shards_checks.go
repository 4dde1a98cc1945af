// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// enoughToLeave is the maximum time in which a coordinator moves the shards of a node. Some
// requests need a repetition.
const enoughToLeave = 6 * time.Second

// stale reports whether a node is paused, or has resumed a moment ago and still runs its old
// entities. Other nodes may have taken over these entities.
func (s *shardNode) stale() bool {
	p := s.h.p
	return p.Paused() || p.Resumed() > s.since && s.d.w.Now() <= p.Resumed()+overlap
}

// oneEntity checks that an entity runs once. Only a node that was paused for a long time may run a
// second incarnation for one second.
func oneEntity(e *entity) {
	if e.ended || e.s.gone {
		return
	}
	for _, other := range e.a.running {
		switch {
		case other == e || other.s == e.s && other.killed: // the previous incarnation is being killed
		case other.s.stale() || e.s.stale():
			e.s.d.hit("sharding", "entity twice after a pause")
			e.s.d.w.After(overlap+time.Millisecond, func() {
				if !other.ended && !other.s.h.p.Paused() && !e.s.h.p.Paused() {
					oneEntity(e)
				}
			})
		default:
			e.s.h.violate("one-entity", "%s starts while it runs on %v", e.a.id, other.s.h.p.Node())
		}
	}
}

func oneOwner(s *shardNode) {
	if s.m.RouteVersion() == s.routes {
		return
	}
	s.routes = s.m.RouteVersion()
	hosted := s.m.Hosted()
	for _, n := range hosted {
		if _, before := slices.BinarySearch(s.hosted, n); before {
			continue
		}
		if !s.d.store.homes[home{n, s.h.p.Node()}] {
			s.h.violate("host-only-after-stored", "it hosts shard %d, but this allocation was never stored", n)
		}
		for _, other := range s.d.all {
			if _, too := slices.BinarySearch(other.hosted, n); !too || other == s || other.gone || other.stale() || s.stale() {
				continue
			}
			if other.m.Halted() && len(other.m.Running(n)) == 0 { // suspended: the shard waits for a call of a store, and starts nothing
				continue
			}
			s.h.violate("one-owner", "it and %[2]v both host shard %[1]d", n, other.h.p.Node())
		}
	}
	s.hosted = hosted
}

// leavesInTime checks that, without failures, a coordinator moves all shards from a leaving node if
// another node stays.
func leavesInTime(s *shardNode) {
	d := s.d
	if !d.plan.Calm || len(s.m.Hosted()) == 0 || d.activeAt == 0 || d.w.Now() < d.activeAt+enoughToLeave {
		return
	}
	for _, other := range d.living() {
		if other != s && other.hosts() {
			s.h.violate("leaves-in-time", "it hosts %v after %v", s.m.Hosted(), maxLeaving)
		}
	}
}

func endedRunsNothing(s *shardNode, r shardcore.ShardRun) {
	for at := range s.entities {
		if at.ShardRun == r {
			s.h.violate("stopped-hosts-nothing", "shard %d has ended but %s runs", r.Shard, at.entity)
		}
	}
}

// lowerTermsAreRefused checks that a region ignores coordinators of a lower term than the region
// has seen, and sends Fenced to these coordinators. It returns whether the region accepts the
// message.
func lowerTermsAreRefused(s *shardNode, from identity.Node, msg coordinator.Message, e *shardcore.Effects) bool {
	if s.m.Halted() || msg.Instance != s.m.Instance() && msg.Kind != coordinator.RegisterAgain {
		return false // a halted region ignores the message, or replies only that it has stopped
	}
	by, _ := s.m.Coordinator()
	if msg.Term >= s.term {
		if by == from {
			s.term = msg.Term
		}
		return by == from
	}
	s.d.hit("sharding", "lower term refused")
	fenced := false
	for i := range e.Send {
		if o := &e.Send[i]; o.Kind == shardcore.KindCoordinator {
			m, err := coordinator.DecodeMessage(o.Data)
			fenced = fenced || err == nil && m.Kind == coordinator.Fenced && o.To == from
		}
	}
	switch {
	case s.proxy && by == from && !fenced: // the node with the higher term is gone
		s.term = msg.Term
		return true
	case len(e.Actions) > 0 || len(e.Send) > 1 || len(e.Send) > 0 && !fenced: // a node that cannot run the coordinator gets no reply
		s.h.violate("terms-never-fall", "the region has seen term %d but accepts %v of term %d", s.term, msg.Kind, msg.Term)
	}
	return false
}

// checkCoordinatorMessage checks that a message of a coordinator agrees with the stored state.
func (s *shardNode) checkCoordinatorMessage(to identity.Node, data []byte) {
	m, err := coordinator.DecodeMessage(data)
	s.countRepeatedMessage(to, &m)
	s.probed(&m)
	s.asks(m.Kind)
	c := s.m.LocalCoordinator()
	if err != nil || m.Kind.ToCoordinator() || c == nil { // the coordinator ended after it sent the message
		return
	}
	state, rev := c.State()
	if !s.d.store.was(state, rev) || state.Term() != m.Term {
		s.h.violate("state-is-stored", "it sends %v in term %d, but its state of term %d at revision %d differs from the stored one", m.Kind, m.Term, state.Term(), rev)
	}
	if m.Kind == coordinator.Host {
		for _, n := range m.Shards {
			if home, _ := state.Home(n); home != to {
				s.h.violate("host-only-after-stored", "it requests %v to host shard %d, whose stored home is %v", to, n, home)
			}
		}
	}
}

// was reports whether a state is the state after the first rev events.
func (s *stateStore) was(state coordinator.State, rev uint64) bool {
	if s.replicated != nil {
		known, found := s.replicated.known[edition{state.Term(), rev}]
		return found && known.Equal(state)
	}
	if rev > uint64(len(s.events)) {
		return false
	}
	if rev == uint64(len(s.events)) {
		return s.state.Equal(state)
	}
	then, err := coordinator.State{}.Apply(s.events[:rev]...)
	return err == nil && then.Equal(state)
}

// movingShardsHaveNoHome checks that no region is sent the home of a shard that is being handed off.
func movingShardsHaveNoHome(s *shardNode, sends []shardcore.Outgoing) {
	c := s.m.LocalCoordinator()
	if c == nil || len(sends) == 0 {
		return
	}
	moving := c.Moving()
	if len(moving) == 0 {
		return
	}
	var homes []shardcore.Shard
	for i := range sends {
		if sends[i].Kind != shardcore.KindCoordinator {
			continue
		}
		m, err := coordinator.DecodeMessage(sends[i].Data)
		switch {
		case err != nil:
		case m.Kind == coordinator.Homes:
			for _, h := range m.Homes {
				homes = append(homes, h.Shards...)
			}
		case m.Kind == coordinator.BeginHandOff: // the hand-off begins after this message
			homes = slices.DeleteFunc(homes, func(n shardcore.Shard) bool { return slices.Contains(m.Shards, n) })
		}
	}
	for _, n := range homes {
		if _, found := slices.BinarySearch(moving, n); found {
			s.h.violate("moving-shards-have-no-home", "it sends the home of shard %d during its hand-off", n)
		}
	}
}

// maxAnswering is the maximum time until every command has a reply after the faults have ended.
const maxAnswering = 90 * time.Second

// maxBalancing is the maximum time until every node that accepts shards has some: each rebalance
// may move one.
const maxBalancing = 6 * time.Minute

func (d *sharding) quiesce() {
	d.w.Logf("no more random moves of shards")
	d.quiet = true
	d.store.trouble = trouble{}
}

// finish checks the final state, when the nodes are one cluster and no faults occur.
func (d *sharding) finish() {
	for len(d.commands) < enoughMessages && d.c.violation == nil {
		d.work()
		d.c.run(100 * time.Millisecond)
	}
	d.closing = true
	d.passivateSome()
	if !d.c.converge("every-command-has-a-reply", maxAnswering, d.unanswered) {
		return
	}
	if !d.c.converge("every-shard-has-a-home", maxAnswering, d.waiting) {
		return
	}
	if !d.c.converge("undrained-hosts-again", maxBalancing, d.undrainedHosts) {
		return
	}
	if !d.c.converge("pinned-shards-are-home", maxBalancing, d.pinnedElsewhere) {
		return
	}
	if !d.c.converge("shards-have-standbys", maxBalancing, d.withoutStandbys) {
		return
	}
	d.accountForAll()
	d.allStored()
}

// unanswered sends commands to all shards from all nodes and returns one that has no reply.
func (d *sharding) unanswered() string {
	why := ""
	for _, s := range d.living() {
		if s.asked == nil {
			s.asked = make([]uint64, d.plan.Shards)
		}
		for n, nr := range s.asked {
			if nr != 0 {
				switch o := d.command(nr).outcome; o {
				case done:
					continue
				case waits:
					why = fmt.Sprintf("command %d of %v for shard %d waits", nr, s.h.p.Node(), n)
					continue
				case failed, refused, unknown:
					d.hit("sharding", "sent again at the end")
				}
			}
			s.h.p.Do(func() { s.asked[n] = s.write(d.accounts[n*d.plan.Entities]) })
			why = fmt.Sprintf("%v sends a command for shard %d", s.h.p.Node(), n)
		}
	}
	return why
}

// waiting returns a description of a command that waits or of a wrong state. It returns "" if there
// is none.
func (d *sharding) waiting() string {
	for _, s := range d.living() {
		switch n := s.m.Waiting(); {
		case n > 0:
			return fmt.Sprintf("%d commands wait on %v", n, s.h.p.Node())
		case !s.m.Registered():
			return s.h.p.Node().String() + " is not registered"
		case !s.active():
			return s.h.p.Node().String() + " hosts nothing"
		}
		if coord, _ := s.m.Coordinator(); d.byNode[coord] == nil || d.byNode[coord].m.LocalCoordinator() == nil || !d.byNode[coord].hasSingleton {
			return fmt.Sprintf("%v expects the coordinator on %v, which does not run it", s.h.p.Node(), coord)
		}
	}
	return d.forgotten()
}

// passivateSome passivates running entities, so that they are forgotten.
func (d *sharding) passivateSome() {
	for _, a := range d.accounts {
		for _, e := range a.running {
			if d.rand.IntN(2) == 0 {
				e.s.h.p.Do(e.passivate)
			}
		}
	}
}

// forgotten describes an entity for which the remembered state differs from the running state, or
// returns "".
func (d *sharding) forgotten() string {
	if !d.plan.Config.Region.Remember {
		return ""
	}
	for _, a := range d.accounts {
		if d.rememberStore.wrong(a) {
			return fmt.Sprintf("%s runs %d times, which differs from the remembered entities", a.id, len(a.running))
		}
	}
	return ""
}

// accountForAll checks that each command was delivered or refused, or was lost with a node or a
// link.
func (d *sharding) accountForAll() {
	for i := range d.commands {
		l := &d.commands[i]
		why := ""
		switch {
		case l.delivered || l.refused:
			continue
		case l.dropped:
			why = "sender quarantined"
		case l.at.gone:
			why = "node has ended"
		case l.to == nil:
		case l.to.gone:
			why = "receiver has ended"
		default:
			g := d.w.Gap(l.at.h.p.Node(), l.to.h.p.Node())
			if g.Noticed > l.before.Noticed {
				why = "link gap"
			} else if g.Frames > l.before.Frames {
				why = "frame lost without a later one"
			}
		}
		if d.plan.Calm && !l.forced() || why == "" {
			d.c.violate("planned-moves-lose-nothing", l.at.h.p.Node(), "command %d of %v for %s is lost there: %s", i+1, l.from.h.p.Node(), l.account.id, why)
			return
		}
		d.hit("command lost", why)
	}
	d.hit("checked", "commands are accounted for")
	if d.plan.Calm {
		d.hit("checked", "planned moves only")
	}
}

// forced reports whether the holder or the receiver of a command was stopped by force.
func (l *command) forced() bool { return l.at.forced || l.to != nil && l.to.forced }

// allStored checks that each acknowledged command is stored once.
func (d *sharding) allStored() {
	times := map[uint64]int{}
	for _, a := range d.accounts {
		for _, nr := range a.stored {
			times[nr]++
			if l := d.command(nr); l.account != a || times[nr] > 1 {
				d.c.violate("stored-once", l.from.h.p.Node(), "command %d for %s is stored %d times, in %s", nr, l.account.id, times[nr], a.id)
			}
		}
	}
	for i := range d.commands {
		if l := &d.commands[i]; l.outcome == done && times[uint64(i+1)] != 1 {
			l.from.h.violate("acknowledged-is-stored", "command %d for %s is acknowledged and stored %d times", i+1, l.account.id, times[uint64(i+1)])
		}
	}
	d.hit("checked", "acknowledged commands are stored once")
}
