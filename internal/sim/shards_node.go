// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"slices"
	"strconv"
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

const kindReply link.Kind = 202

// maxLeaving is how long a leaving node waits for its hand-offs.
const maxLeaving = 9 * time.Second

// shardNode is the entity type on one node: the counterpart of the shell in package sharding.
type shardNode struct {
	directPaths

	d   *sharding
	h   *host
	m   *shardcore.Machine
	cfg shardcore.Config

	standby    *standby // nil without standbys
	promotions promotions
	leases     map[shardcore.ShardRun]*leaseClient

	proxy              bool
	alarm              env.Alarm // calls Tick
	delays             delays
	gone               bool   // the process has ended
	stopped            bool   // the region stopped in an earlier step and does not start again
	drains             int    // number of drains
	wrongSetting       string // the setting that differs from the setting of other nodes, "" if there is none
	region             uint64 // number of the region
	left               func() // called when the region has ended
	hasSingleton       bool
	secondCoordinator  bool // the node runs a coordinator without the singleton
	coordinatorStopped func()

	entities     map[place]*entity
	hosted       []shardcore.Shard
	routes       uint64                   // route version of the last check
	since        time.Duration            // start of the region
	term         uint64                   // highest term that the region has seen
	askedAt      time.Duration            // time of the first request after the last message of a coordinator
	open         map[uint64]identity.Node // commands sent to other nodes without a reply
	asked        []uint64                 // by shard: the last command of the final check
	sentRequests map[string]bool
	register     *statereg.Store
	storeCalls   map[*storeCall]bool
	waitingCalls map[uint64]*storeCall // store calls that wait for a reply, by the number of the request
	forced       bool                  // stopped by force although it had time
}

func (d *sharding) host(h *host) *shardNode {
	s := &shardNode{
		d: d, h: h, cfg: d.plan.Config, proxy: h.p.Node().Name == d.plan.Proxy, entities: map[place]*entity{}, open: map[uint64]identity.Node{},
		sentRequests: map[string]bool{}, storeCalls: map[*storeCall]bool{}, waitingCalls: map[uint64]*storeCall{},
		leases: map[shardcore.ShardRun]*leaseClient{},
	}
	s.register = statereg.New(replicatedKeys{s}, h.p.Node().String())
	s.cfg.Region.Self, s.cfg.Region.Proxy = h.p.Node(), s.proxy
	s.configure()
	s.cfg.Coordinator.RemovalMargin = h.m.RemovalMargin
	s.m = must(shardcore.New(s.cfg))
	s.paths = make([]shardcore.Path[*entity, queuedCommand], s.cfg.Coordinator.Shards)
	s.beginRegion()
	if s.cfg.Coordinator.ReadsLoad {
		s.reportLoad()
	}
	s.startStandby()
	d.all = append(d.all, s)
	d.byNode[h.p.Node()] = s
	return s
}

func (s *shardNode) beginRegion() {
	s.hosted, s.since, s.term, s.askedAt = nil, s.d.w.Now(), 0, shardcore.Never
	s.region++
}

// after calls f at a later time of the node's clock, unless the process has ended.
func (s *shardNode) after(t time.Duration, f func()) {
	s.h.p.After(t, func() {
		if !s.gone {
			f()
		}
	})
}

// schedule steps the machine in an event of its own.
func (s *shardNode) schedule(in shardcore.Input) { s.h.p.Do(func() { s.step(in) }) }

// step steps the machine and applies the effects. It handles queued commands first, because they
// are earlier inputs.
func (s *shardNode) step(in shardcore.Input) {
	if s.handleInbox(); !s.gone {
		s.setFollowed()
		s.applyEffects(s.m.Step(s.h.p.Now(), in))
	}
}

// setFollowed passes the position of the standby to the machine before a step, as the shell does.
func (s *shardNode) setFollowed() {
	if s.standby != nil {
		s.m.SetFollowed(strconv.Itoa(s.standby.applied))
	}
}

func (s *shardNode) wakeUp() {
	s.alarm.Set(s.m.Next, s.h.p.Now, s.after, func() {
		s.reportTouched()
		s.applyEffects(s.m.Tick(s.h.p.Now()))
	})
}

func (s *shardNode) members(events []membership.Event) {
	if s.gone || !slices.ContainsFunc(events, func(e membership.Event) bool { return changesMembers(e) || e.Kind == membership.ShuttingDown }) {
		return
	}
	s.updateMembers()
}

func (s *shardNode) updateMembers() {
	in := shardcore.Members{Suspended: s.h.m.Suspended()}
	stopped := s.h.m.Stopped()
	if !stopped {
		in.Members.Members, in.Unreachable = s.h.members()
		s.unfollow()
	}
	s.step(in)
	if in.Suspended {
		s.d.hit("sharding", "halted")
	} else if stopped || s.h.m.Member() {
		s.failOpenCommands(func(n identity.Node) bool { return !stopped && s.h.m.Gossip().Member(n) != nil })
	}
}

// leave hands off all shards, possibly after a delay. It calls then when the shards are handed off
// or at a timeout.
func (s *shardNode) leave(then func()) {
	s.after(s.d.delayWaysTo(s), func() {
		s.left = then
		s.after(maxLeaving, func() {
			if s.left != nil {
				s.d.hit("sharding", "stopped by force when it leaves")
				leavesInTime(s)
				s.forced = true
				s.step(shardcore.Stop{})
				s.notifyLeft()
			}
		})
		s.step(shardcore.Leave{})
	})
}

func (s *shardNode) notifyLeft() {
	if f := s.left; f != nil {
		s.left = nil
		f()
	}
}

func (s *shardNode) singletonStarted() {
	s.hasSingleton = true
	if s.wrongSetting != "" { // the node restarts before another node can observe the wrong setting
		s.restart()
		return
	}
	s.step(shardcore.StartCoordinator{})
}

// singletonStopped is called when the singleton ends. It calls then when the coordinator has
// stopped.
func (s *shardNode) singletonStopped(then func()) {
	s.hasSingleton = false
	s.coordinatorStopped = then
	s.step(shardcore.StopCoordinator{})
}

func (s *shardNode) end() {
	if s.gone {
		return
	}
	s.gone = true
	if s.m.LocalCoordinator() != nil {
		s.d.activeAt = 0
	}
	for _, e := range s.entities {
		e.recordEnd()
	}
	clear(s.entities)
	clear(s.open)
	s.endStoreCalls()
}

// idle reports whether nothing of the region runs.
func (s *shardNode) idle() bool { return s.gone || len(s.entities)+len(s.inbox) == 0 }

func (s *shardNode) received(m env.Message) {
	switch {
	case m.To != s.h.p.Node():
		s.d.hit("sharding", "message for an earlier incarnation")
	case s.h.cut[m.From], s.gone:
		s.d.undelivered(m)
	default:
		s.delays.deliver(s.h, s.d.rand, func() {
			if !s.gone {
				s.receive(m)
			}
		})
	}
}

func (s *shardNode) receive(m env.Message) {
	switch m.Kind {
	case kindReply:
		nr, n := binary.Uvarint(m.Data)
		s.close(nr, outcome(m.Data[n]))
	case link.Kind(shardcore.KindRegion):
		if p, err := region.DecodePacket(m.Data); err == nil {
			s.d.hit("region frame", p.Kind.String())
			if p.Kind == region.Forward {
				nr, _ := binary.Uvarint(p.Body)
				l := s.d.command(nr)
				l.at, l.to = s, nil
				s.handleCommand(queuedCommand{shard: p.Shard, from: shardcore.Peers, nr: nr, peer: shardcore.Forwarded{From: m.From, Packet: p}})
				return
			}
		}
		s.step(shardcore.Received{From: m.From, Kind: shardcore.KindRegion, Data: m.Data})
	default:
		s.receiveCoordinatorMessage(m)
	}
}

func (s *shardNode) receiveCoordinatorMessage(m env.Message) {
	msg, err := coordinator.DecodeMessage(m.Data)
	if err != nil {
		s.h.violate("messages-are-readable", "a message about sharding: %v", err)
		return
	}
	s.d.hit("shard message", msg.Kind.String())
	in := shardcore.Received{From: m.From, Kind: shardcore.KindCoordinator, Data: m.Data}
	if s.handleInbox(); s.gone {
		return
	}
	s.setFollowed()
	s.responded(m.From, &msg)
	if msg.Kind == coordinator.Hosted {
		s.hostedBy(m.From, msg.Shards)
	}
	e := s.m.Step(s.h.p.Now(), in)
	if !msg.Kind.ToCoordinator() && lowerTermsAreRefused(s, m.From, msg, &e) {
		s.askedAt = shardcore.Never
	}
	s.applyEffects(e)
}

func numberOf(m shardcore.Message) uint64 {
	if nr, own := m.Local.(uint64); own {
		return nr
	}
	nr, _ := binary.Uvarint(m.Body)
	return nr
}

func (s *shardNode) applyEffects(e shardcore.Effects) {
	d := s.d
	s.beginEffects()
	for i := range e.Notes {
		s.countNote(&e.Notes[i])
	}
	for _, m := range e.Malformed {
		if s.h.c.forging {
			d.hit("sharding", "malformed")
			continue
		}
		s.h.violate("messages-are-readable", "a message of %v: %v", m.From, m.Err)
	}
	for _, r := range e.Refused {
		d.refused(s, r)
	}
	for _, r := range e.Remember {
		d.rememberStore.ask(s, r)
	}
	for _, l := range e.Leases {
		s.callLease(l)
	}
	for _, a := range e.Actions {
		s.interleave(a.Shard)
		s.applyAction(a)
		s.interleave(a.Shard)
	}
	for _, r := range e.Ended {
		endedRunsNothing(s, r)
	}
	s.callStores(&e)
	oneOwner(s)
	otherSettingsAreRefused(s)
	movingShardsHaveNoHome(s, e.Send)
	for i := range e.Send {
		s.send(&e.Send[i])
	}
	s.endEffects()
	if e.CoordinatorStopped {
		d.hit("sharding", "coordinator stopped")
		if f := s.coordinatorStopped; f != nil {
			s.coordinatorStopped = nil
			s.after(0, f)
		}
	}
	if e.Restarted {
		d.hit("sharding", "restarted")
		s.beginRegion()
	}
	if s.stopped = e.Stopped; e.Stopped {
		d.hit("sharding", "region has stopped")
		s.notifyLeft()
		s.after(0, s.h.maybeEnd)
	}
	if (e.Restarted || e.Stopped) && len(s.entities) > 0 {
		s.h.violate("stopped-hosts-nothing", "the region has stopped but %d entities run", len(s.entities))
	}
	s.wakeUp()
}

func (s *shardNode) countNote(n *coordinator.Note) {
	s.d.hit("coordinator", n.Kind.String())
	onlyOtherSettingsAreRefused(s, n)
	pinnedShardsStay(s, n)
	if n.Kind == coordinator.PhaseChanged {
		s.d.hit("coordinator became", n.Phase.String())
		s.d.w.Logf("%v: the coordinator of term %d is %v", s.h.p.Node(), n.Term, n.Phase)
		if s.d.activeAt = 0; n.Phase == coordinator.Active {
			s.d.activeAt = s.d.w.Now()
		}
		if n.Phase == coordinator.Ended {
			s.d.hit("coordinator ended", n.Reason.String())
		}
	}
}

func (s *shardNode) callStores(e *shardcore.Effects) {
	d := s.d
	if e.Load != 0 {
		d.store.load(s, e.Load)
	}
	if e.CheckTerm != 0 {
		d.store.checkTerm(s, e.CheckTerm)
	}
	if e.Save != nil {
		s.promotes(&e.Save.Change)
		d.store.save(s, *e.Save)
	}
	if e.AddShards != nil {
		d.rememberStore.add(s, *e.AddShards)
	}
	if ask := e.Ask; ask != nil {
		in := coordinator.HomesChosen{ID: ask.ID, Homes: allocation.All(ask.View, ask.Requests, d.plan.strategy().Allocate)}
		if d.oneIn(20) { // the strategy failed
			clear(in.Homes)
		}
		s.replyLater(in)
	}
	if ask := e.Rebalance; ask != nil {
		in := coordinator.Rebalanced{ID: ask.ID, Shards: d.plan.strategy().Rebalance(ask.View)}
		if !d.quiet && d.rand.IntN(2) == 0 {
			for n := range shardcore.Shard(d.plan.Shards) { //nolint:gosec // small
				if d.rand.IntN(5) == 0 {
					in.Shards = append(in.Shards, n)
				}
			}
		}
		s.replyLater(in)
	}
}

func (s *shardNode) reply(in coordinator.Input) { s.step(shardcore.CoordinatorReply{Input: in}) }

func (s *shardNode) replyLater(in coordinator.Input) {
	s.after(s.d.storeDelay(), func() { s.reply(in) })
}

func (s *shardNode) send(o *shardcore.Outgoing) {
	if o.To == s.h.p.Node() {
		s.h.violate("messages-are-readable", "the node sends a message to itself")
	}
	own, command := o.Message.Local.(uint64)
	var body []byte
	if command {
		body = binary.AppendUvarint(nil, own)
	}
	data := o.Encoded(body)
	if o.Kind == shardcore.KindCoordinator {
		s.checkCoordinatorMessage(o.To, data)
	}
	if o.Kind == shardcore.KindRegion && o.Message.Entity == "" {
		if p, err := region.DecodePacket(data); err == nil && p.Kind == region.Flush {
			s.countRepeat("flush again", o.To, p.Instance, p.ID)
		}
	}
	if o.Message.Entity == "" {
		if !s.h.cut[o.To] {
			s.h.p.Send(o.To, link.Data, link.Kind(o.Kind), data)
		}
		return
	}
	s.sendPacket(o.To, link.Kind(o.Kind), data, o.Message)
}

func (s *shardNode) sendPacket(to identity.Node, kind link.Kind, data []byte, m shardcore.Message) {
	nr := numberOf(m)
	if s.h.cut[to] || !s.h.p.Send(to, link.Data, kind, data) {
		s.d.refused(s, shardcore.Refusal{Message: m, Reason: shardcore.NotHome})
		return
	}
	l := s.d.command(nr)
	l.at, l.to, l.before = s, s.d.byNode[to], s.d.w.Gap(s.h.p.Node(), to)
	if m.Local != nil {
		s.open[nr] = to
	}
}
