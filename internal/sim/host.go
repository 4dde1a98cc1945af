// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/internal/singleton"
)

// host is a process that runs a node. It does the work of package cluster without threads.
type host struct {
	c *cluster
	p *env.Process
	m *node.Machine

	instances map[string]*instance
	leases    map[string]*leaseClient
	cut       map[identity.Node]bool // quarantined nodes
	serial    uint64                 // serial number of messages through proxies
	data      *replicator
	shards    *shardNode
	groups    []*groupNode // by role
	regions   regions

	joins    func()        // called when the node becomes a member
	joined   time.Duration // when the node became a member
	stopped  membership.Reason
	observed observed
}

// regions is the state of the hand-off of shards and instances of groups, which a node does once, before
// it leaves.
type regions struct {
	begun bool
	open  int      // parts that are not complete
	then  []func() // called when no part is open
}

// instance is a run of a singleton.
type instance struct {
	name     string
	nr       uint64
	stopping bool
	since    time.Duration
	last     map[identity.Node]uint64 // last message of each proxy
}

func (c *cluster) start(name string, change func(*node.Config)) *host {
	var h *host
	c.w.Start(name, func(p *env.Process) env.Program {
		h = &host{
			c: c, p: p, instances: map[string]*instance{}, leases: map[string]*leaseClient{}, cut: map[identity.Node]bool{},
			observed: observed{
				members: map[identity.Node]identity.Member{}, unreachable: map[identity.Node]bool{}, roleLeaders: map[string]identity.Node{},
				removed: map[identity.Node]bool{},
			},
		}
		return h
	})
	cfg := c.config(h.p)
	if change != nil {
		change(&cfg)
	}
	h.m = must(node.New(cfg))
	c.hosts = append(c.hosts, h)
	c.byNode[h.p.Node()] = h
	c.w.Logf("%v starts", h.p.Node())
	h.data = c.data.replicate(h)
	h.shards = c.shard.host(h)
	c.group.host(h)
	for _, s := range c.plan.Singletons {
		h.addSingleton(s)
	}
	return h
}

func (h *host) addSingleton(s Singleton) {
	if s.Role != "" && h.shards.proxy {
		return
	}
	h.applyEffects(must(h.m.Host(h.p.Now(), singleton.Config{Name: s.Name, UseLease: s.Lease, Role: s.Role})))
	if s.Name == coordination || strings.HasPrefix(s.Name, groupSingleton) { // no node sends messages to it by its name
		return
	}
	h.applyEffects(must(h.m.Proxy(h.p.Now(), singleton.ProxyConfig{Singleton: s.Name, BufferSize: 20})))
	h.sendMessages(s.Name)
}

func (c *cluster) config(p *env.Process) node.Config {
	cfg := c.plan.Config
	cfg.Membership.Self = p.Node()
	cfg.Membership.Started = p.Wall()
	if p.Node().Name != c.shard.plan.Proxy {
		cfg.Membership.Roles = []string{shardRole}
	}
	cfg.Membership.Rand = rand.New(rand.NewPCG(c.w.Rand.Uint64(), p.Node().UID)) //nolint:gosec // must be repeatable
	return cfg
}

func (h *host) step(in node.Input) {
	if h.p.Dead() {
		return
	}
	h.beforeStep()
	h.applyEffects(h.m.Step(h.p.Now(), in))
}

// submit performs a step from outside of the process.
func (h *host) submit(in node.Input) { h.p.Do(func() { h.step(in) }) }

// Wake implements env.Program.
func (h *host) Wake() {
	h.beforeStep()
	h.applyEffects(h.m.Tick(h.p.Now()))
}

// Connection implements env.Program.
func (h *host) Connection(up bool) {
	in := node.Membership{Input: membership.LinkLost{}}
	if up {
		in.Input = membership.LinkRestored{}
	}
	h.step(in)
}

// Receive implements env.Program.
func (h *host) Receive(m env.Message) {
	switch lag := h.c.overload[h.p.Place().Name]; {
	case m.Kind == link.Kind(node.KindForwarded):
		h.forwarded(m)
	case m.Kind == kindData:
		h.data.received(m)
	case m.Kind == kindGroups:
		for _, g := range h.groups {
			g.received(m)
		}
	case m.Kind >= link.Kind(shardcore.KindCoordinator) && m.Kind <= kindReply:
		h.shards.received(m)
	case lag > 0:
		h.p.After(time.Duration(h.c.w.Rand.Int64N(int64(lag))), func() { h.received(m) })
	default:
		h.received(m)
	}
}

// delays holds the time, on the node's clock, at which the last delayed message of a workload is
// delivered.
type delays struct{ last time.Duration }

// deliver calls f. It delays the call if the node is overloaded or if earlier messages wait.
func (d *delays) deliver(h *host, r *rand.Rand, f func()) {
	lag, now := h.c.overload[h.p.Place().Name], h.p.Now()
	if lag == 0 && d.last <= now {
		f()
		return
	}
	d.last = max(d.last, now+time.Duration(r.Int64N(int64(lag/4+time.Millisecond))))
	h.p.After(d.last-now, f)
}

func (h *host) received(m env.Message) {
	h.beforeStep()
	old := h.m.Gossip()
	in := node.Received{From: m.From, To: m.To, Kind: membership.Kind(m.Kind), Arrived: m.Arrived, Data: m.Data} //nolint:gosec // those of the control lane are small
	h.applyEffects(h.m.Step(h.p.Now(), in))
	notForOthers(h, m, old)
}

func (h *host) applyEffects(e node.Effects) {
	for _, line := range e.Log {
		h.logged(line)
	}
	if slices.Contains(e.Life, membership.Life{Kind: membership.Joined}) {
		onlyTheFirstSeedFounds(h)
	}
	for _, n := range e.Quarantine {
		h.cut[n] = true
	}
	for _, i := range e.Stop {
		h.stop(i)
	}
	for _, op := range e.Leases {
		l := h.lease(op.Lease)
		l.queue = append(l.queue, op.Release)
		l.next()
	}
	for _, i := range e.Start {
		h.begin(i)
	}
	for _, s := range e.Send {
		h.recordSent(s)
		h.p.Send(s.To, link.Control, link.Kind(s.Kind), s.Data)
	}
	for _, f := range e.Forward {
		h.forward(f)
	}
	h.check(e)
	h.data.members(e.Events)
	h.shards.members(e.Events)
	if len(e.Events)+len(e.Life) > 0 {
		for _, g := range h.groups {
			g.membersChanged()
		}
	}
	for _, l := range e.Life {
		h.lifecycle(l)
	}
	h.p.WakeAt(h.m.Next())
	h.maybeEnd()
}

// recordSent records the version of the gossip in a message. One step may send several messages.
func (h *host) recordSent(s membership.Send) {
	if !slices.Contains([]membership.Kind{membership.KindState, membership.KindSeen, membership.KindWelcome}, s.Kind) {
		return
	}
	switch msg, err := membership.DecodeMessage(s.Data); msg := msg.(type) {
	case membership.State:
		h.recordVersion(msg.Version)
	case membership.Seen:
		h.recordVersion(msg.Version)
	case membership.Welcome:
		h.recordVersion(msg.Version)
	default:
		h.violate("messages-are-readable", "a message of kind %d: %v", s.Kind, err)
	}
}

func (h *host) lifecycle(l membership.Life) {
	h.c.w.Logf("%v: %v", h.p.Node(), l.Kind)
	switch l.Kind {
	case membership.Exits:
		wait := h.c.between(10*time.Millisecond, 1500*time.Millisecond)
		h.p.After(0, func() { h.stopRegions(func() { h.p.After(wait, func() { h.step(node.Exit{}) }) }) })
	case membership.Stopped:
		h.stopped = l.Reason
		h.c.w.Logf("%v: %v", h.p.Node(), l.Reason)
		stoppedForAReason(h)
		h.shards.updateMembers()
		h.data.stop()
	case membership.Joined:
		h.joined = h.c.w.Now()
		if h.joins != nil {
			h.p.After(0, h.joins)
		}
	case membership.Suspended, membership.Resumed:
		h.shards.updateMembers()
	case membership.BecameUp, membership.Downed, membership.Disconnected, membership.Connected:
	}
}

// shutDown lets the node leave after it has handed off its shards and its instances of groups.
func (h *host) shutDown() {
	h.c.leaving[h.p.Node()] = true
	h.p.Do(func() {
		h.stopRegions(func() { h.step(node.Membership{Input: membership.Leave{Node: h.p.Node()}}) })
	})
}

// stopRegions hands off the shards and the instances of groups, once in the life of a node. It calls
// then when that is done, or at a timeout.
func (h *host) stopRegions(then func()) {
	r := &h.regions
	if r.begun && r.open == 0 {
		then()
		return
	}
	if r.then = append(r.then, then); r.begun {
		return
	}
	r.begun, r.open = true, 1+len(h.groups)
	done := func() {
		if r.open--; r.open == 0 {
			for _, f := range r.then {
				f()
			}
			r.then = nil
		}
	}
	h.shards.leave(done)
	for _, g := range h.groups {
		g.drain(done)
	}
}

func (h *host) maybeEnd() {
	busy := slices.ContainsFunc(h.groups, func(g *groupNode) bool { return len(g.running) > 0 })
	if h.stopped != 0 && len(h.instances) == 0 && h.shards.idle() && !busy && !h.p.Dead() {
		h.p.After(0, func() {
			h.kill()
			h.c.w.Logf("%v has ended", h.p.Node())
		})
	}
}

func (h *host) kill() {
	if !h.p.Dead() {
		h.c.count(h)
		h.data.end()
		h.shards.end()
		for _, g := range h.groups {
			g.end()
		}
		h.p.Kill()
	}
}

// members returns the members and the unreachable nodes in the view of the node.
func (h *host) members() (all []identity.Member, unreachable []identity.Node) {
	v := h.m.View()
	return v.Members, v.Unreachable
}

// alive reports whether the process runs and is not stopping.
func (h *host) alive() bool { return !h.p.Dead() && h.stopped == 0 }

func (h *host) logged(l membership.Line) {
	if !h.c.w.Traced() || l.Level == membership.Debug {
		return
	}
	var s strings.Builder
	for _, a := range l.Attrs {
		fmt.Fprintf(&s, " %s=%v", a.Key, a.Value)
	}
	h.c.w.Logf("%v: %s%s", h.p.Node(), l.Message, s.String())
}

// maxStopping is the maximum time in which an instance stops. A node that was downed during a pause
// may overlap with its successor for less than a second, so this must be shorter.
const maxStopping = 800 * time.Millisecond

func (h *host) begin(i node.Instance) {
	h.c.w.Logf("%v: %s starts", h.p.Node(), i.Singleton)
	if old := h.instances[i.Singleton]; old != nil {
		h.violate("instances-in-turn", "instance %d of %s starts while instance %d runs", i.Nr, i.Singleton, old.nr)
	}
	h.instances[i.Singleton] = &instance{name: i.Singleton, nr: i.Nr, since: h.c.w.Now(), last: map[identity.Node]uint64{}}
	h.c.hit("instance", "started")
	downHostsNothing(h, i.Singleton)
	oneInstance(h.c, i.Singleton)
	h.p.After(0, func() {
		switch running := h.instances[i.Singleton]; {
		case running == nil || running.nr != i.Nr || running.stopping:
		case i.Singleton == coordination:
			h.shards.singletonStarted()
		default:
			h.coordinate(i.Singleton, true)
		}
	})
}

// stop requests an instance to stop, which takes some time.
func (h *host) stop(i node.Instance) {
	running := h.instances[i.Singleton]
	if running == nil || running.nr != i.Nr {
		h.violate("instances-in-turn", "instance %d of %s is stopped but does not run", i.Nr, i.Singleton)
		return
	}
	h.c.w.Logf("%v: %s is asked to end", h.p.Node(), i.Singleton)
	running.stopping = true
	if i.Singleton == coordination {
		h.shards.singletonStopped(func() { h.p.After(0, func() { h.hasEnded(i, running) }) })
		return
	}
	h.p.After(h.c.between(time.Millisecond, maxStopping), func() {
		h.coordinate(i.Singleton, false)
		h.hasEnded(i, running)
	})
}

func (h *host) hasEnded(i node.Instance, running *instance) {
	if h.instances[i.Singleton] == running {
		delete(h.instances, i.Singleton)
		h.c.w.Logf("%v: %s has ended", h.p.Node(), i.Singleton)
		h.c.hit("instance", "stopped")
		h.step(node.InstanceEnded{Instance: i})
		h.maybeEnd()
	}
}

func (h *host) sendMessages(name string) {
	h.p.After(h.c.between(100*time.Millisecond, 6*time.Second), func() {
		if h.stopped != 0 {
			return
		}
		for range 1 + h.c.w.Rand.IntN(3) {
			h.serial++
			h.step(node.Forward{Singleton: name, Message: h.serial})
		}
		h.c.hit("proxied", "sent")
		h.sendMessages(name)
	})
}

func (h *host) forward(f node.Forwarded) {
	data := binary.LittleEndian.AppendUint64(nil, f.Message)
	data = append(data, f.Singleton...)
	if f.To == h.p.Node() {
		h.p.After(0, func() {
			h.forwarded(env.Message{From: h.p.Node(), To: f.To, Data: data})
		})
		return
	}
	if !h.cut[f.To] {
		h.p.Send(f.To, link.Data, link.Kind(node.KindForwarded), data)
	}
}

// forwarded delivers a message to the instance, if it runs here.
func (h *host) forwarded(m env.Message) {
	if len(m.Data) < 8 || h.cut[m.From] || m.To != h.p.Node() {
		return
	}
	serial := binary.LittleEndian.Uint64(m.Data)
	i := h.instances[string(m.Data[8:])]
	if i == nil {
		h.c.hit("proxied", "no instance here")
		return
	}
	h.c.hit("proxied", "received")
	onceAndInOrder(h, m.From, i, serial)
}
