// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/internal/singleton"
)

// high is a forged term, number, round, count or clock.
const high = 1 << 63

// forgery is a forged message, with its kind on the wire.
type forgery struct {
	kind link.Kind
	data []byte
}

// hostile sends a message of each type of each protocol to a member, with forged contents: as a
// stranger, as a removed node, or as a member. The transport has authenticated the sender. A member
// sends only messages that other members must contain: see docs/security.md.
func hostile(c *cluster) bool {
	to := c.any()
	if to.p.Paused() || to.stopped != 0 {
		return false
	}
	from, row := identity.Node{Name: "hostile", UID: 1}, "stranger"
	messages := slices.Concat(c.forgeAsAny(from, to), c.forgeAsOutsider(from, to))
	removed, member := to.m.Gossip().Tombstones(), c.hostileMember(to)
	switch k := c.w.Rand.IntN(3); {
	case k == 1 && len(removed) > 0:
		from, row = removed[c.w.Rand.IntN(len(removed))].Node, "removed node"
		messages = slices.Concat(c.forgeAsAny(from, to), c.forgeAsOutsider(from, to))
	case k == 2 && member != nil:
		from, row = member.Node, "member"
		messages = slices.Concat(c.forgeAsAny(from, to), c.forgeAsMember(from))
	}
	c.w.Logf("FAULT: %v sends forged messages to %v as a %s", from, to.p.Node(), row)
	for _, m := range messages {
		to.forged(from, m)
	}
	stranger := identity.Node{Name: "hostile", UID: 1}
	for _, frame := range c.forgedFrames(stranger, to.p.Node()) { // those of a member would end its own link
		to.p.Inject(stranger.Name, link.Data, frame)
	}
	c.hit("hostile", row)
	return true
}

// hostileMember returns the youngest member in the view of a node, or nil. While all members are
// Up, it neither runs a coordinator or a singleton nor is about to. A second member can contradict
// its reports.
func (c *cluster) hostileMember(to *host) *identity.Member {
	members := to.m.Gossip().Members()
	if len(members) < 3 || len(to.m.View().Unreachable) > 0 || c.healthySince(to) > c.w.Now()-5*time.Second || !to.up() ||
		slices.ContainsFunc(members, func(m *identity.Member) bool { return m.Status != identity.Up }) {
		return nil
	}
	if youngest := slices.MaxFunc(members, membership.CompareAge); youngest.Node != to.p.Node() {
		return youngest
	}
	return nil
}

// forged delivers a forged message, which must not change the members or the clock of the node.
func (h *host) forged(from identity.Node, m forgery) {
	h.p.Do(func() {
		if h.p.Dead() || h.stopped != 0 {
			return
		}
		if h.Wake(); h.p.Dead() || h.stopped != 0 { // changes that are due are not effects of the message
			return
		}
		before := h.m.Gossip()
		h.c.forging = true
		switch k := m.kind; {
		case k == kindData:
			if h.data.loaded && !h.data.ended {
				h.data.step(replication.Batch{Packets: []replication.Packet{{From: from, Payload: m.data}}})
			}
		case k == kindGroups:
			for _, g := range h.groups {
				g.received(env.Message{From: from, To: h.p.Node(), Data: m.data})
			}
		case k >= link.Kind(shardcore.KindCoordinator):
			if !h.shards.gone {
				h.shards.step(shardcore.Received{From: from, Kind: shardcore.Kind(k), Data: m.data})
			}
		default:
			to := h.p.Node()
			if kind := membership.Kind(k); kind == membership.KindInitJoin || kind == membership.KindJoin || kind == membership.KindPing {
				to.UID = 0
			}
			h.received(env.Message{From: from, To: to, Kind: k, Data: m.data})
		}
		h.c.forging = false
		if g := h.m.Gossip(); g.Clock().Compare(before.Clock()) != membership.Same || h.stopped != 0 {
			h.violate("hostile-harms-no-node", "a forged message of kind %d of %v changes its membership", m.kind, from)
		}
	})
}

func (c *cluster) control(m membership.Message) forgery {
	return forgery{link.Kind(membership.KindOf(m)), membership.AppendMessage(nil, m)}
}

func (c *cluster) dataPacket(m replication.Message) forgery {
	return packet(replication.AppendMessage(nil, m))
}

func packet(message []byte) forgery {
	b := append([]byte{1, byte(len(replicatorName))}, replicatorName...)
	return forgery{kindData, append(binary.AppendUvarint(b, uint64(len(message))), message...)}
}

// forgeAsAny returns messages that no node may accept from any sender.
func (c *cluster) forgeAsAny(from identity.Node, to *host) (all []forgery) {
	for _, m := range []membership.Message{
		membership.InitJoin{Settings: []membership.Setting{{Key: "forged"}}},
		membership.InitJoinAck{Compatible: true},
		membership.InitJoinNack{},
		membership.NameInUse{Holder: from},
		membership.Ping{Node: from},
		membership.Pong{},
		membership.Digests{},
		membership.Versions{},
		membership.Seen{},
		membership.Heartbeat{Nr: high, At: math.MaxInt64},
		membership.HeartbeatReply{Nr: high, At: math.MaxInt64},
		membership.Echo{Nr: high},
		membership.LivenessQuery{Nr: high},
		membership.LivenessReply{Nr: high},
	} {
		all = append(all, c.control(m))
	}
	// A forged up-number that no cluster reaches would be the last one.
	if g, err := to.m.Gossip().Apply(to.p.Node(), membership.Change{Put: []*identity.Member{{Node: to.p.Node(), Status: identity.Up, UpNumber: identity.NeverUp - 1}}}); err == nil {
		all = append(all, c.control(membership.StateOf(g)), c.control(membership.Welcome{State: membership.StateOf(g)}))
	}
	for _, m := range []replication.Message{
		replication.Ack{Nr: high, Verdict: replication.Merged},
		replication.ReadResult{Nr: high},
		replication.Chunk{Nr: high, Done: true},
		replication.Part{Nr: high, Count: high, Data: []byte{1}},
		replication.Want{Keys: []string{"forged"}},
	} {
		all = append(all, c.dataPacket(m))
	}
	if _, known := to.shards.m.Coordinator(); known { // a new region accepts any member as its first coordinator
		for kind := coordinator.RegisterAck; kind <= coordinator.Refused; kind++ {
			if !kind.ToCoordinator() {
				all = append(all, forgedCoordination(c, kind, high))
			}
		}
	}
	for _, garbage := range [][]byte{nil, {0xff}, bytes.Repeat([]byte{0xff}, 100), bytes.Repeat([]byte{1}, 1000), make([]byte, 5000)} {
		all = append(all, packet(garbage), forgery{kindData, garbage}, forgery{kindGroups, garbage}, forgery{link.Kind(node.KindSingleton), garbage})
		for _, kind := range []shardcore.Kind{shardcore.KindCoordinator, shardcore.KindRegion} {
			all = append(all, forgery{link.Kind(kind), garbage})
		}
		if _, err := membership.DecodeMessage(garbage); err != nil { // see garbage
			all = append(all, forgery{1, garbage})
		}
	}
	return all
}

func forgedCoordination(c *cluster, kind coordinator.Kind, term uint64) forgery {
	m := coordinator.Message{Kind: kind, Type: c.shard.plan.Config.Region.Type, Term: term, Round: high, Instance: 1, Shards: []coordinator.Shard{1, 2, 3}}
	return forgery{link.Kind(shardcore.KindCoordinator), coordinator.AppendMessage(nil, m)}
}

// forgeAsOutsider returns messages that are accepted only from members.
func (c *cluster) forgeAsOutsider(from identity.Node, to *host) (all []forgery) {
	g, err := to.m.Gossip().Apply(from, membership.Change{Put: []*identity.Member{{Node: to.p.Node(), Status: identity.Down, UpNumber: 1}}})
	if err == nil {
		all = append(all, c.control(membership.StateOf(g)), c.control(membership.Welcome{State: membership.StateOf(g)}))
	}
	all = append(all, c.control(membership.Quarantined{}), c.control(membership.ExitingConfirmed{}), c.control(membership.Stranger{}))
	if to.m.Gossip().Removed(from) { // a stranger may join
		all = append(all, c.control(membership.Join{}))
	}
	for kind := singleton.HandOverToMe; kind <= singleton.InstanceGone; kind++ {
		for _, s := range c.plan.Singletons {
			all = append(all, forgery{link.Kind(node.KindSingleton), singleton.AppendMessage(nil, singleton.Message{Kind: kind, Singleton: s.Name, Round: high, Hosted: true})})
		}
	}
	entry := replication.Entry{Key: "forged", Deleted: true}
	for _, m := range []replication.Message{
		replication.Write{Nr: high, Entry: entry},
		replication.Delta{Nr: high},
		replication.Read{Nr: high, Key: "forged"},
		replication.Root{},
		replication.Groups{},
		replication.Buckets{},
		replication.Keys{},
		replication.Uses{},
		replication.Gossip{SendBack: true, Entries: []replication.Entry{entry}},
		replication.Pull{Nr: high, To: 1},
	} {
		all = append(all, c.dataPacket(m))
	}
	for kind := coordinator.Register; kind <= coordinator.Refused; kind++ {
		all = append(all, forgedCoordination(c, kind, 0), forgedCoordination(c, kind, high))
	}
	for kind := region.NotHome; kind <= region.Flushed; kind++ {
		p := region.Packet{Type: c.shard.plan.Config.Region.Type, Frame: region.Frame{Kind: kind, Instance: high, ID: high, Shards: []region.Shard{1}}}
		all = append(all, forgery{link.Kind(shardcore.KindRegion), region.AppendPacket(nil, p)})
	}
	return all
}

// forgeAsMember returns messages about singletons and entity types that do not exist, and a report
// that the node is quarantined. Only one member sends such reports, because two of them would end
// the node.
func (c *cluster) forgeAsMember(from identity.Node) (all []forgery) {
	if c.accuser = cmp.Or(c.accuser, from.Name); c.accuser == from.Name {
		all = append(all, c.control(membership.Quarantined{}))
	}
	for kind := singleton.HandOverToMe; kind <= singleton.InstanceGone; kind++ {
		all = append(all, forgery{link.Kind(node.KindSingleton), singleton.AppendMessage(nil, singleton.Message{Kind: kind, Singleton: "forged", Round: high, Hosted: true})})
	}
	for kind := coordinator.Register; kind <= coordinator.Refused; kind++ {
		m := coordinator.Message{Kind: kind, Type: "forged", Term: high, Round: high, Instance: 1, Shards: []coordinator.Shard{1}}
		all = append(all, forgery{link.Kind(shardcore.KindCoordinator), coordinator.AppendMessage(nil, m)})
	}
	return all
}

// forgedFrames returns frames with invalid headers and sizes, as the first of a new link.
func (c *cluster) forgedFrames(from, to identity.Node) (frames [][]byte) {
	frame := func(change func(*link.Frame)) []byte {
		m := must(link.New(link.Config{Self: from, MaxFrame: maxPayload}))
		if err := m.Send(to, link.Data, link.Message{Type: link.Tell, Kind: kindReply}); err != nil {
			panic(fmt.Sprintf("sim: %v", err))
		}
		_, encoded, _ := m.Flush(0, link.Data, nil)
		f := must(link.DecodeFrame(encoded))
		c.forgedEpoch++
		f.Epoch = c.forgedEpoch // otherwise the frame would be a repetition
		change(&f)
		return link.AppendFrame(nil, f)
	}
	valid := frame(func(*link.Frame) {})
	for size := range valid {
		frames = append(frames, valid[:size])
	}
	for _, change := range []func(*link.Frame){
		func(f *link.Frame) { f.From.Name = "other" },
		func(f *link.Frame) { f.Lane = link.Bulk },
		func(f *link.Frame) { f.To++ },
		func(f *link.Frame) { f.Epoch = 0 },
		func(f *link.Frame) { f.Offset = math.MaxInt64 },
		func(f *link.Frame) { f.Body = append([]byte{1 | 1<<6, 1, 0}, binary.AppendUvarint(nil, 1<<50)...) },
		func(f *link.Frame) { f.Body = append(binary.AppendUvarint([]byte{1 | 1<<6, 1, 0}, 1<<50), 1, 0) }, // a part of a message of 2^50 bytes
		func(f *link.Frame) { f.Body = append(binary.AppendUvarint([]byte{1, 1, 0}, 1<<50), 1) },
		func(f *link.Frame) { f.Body = bytes.Repeat([]byte{15, 1, 0, 0}, 1000) },
	} {
		frames = append(frames, frame(change))
	}
	return frames
}

// newcomer starts a node that is no part of the planned cluster, and lets a member accept it. It
// calls joined when the node has become a member. The node leaves after some time.
func (c *cluster) newcomer(name string, by *host, stays time.Duration, joined func(h *host)) *host {
	c.newcomers++
	h := c.start(fmt.Sprintf("%s%02d", name, c.newcomers), nil)
	h.joins = func() {
		joined(h)
		h.p.After(stays, h.leaves)
	}
	h.submit(node.Membership{Input: membership.JoinNode{Name: by.p.Node().Name}})
	return h
}

// leaves lets the node leave as soon as operators may act.
func (h *host) leaves() {
	switch {
	case h.stopped != 0 || h.c.restarts: // it stays in the final phase
	case h.c.undisturbedNow:
		h.p.After(time.Second, h.leaves)
	default:
		h.c.w.Logf("%v is asked to leave", h.p.Node())
		h.c.leaving[h.p.Node()] = true
		h.step(node.Membership{Input: membership.Leave{Node: h.p.Node()}})
	}
}

// mayGrow reports whether the cluster has room for one more member: with more, no side of a
// partition may have a static quorum.
func (c *cluster) mayGrow() bool {
	return len(c.living()) < len(c.plan.Names)+spares && len(c.names) <= len(c.plan.Names)
}

// earlyLeave lets a node leave before it is Up.
func earlyLeave(c *cluster) bool {
	by := c.any()
	if !c.mayGrow() {
		return false
	}
	c.w.Logf("FAULT: a node joins and leaves early")
	c.newcomer("early", by, c.between(0, time.Second), func(h *host) {
		if me := h.m.Gossip().Member(h.p.Node()); me.Status == identity.Joining {
			c.hit("node", "left early")
		}
	})
	return true
}

// admissionAndCrash kills a member right after it has accepted a node. The node may leave early as
// well.
func admissionAndCrash(c *cluster) bool {
	by := c.any()
	if !c.mayGrow() || len(c.members()) < 3 {
		return false
	}
	stays := c.between(10*time.Second, 60*time.Second)
	if c.w.Rand.IntN(2) == 0 {
		stays = c.between(0, 2*time.Second)
	}
	c.w.Logf("FAULT: %v accepts a node and is killed, the node leaves after %v", by.p.Node(), stays)
	c.newcomer("late", by, stays, func(*host) {
		c.w.After(c.between(0, 500*time.Millisecond), func() {
			if !by.p.Dead() {
				c.hit("node", "crashed after an admission")
				c.faultEnded = c.w.Now()
				by.kill()
			}
		})
	})
	return true
}

// leaseOwner lets a member decide with a lease, then another one lead, and then a third one crash. The
// new leader leaves the decision to the owner of the lease.
func leaseOwner(c *cluster) bool {
	if !c.until(30*time.Second, c.mayCut) || !c.mayGrow() || len(c.members()) < 4 {
		return false
	}
	owner := c.byNode[c.any().m.View().LeaderNode]
	others := filter(c.members(), func(h *host) bool { return h != owner && h.p.Node().Name != c.plan.Seeds[0] })
	c.w.Logf("FAULT: the owner of the lease does not lead: %v", owner.p.Node())
	crash := func(h *host) { // without a restart, which would down the node without a decision
		h.kill()
		name := h.p.Node().Name
		c.notRestarted[name] = true
		c.runFault(time.Minute, name+" may start again", func() {
			if !c.shuttingDown {
				delete(c.notRestarted, name)
			}
		})
	}
	crash(others[0])
	lease := owner.lease(c.plan.Config.Cluster + "-downing")
	c.until(time.Minute, func() bool { return owner.p.Dead() || lease.certain() })
	if owner.p.Dead() || others[1].p.Dead() || c.broken() {
		return true
	}
	leader := c.newcomer("a", owner, time.Minute, func(*host) {})
	c.until(20*time.Second, leader.up)
	if c.undisturbed(time.Second); !others[1].p.Dead() {
		crash(others[1])
	}
	return true
}
