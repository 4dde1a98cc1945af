// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/sim/env"
)

// Large configures a simulation of a large cluster without faults except crashes.
type Large struct {
	Seed uint64
	// Nodes join through 3 seeds, within JoinWithin.
	Nodes      int
	JoinWithin time.Duration
	// Crash is the number of nodes that crash at the same time.
	Crash int
	// Loss is the probability that a message is lost.
	Loss float64
	// Quiet is the time without changes in which messages are counted.
	Quiet time.Duration
	// Progress is called with the progress, if it is not nil.
	Progress func(at time.Duration, text string)
}

// LargeResult is the result. Times are simulated.
type LargeResult struct {
	// AllUp is the time from the last join until each node has all members as Up. Decided is the
	// time from the crash until the last crashed node is downed.
	AllUp, Decided time.Duration
	// Messages and Bytes are the numbers per node and second in the quiet time, by lane.
	Messages, Bytes [link.Lanes]float64
	// State is the size of the encoded gossip in bytes.
	State int
	// Err is the condition that was not reached in time.
	Err error
}

// largeCluster is a large cluster. It checks only when all nodes have all members.
type largeCluster struct {
	Large

	w         *env.Env
	nodes     []*largeNode
	undecided map[*largeNode]bool
}

type largeNode struct {
	b *largeCluster
	p *env.Process
	m *node.Machine

	up int // members that are Up in its view
}

// Run runs the simulation.
func (l Large) Run() LargeResult {
	b := &largeCluster{Large: l, w: env.New(l.Seed), undecided: map[*largeNode]bool{}}
	b.w.Direct = true
	b.w.Network.Loss = l.Loss
	var r LargeResult
	lastJoin := time.Duration(0)
	for i := range l.Nodes {
		at := time.Duration(0)
		if i > 0 {
			at = time.Duration(b.w.Rand.Int64N(int64(l.JoinWithin)))
		}
		lastJoin = max(lastJoin, at)
		b.w.After(at, func() { b.start(fmt.Sprintf("node-%04d", i)) })
	}
	allUp := func() bool {
		for _, n := range b.nodes {
			if n.up < l.Nodes {
				return false
			}
		}
		return len(b.nodes) == l.Nodes
	}
	if !b.until(lastJoin+5*time.Minute, "all up", allUp) {
		r.Err = fmt.Errorf("not all are up after %v", b.w.Now())
		return r
	}
	r.AllUp = b.w.Now() - lastJoin
	for _, n := range b.nodes {
		for _, m := range n.m.Gossip().Members() {
			if m.Status != identity.Up {
				r.Err = fmt.Errorf("%v has %v as %v", n.p.Node(), m.Node, m.Status)
				return r
			}
		}
	}
	r.State = len(b.nodes[0].m.Gossip().AppendContent(nil))
	if l.Quiet > 0 {
		b.w.Run(20*time.Second, nil) // until all have seen the last gossip
		before := b.w.Traffic()
		b.w.Run(l.Quiet, nil)
		after := b.w.Traffic()
		per := float64(l.Nodes) * l.Quiet.Seconds()
		for lane := range link.Lanes {
			r.Messages[lane] = float64(after.Messages[lane]-before.Messages[lane]) / per
			r.Bytes[lane] = float64(after.Bytes[lane]-before.Bytes[lane]) / per
		}
	}
	if l.Crash > 0 {
		r.Decided, r.Err = b.crash()
	}
	return r
}

// crash kills some nodes at the same time and waits until all are downed.
func (b *largeCluster) crash() (time.Duration, error) {
	b.w.Run(30*time.Second, nil)
	at := b.w.Now()
	for _, i := range b.w.Rand.Perm(b.Nodes)[:b.Crash] {
		b.nodes[i].p.Kill()
		b.undecided[b.nodes[i]] = true
	}
	if !b.until(5*time.Minute, "all decided", func() bool { return len(b.undecided) == 0 }) {
		return 0, fmt.Errorf("after %v nothing is decided about %d nodes", b.w.Now()-at, len(b.undecided))
	}
	return b.w.Now() - at, nil
}

func (b *largeCluster) until(most time.Duration, subject string, holds func() bool) bool {
	return b.w.Until(most, 100*time.Millisecond, func() bool {
		if b.Progress != nil && b.w.Now()%time.Second == 0 {
			b.Progress(b.w.Now(), subject)
		}
		return holds()
	}, nil)
}

func (b *largeCluster) start(name string) {
	n := &largeNode{b: b}
	b.w.Start(name, func(p *env.Process) env.Program {
		n.p = p
		return n
	})
	n.m = must(node.New(node.Config{Cluster: "large", Membership: membership.Config{
		Self: n.p.Node(), Started: n.p.Wall(), Rand: rand.New(rand.NewPCG(b.w.Rand.Uint64(), n.p.Node().UID)), //nolint:gosec // must be repeatable
	}}))
	b.nodes = append(b.nodes, n)
	n.p.Do(func() {
		n.applyEffects(n.m.Step(n.p.Now(), node.Membership{Input: membership.JoinSeeds{Seeds: []string{"node-0000", "node-0001", "node-0002"}}}))
	})
}

// Wake implements env.Program.
func (n *largeNode) Wake() { n.applyEffects(n.m.Tick(n.p.Now())) }

// Connection implements env.Program.
func (n *largeNode) Connection(bool) {}

// Receive implements env.Program.
func (n *largeNode) Receive(m env.Message) {
	n.applyEffects(n.m.Step(n.p.Now(), node.Received{From: m.From, To: m.To, Kind: membership.Kind(m.Kind), Arrived: m.Arrived, Data: m.Data})) //nolint:gosec // those of the control lane are small
}

func (n *largeNode) applyEffects(e node.Effects) {
	for _, s := range e.Send {
		n.p.Send(s.To, link.Control, link.Kind(s.Kind), s.Data)
	}
	for _, event := range e.Events {
		switch event.Kind { //nolint:exhaustive // the others do not count
		case membership.MemberUp:
			n.up++
		case membership.MemberDowned:
			maps.DeleteFunc(n.b.undecided, func(n *largeNode, _ bool) bool { return n.p.Node() == event.Member.Node })
		}
	}
	n.p.WakeAt(n.m.Next())
}
