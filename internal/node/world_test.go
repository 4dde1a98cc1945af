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

// world is a few nodes on one clock, a network that loses nothing unless it is cut, and a lease
// that works.
type world struct {
	t      *testing.T
	now    time.Duration
	nodes  []*box
	flying []parcel
	cut    map[[2]string]bool
	leases map[string]identity.Node
}

// box is one node with the effects that were carried out for it.
type box struct {
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
	hold      bool // instances that are asked to end go on
	dead      bool
}

type parcel struct {
	at   time.Duration
	from identity.Node
	send membership.Send
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, cut: map[[2]string]bool{}, leases: map[string]identity.Node{}}
}

func settings() splitbrain.Settings { return splitbrain.Settings{StableAfter: 5 * time.Second} }

func (w *world) add(name string, uid uint64, change func(*node.Config)) *box {
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
	b := &box{Machine: m, w: w, self: self}
	w.nodes = append(w.nodes, b)
	return b
}

// cluster is n nodes that are up, the first of which is the oldest.
func (w *world) cluster(n int, change func(*node.Config)) []*box {
	w.t.Helper()
	for i := range n {
		b := w.add(string(rune('a'+i)), uint64(i+1), change)
		b.step(node.Membership{Input: membership.JoinSeeds{Seeds: []string{"a", "b"}}})
		if i == 0 {
			w.until("the first is up", func() bool { return b.up() == 1 })
		}
	}
	w.until("all are up", func() bool {
		return !slices.ContainsFunc(w.nodes, func(b *box) bool { return b.up() != n })
	})
	return w.nodes
}

func (b *box) up() (n int) {
	for _, m := range b.View().Members {
		if m.Status == identity.Up {
			n++
		}
	}
	return n
}

func (b *box) step(in node.Input) { b.carry(b.Step(b.w.now, in)) }

func (b *box) host(cfg singleton.Config) {
	b.w.t.Helper()
	e, err := b.Host(b.w.now, cfg)
	if err != nil {
		b.w.t.Fatal(err)
	}
	b.carry(e)
}

func (b *box) proxy(cfg singleton.ProxyConfig) {
	b.w.t.Helper()
	e, err := b.Proxy(b.w.now, cfg)
	if err != nil {
		b.w.t.Fatal(err)
	}
	b.carry(e)
}

func (b *box) carry(e node.Effects) {
	for _, l := range e.Log {
		b.lines = append(b.lines, l.Message)
	}
	for _, s := range e.Send {
		b.w.flying = append(b.w.flying, parcel{b.w.now + latency, b.self, s})
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

func (b *box) lease(op node.LeaseOp) {
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

func (b *box) lived(kind membership.LifeKind) bool {
	return slices.ContainsFunc(b.life, func(l membership.Life) bool { return l.Kind == kind })
}

// runs reports whether an instance of a singleton runs on the node.
func (b *box) runs(name string) bool {
	return !b.dead && slices.ContainsFunc(b.Singletons(), func(s node.Singleton) bool { return s.Name == name && s.Instance != 0 })
}

// isolate cuts a node off from all, itself included: its link to the broker is gone.
func (w *world) isolate(b *box, cut bool) {
	for _, o := range w.nodes {
		w.cut[[2]string{b.self.Name, o.self.Name}] = cut
		w.cut[[2]string{o.self.Name, b.self.Name}] = cut
	}
}

// next handles the next event, but none after the given time.
func (w *world) next(limit time.Duration) bool {
	at := limit + 1
	for _, b := range w.nodes {
		if !b.dead {
			at = min(at, b.Next())
		}
	}
	if len(w.flying) > 0 {
		at = min(at, w.flying[0].at)
	}
	if at > limit {
		w.now = max(w.now, limit)
		return false
	}
	w.now = max(w.now, at)
	for len(w.flying) > 0 && w.flying[0].at <= w.now {
		p := w.flying[0]
		w.flying = w.flying[1:]
		w.deliver(p)
	}
	for _, b := range w.nodes {
		if !b.dead && b.Next() <= w.now {
			b.carry(b.Tick(w.now))
		}
	}
	return true
}

func (w *world) deliver(p parcel) {
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

// until runs until something holds, at most for two minutes.
func (w *world) until(subject string, holds func() bool) {
	w.t.Helper()
	for limit := w.now + 2*time.Minute; !holds(); {
		if !w.next(limit) {
			w.t.Fatalf("after two minutes it is not true that %s", subject)
		}
	}
}

// hosts are the nodes on which an instance of a singleton runs.
func (w *world) hosts(name string) (names []string) {
	for _, b := range w.nodes {
		if b.runs(name) {
			names = append(names, b.self.Name)
		}
	}
	return names
}
