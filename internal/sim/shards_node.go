// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	statereg "github.com/refold-io/refold/internal/shardcore/register"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/sharding/allocation"
)

// kindAnswer is the kind of the answers to commands.
const kindAnswer link.Kind = 202

// maxLeaving is how long a node that leaves waits until its shards are elsewhere.
const maxLeaving = 9 * time.Second

// site is what a host runs of the entity type: what package sharding does in earnest, without threads.
type site struct {
	d   *sharding
	h   *host
	m   *shardcore.Machine
	cfg shardcore.Config

	proxy     bool
	wakes     time.Duration // when it is going to look at the time, on its own clock
	quick     time.Duration // when the last message was handled that came while it had too much to do
	gone      bool          // the process has ended
	suspended bool
	halted    bool   // all was stopped, since the node must not host anything
	empty     bool   // nothing of the region runs any more
	leaving   bool   // for good
	drained   bool   // it takes no shards any more
	drains    int    // how often that was so
	misfit    string // the setting in which it differs from the others, "" if in none
	region    uint64 // counts the machines
	left      func()
	holds     bool // the machine is appointed
	presides  bool // it is to be
	usurps    bool // it is, though it isn't to be
	dismissed func()

	entities map[place]*entity
	hosted   []shardcore.Shard
	turn     uint64
	since    time.Duration            // when the machine began
	term     uint64                   // the highest that the region has heard of
	askedAt  time.Duration            // when a coordinator was asked first, if none has said anything since
	open     map[uint64]identity.Node // commands that were sent to others and whose answers are awaited
	asked    []uint64                 // by shard: the last command in the end
	said     map[said]bool
	register *statereg.Store
	errands  map[*errand]bool
	awaits   map[uint64]*errand // by the number of what they have asked
	forced   bool               // it was stopped by force, though it had time
}

// host starts the site of a node.
func (d *sharding) host(h *host) *site {
	s := &site{
		d: d, h: h, cfg: d.plan.Config, proxy: h.p.Node().Name == d.plan.Proxy, wakes: shardcore.Never, entities: map[place]*entity{}, open: map[uint64]identity.Node{},
		said: map[said]bool{}, errands: map[*errand]bool{}, awaits: map[uint64]*errand{},
	}
	s.register = statereg.New(replicatedKeys{s}, h.p.Node().String())
	s.cfg.Region.Self, s.cfg.Region.Proxy = h.p.Node(), s.proxy
	s.configure()
	s.cfg.Coordinator.RemovalMargin = max(0, h.m.Config().Downing.RemovalMargin)
	s.anew()
	d.all = append(d.all, s)
	d.byNode[h.p.Node()] = s
	return s
}

// anew makes a machine.
func (s *site) anew() {
	m, err := shardcore.New(s.cfg)
	if err != nil {
		panic(fmt.Sprintf("sim: %v: %v", s.h.p.Node(), err)) // the configuration is the simulator's
	}
	if s.m != nil {
		m.InheritMembers(s.m)
	}
	s.m, s.turn, s.hosted, s.since, s.term, s.askedAt = m, 0, nil, s.d.w.Now(), 0, shardcore.Never
	s.region++
}

func (s *site) violate(invariant, format string, args ...any) {
	s.h.violate(invariant, format, args...)
}

// after calls f on the node's clock, unless the process has ended.
func (s *site) after(t time.Duration, f func()) {
	s.h.p.After(t, func() {
		if !s.gone {
			f()
		}
	})
}

// do lets somebody outside tell the machine what happened.
func (s *site) do(in shardcore.Input) { s.h.p.Do(func() { s.step(in) }) }

// step tells the machine what happened, and does what it wants.
func (s *site) step(in shardcore.Input) {
	if !s.gone {
		s.perform(s.m.Step(s.h.p.Now(), in))
	}
}

// wakeUp lets the machine look at the time when it wants to.
func (s *site) wakeUp() {
	next := s.m.Next()
	if s.gone || next >= s.wakes {
		return
	}
	s.wakes = next
	s.after(next-s.h.p.Now(), func() {
		if s.wakes != next {
			return
		}
		s.wakes = shardcore.Never
		if s.m.Next() <= s.h.p.Now() {
			s.perform(s.m.Tick(s.h.p.Now()))
		}
		s.wakeUp()
	})
}

// members tells the machine who is in the cluster.
func (s *site) members(events []membership.Event) {
	if s.gone || !slices.ContainsFunc(events, func(e membership.Event) bool { return changesMembers(e) || e.Kind == membership.ShuttingDown }) {
		return
	}
	s.see()
}

func (s *site) see() {
	if s.suspended = s.h.m.Suspended(); s.suspended {
		s.halt()
		return
	}
	s.again()
	var in coordinator.Members
	stopped := s.h.m.Stopped()
	if !stopped {
		snapshot := s.h.m.Snapshot()
		for _, m := range snapshot.Members {
			in.Members = append(in.Members, *m)
		}
		for _, m := range snapshot.Unreachable {
			in.Unreachable = append(in.Unreachable, m.Node)
		}
	}
	s.step(shardcore.Members{Members: in})
	if stopped || s.h.m.Member() {
		s.lost(func(n identity.Node) bool { return !stopped && s.h.m.Gossip().Member(n) != nil })
	}
}

// halt stops all at once, since the node must not host anything for now.
func (s *site) halt() {
	if !s.halted {
		s.halted = true
		s.d.hit("sharding", "halted")
		s.step(shardcore.Stop{})
	}
}

// again begins anew when the node may host again, and all that was stopped has ended.
func (s *site) again() {
	if !s.halted || s.suspended || !s.empty || s.leaving || s.gone {
		return
	}
	s.d.hit("sharding", "begun again")
	s.cfg.Region.Instance++
	s.halted, s.empty = false, false
	s.anew()
	s.see()
	s.appoint()
	if s.drained {
		s.step(shardcore.Leave{KeepRouting: true})
	}
}

// leave gives all shards away, maybe after a while, and calls then when that is done or takes too long.
func (s *site) leave(then func()) { s.after(s.d.delayWaysTo(s), func() { s.leaveNow(then) }) }

func (s *site) leaveNow(then func()) {
	done := false
	once := func() {
		if !done {
			done = true
			then()
		}
	}
	s.after(maxLeaving, func() {
		if !done {
			s.d.hit("sharding", "stopped by force when it leaves")
			leavesInTime(s)
			s.forced = true
			s.quit(shardcore.Stop{})
			once()
		}
	})
	s.left = once
	s.quit(shardcore.Leave{})
}

// quit ends the region for good.
func (s *site) quit(in shardcore.Input) {
	s.leaving = true
	if s.empty {
		s.hasLeft()
		return
	}
	s.step(in)
}

func (s *site) hasLeft() {
	if f := s.left; f != nil {
		s.left = nil
		f()
	}
}

// appoint gives the machine the coordinator, if it is to have it.
func (s *site) appoint() {
	if s.presides && !s.holds && !s.halted && s.misfit == "" {
		s.holds = true
		s.step(shardcore.StartCoordinator{})
	}
}

// preside is called when the singleton starts.
func (s *site) preside() {
	s.presides = true
	s.appoint()
	if s.misfit != "" { // somebody has to notice before
		s.startAnew()
	}
}

// retire is called when the singleton is to end, and calls then when it has.
func (s *site) retire(then func()) {
	s.presides = false
	if !s.holds {
		then()
		return
	}
	s.dismissed = then
	s.step(shardcore.StopCoordinator{})
}

// end notes that the process is gone, with all that it had.
func (s *site) end() {
	if s.gone {
		return
	}
	s.gone = true
	if s.holds {
		s.d.activeAt = 0
	}
	for _, e := range s.entities {
		e.vanish()
	}
	clear(s.entities)
	clear(s.open)
	s.endErrands()
}

// idle reports whether nothing of the region runs.
func (s *site) idle() bool { return s.gone || len(s.entities) == 0 }

// received hands over a message of another node, late if the node has too much to do.
func (s *site) received(m env.Message) {
	switch lag, now := s.h.c.lag[s.h.p.Place().Name], s.h.p.Now(); {
	case m.To != s.h.p.Node():
		s.d.hit("sharding", "stray message")
	case s.h.cut[m.From], s.gone:
		s.d.undelivered(m)
	case lag > 0 || s.quick > now:
		s.quick = max(s.quick, now+time.Duration(s.d.rand.Int64N(int64(lag/4+time.Millisecond))))
		s.after(s.quick-now, func() { s.receive(m) })
	default:
		s.receive(m)
	}
}

func (s *site) receive(m env.Message) {
	switch m.Kind {
	case kindAnswer:
		s.answered(m.Data)
	case link.Kind(shardcore.KindRegion):
		if p, err := region.DecodePacket(m.Data); err == nil {
			s.d.hit("region frame", p.Kind.String())
			if p.Kind == region.Forward {
				s.d.arrived(s, p.Body)
			}
		}
		s.step(shardcore.Received{From: m.From, Kind: shardcore.KindRegion, Data: m.Data})
	default:
		s.hear(m)
	}
}

// hear takes a message of a coordinator, or for one.
func (s *site) hear(m env.Message) {
	msg, err := coordinator.DecodeMessage(m.Data)
	if err != nil {
		s.violate("sends-what-can-be-read", "a message about sharding: %v", err)
		return
	}
	s.d.hit("shard message", msg.Kind.String())
	in := shardcore.Received{From: m.From, Kind: shardcore.KindCoordinator, Data: m.Data}
	if s.gone {
		return
	}
	e := s.m.Step(s.h.p.Now(), in)
	if !msg.Kind.ToCoordinator() && lowerTermsAreRefused(s, m.From, msg, &e) {
		s.askedAt = shardcore.Never
	}
	s.perform(e)
}

// stopShards asks the coordinator to stop shards that are not needed, as a package would that knows that.
func (s *site) stopShards() {
	boss, known := s.m.Coordinator()
	if !known || boss == s.h.p.Node() || s.leaving || s.halted {
		return
	}
	n := shardcore.Shard(s.d.rand.IntN(s.d.plan.Shards)) //nolint:gosec // small
	msg := coordinator.Message{Kind: coordinator.StopShards, Type: s.cfg.Region.Type, Instance: s.m.Instance(), Shards: []shardcore.Shard{n}}
	s.h.p.Do(func() {
		if !s.gone && !s.h.cut[boss] {
			s.h.p.Send(boss, link.Data, link.Kind(shardcore.KindCoordinator), coordinator.AppendMessage(nil, msg))
		}
	})
}

// numberOf returns the number of a command.
func numberOf(m shardcore.Message) uint64 {
	if nr, own := m.Local.(uint64); own {
		return nr
	}
	nr, _ := binary.Uvarint(m.Body)
	return nr
}

// perform does what the machine wants done, in its order.
func (s *site) perform(e shardcore.Effects) {
	d := s.d
	for i := range e.Notes {
		s.noted(&e.Notes[i])
	}
	for _, m := range e.Malformed {
		s.violate("sends-what-can-be-read", "a message of %v: %v", m.From, m.Err)
	}
	for _, r := range e.Refused {
		d.refused(s, r)
	}
	for _, r := range e.Remember {
		d.memory.ask(s, r)
	}
	for _, a := range e.Actions {
		s.act(a)
	}
	for _, r := range e.Ended {
		endedRunsNothing(s, r)
	}
	s.consult(&e)
	oneOwner(s)
	misfitsAreRefused(s)
	movingIsNotTold(s, e.Send)
	for i := range e.Send {
		s.send(&e.Send[i])
	}
	if e.CoordinatorStopped {
		d.hit("sharding", "dismissed")
		s.holds = false
		if f := s.dismissed; f != nil {
			s.dismissed = nil
			s.after(0, f)
		}
	}
	if e.Stopped {
		s.hasStopped()
	}
	s.wakeUp()
}

func (s *site) hasStopped() {
	s.d.hit("sharding", "region has stopped")
	s.empty = true
	if len(s.entities) > 0 {
		s.violate("stopped-hosts-nothing", "the region has stopped, and %d entities run", len(s.entities))
	}
	if !s.halted || s.leaving {
		s.hasLeft()
	}
	s.after(0, func() {
		s.again()
		s.h.maybeEnd()
	})
}

func (s *site) noted(n *coordinator.Note) {
	s.d.hit("coordinator", n.Kind.String())
	onlyMisfitsAreRefused(s, n)
	if n.Kind == coordinator.PhaseChanged {
		s.d.hit("coordinator became", n.Phase.String())
		s.d.w.Tell("%v: the coordinator of term %d is %v", s.h.p.Node(), n.Term, n.Phase)
		if s.d.activeAt = 0; n.Phase == coordinator.Active {
			s.d.activeAt = s.d.w.Now()
		}
		if n.Phase == coordinator.Ended {
			s.d.hit("coordinator ended", n.Reason.String())
		}
	}
}

// consult puts the coordinator's questions to the store and to the strategy.
func (s *site) consult(e *shardcore.Effects) {
	d := s.d
	if e.Load != 0 {
		d.store.load(s, e.Load)
	}
	if e.Save != nil {
		d.store.save(s, *e.Save)
	}
	if e.AddShards != nil {
		d.memory.add(s, *e.AddShards)
	}
	if ask := e.Ask; ask != nil {
		in := coordinator.HomesChosen{ID: ask.ID, Homes: allocation.All(ask.View, ask.Requests, allocation.LeastShards{}.Allocate)}
		if d.odds(20) { // it has failed
			clear(in.Homes)
		}
		s.answerLater(in)
	}
	if ask := e.Rebalance; ask != nil {
		in := coordinator.Rebalanced{ID: ask.ID, Shards: allocation.LeastShards{}.Rebalance(ask.View)}
		if !d.quiet && d.rand.IntN(2) == 0 {
			for n := range shardcore.Shard(d.plan.Shards) { //nolint:gosec // small
				if d.rand.IntN(5) == 0 {
					in.Shards = append(in.Shards, n)
				}
			}
		}
		s.answerLater(in)
	}
}

// answerLater tells the coordinator something soon.
func (s *site) answerLater(in coordinator.Input) {
	m := s.m
	s.after(s.d.storeDelay(), func() {
		if s.m == m {
			s.step(shardcore.CoordinatorReply{Input: in})
		}
	})
}

// send carries a frame to another node.
func (s *site) send(o *shardcore.Outgoing) {
	if o.To == s.h.p.Node() {
		s.violate("sends-what-can-be-read", "it sends to itself")
	}
	own, command := o.Message.Local.(uint64)
	var body []byte
	if command {
		body = binary.AppendUvarint(nil, own)
	}
	data := o.Encoded(body)
	if o.Kind == shardcore.KindCoordinator {
		s.says(o.To, data)
	}
	if o.Kind == shardcore.KindRegion && o.Message.Entity == "" {
		if p, err := region.DecodePacket(data); err == nil && p.Kind == region.Flush {
			s.repeats(said{to: o.To, flush: true, round: p.Instance<<32 | p.ID}, "flush again")
		}
	}
	if o.Message.Entity == "" {
		if !s.h.cut[o.To] {
			s.h.p.Send(o.To, link.Data, link.Kind(o.Kind), data)
		}
		return
	}
	nr := numberOf(o.Message)
	if s.h.cut[o.To] || !s.h.p.Send(o.To, link.Data, link.Kind(o.Kind), data) {
		s.d.refused(s, shardcore.Refusal{Message: o.Message, Reason: shardcore.NotHome})
		return
	}
	l := s.d.letter(nr)
	l.at, l.to, l.before = s, s.d.byNode[o.To], s.d.w.Gap(s.h.p.Node(), o.To)
	if command {
		s.open[nr] = o.To
	}
}
