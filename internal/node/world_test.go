// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/splitbrain"
)

const latency = 2 * time.Millisecond

// world simulates a few nodes with one clock, a network that loses only the messages of cut pairs,
// and a lease store without faults.
type world struct {
	t        *testing.T
	now      time.Duration
	nodes    []*simNode
	inFlight []envelope
	cut      map[[2]string]bool
	leases   map[string]identity.Node
}

// simNode is one node and the effects that it has returned.
type simNode struct {
	*node.Machine

	w         *world
	self      identity.Node
	lines     []string
	life      []membership.Life
	started   []node.Instance
	stopped   []node.Instance
	forwarded []node.Forwarded
	dropped   []node.Forward
	asked     []node.LeaseOp
	hold      bool // instances continue after a request to stop
	dead      bool
}

type envelope struct {
	at   time.Duration
	from identity.Node
	send membership.Send
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, cut: map[[2]string]bool{}, leases: map[string]identity.Node{}}
}

func settings() splitbrain.Settings { return splitbrain.Settings{StableAfter: 5 * time.Second} }

func (w *world) add(name string, uid uint64, change func(*node.Config)) *simNode {
	w.t.Helper()
	self := identity.Node{Name: name, UID: uid}
	cfg := node.Config{
		Cluster:    "test",
		Membership: membership.Config{Self: self, Rand: rand.New(rand.NewPCG(uid, 1)), Started: time.Unix(1_800_000_000, 0)},
		Downing:    settings(),
	}
	if change != nil {
		change(&cfg)
	}
	m, err := node.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	b := &simNode{Machine: m, w: w, self: self}
	w.nodes = append(w.nodes, b)
	return b
}

// cluster starts n nodes and waits until all are up. The first is the oldest.
func (w *world) cluster(n int, change func(*node.Config)) []*simNode {
	w.t.Helper()
	for i := range n {
		b := w.add(string(rune('a'+i)), uint64(i+1), change)
		b.step(node.Membership{Input: membership.JoinSeeds{Seeds: []string{"a", "b"}}})
		if i == 0 {
			w.until("the first node is up", func() bool { return b.up() == 1 })
		}
	}
	w.until("all nodes are up", func() bool {
		return !slices.ContainsFunc(w.nodes, func(b *simNode) bool { return b.up() != n })
	})
	return w.nodes
}

func (b *simNode) up() (n int) {
	for _, m := range b.View().Members {
		if m.Status == identity.Up {
			n++
		}
	}
	return n
}

func (b *simNode) step(in node.Input) { b.apply(b.Step(b.w.now, in)) }

func (b *simNode) host(cfg singleton.Config) {
	b.w.t.Helper()
	e, err := b.Host(b.w.now, cfg)
	if err != nil {
		b.w.t.Fatal(err)
	}
	b.apply(e)
}

func (b *simNode) proxy(cfg singleton.ProxyConfig) {
	b.w.t.Helper()
	e, err := b.Proxy(b.w.now, cfg)
	if err != nil {
		b.w.t.Fatal(err)
	}
	b.apply(e)
}

func (b *simNode) apply(e node.Effects) {
	for _, l := range e.Log {
		b.lines = append(b.lines, l.Message)
	}
	for _, s := range e.Send {
		b.w.inFlight = append(b.w.inFlight, envelope{b.w.now + latency, b.self, s})
	}
	b.life = append(b.life, e.Life...)
	b.started = append(b.started, e.Start...)
	b.stopped = append(b.stopped, e.Stop...)
	b.forwarded = append(b.forwarded, e.Forward...)
	b.dropped = append(b.dropped, e.Dropped...)
	b.asked = append(b.asked, e.Leases...)
	for _, op := range e.Leases {
		b.lease(op)
	}
	for _, i := range e.Stop {
		if !b.hold {
			b.step(node.InstanceEnded{Instance: i})
		}
	}
	for _, l := range e.Life {
		if l.Kind == membership.Exits {
			b.step(node.Exit{})
		}
	}
}

func (b *simNode) lease(op node.LeaseOp) {
	holder := b.w.leases[op.Lease]
	switch {
	case op.Release:
		if holder == b.self {
			delete(b.w.leases, op.Lease)
		}
		b.step(node.LeaseReleased{Lease: op.Lease, Done: true})
	case holder.IsZero() || holder == b.self:
		b.w.leases[op.Lease] = b.self
		b.step(node.LeaseAnswer{Lease: op.Lease, Held: true})
	default:
		b.step(node.LeaseAnswer{Lease: op.Lease, Owner: holder.String()})
	}
}

func (b *simNode) hasLife(kind membership.LifeKind) bool {
	return slices.ContainsFunc(b.life, func(l membership.Life) bool { return l.Kind == kind })
}

// runs reports whether an instance of a singleton runs on the node.
func (b *simNode) runs(name string) bool {
	return !b.dead && slices.ContainsFunc(b.Singletons(), func(s node.Singleton) bool { return s.Name == name && s.Instance != 0 })
}

// isolate cuts the link of a node to the broker, or restores it. The node does not receive its own
// messages either.
func (w *world) isolate(b *simNode, cut bool) {
	for _, o := range w.nodes {
		w.cut[[2]string{b.self.Name, o.self.Name}] = cut
		w.cut[[2]string{o.self.Name, b.self.Name}] = cut
	}
}

// next handles the next event. It returns false if there is none until the given time.
func (w *world) next(limit time.Duration) bool {
	at := limit + 1
	for _, b := range w.nodes {
		if !b.dead {
			at = min(at, b.Next())
		}
	}
	if len(w.inFlight) > 0 {
		at = min(at, w.inFlight[0].at)
	}
	if at > limit {
		w.now = max(w.now, limit)
		return false
	}
	w.now = max(w.now, at)
	for len(w.inFlight) > 0 && w.inFlight[0].at <= w.now {
		p := w.inFlight[0]
		w.inFlight = w.inFlight[1:]
		w.deliver(p)
	}
	for _, b := range w.nodes {
		if !b.dead && b.Next() <= w.now {
			b.apply(b.Tick(w.now))
		}
	}
	return true
}

func (w *world) deliver(p envelope) {
	for _, b := range w.nodes {
		if !b.dead && b.self.Name == p.send.To.Name && !w.cut[[2]string{p.from.Name, b.self.Name}] {
			b.step(node.Received{From: p.from, To: p.send.To, Kind: p.send.Kind, Data: p.send.Data})
		}
	}
}

func (w *world) run(d time.Duration) {
	for limit := w.now + d; w.next(limit); {
	}
}

// until runs the simulation until a condition holds, for at most two minutes.
func (w *world) until(subject string, holds func() bool) {
	w.t.Helper()
	for limit := w.now + 2*time.Minute; !holds(); {
		if !w.next(limit) {
			w.t.Fatalf("timed out after two minutes, waiting until %s", subject)
		}
	}
}

// hosts returns the nodes on which an instance of a singleton runs.
func (w *world) hosts(name string) (names []string) {
	for _, b := range w.nodes {
		if b.runs(name) {
			names = append(names, b.self.Name)
		}
	}
	return names
}
