// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/splitbrain"
	"github.com/refold-io/refold/internal/testkit/effort"
)

// leaseSim simulates a cluster that is partitioned after one of its nodes has acquired the lease
// for another decision. The nodes of a side notice the partition at different times, and receive
// each other's downing decisions after a short delay.
type leaseSim struct {
	rnd    *rand.Rand
	now    time.Duration
	todo   []event
	nodes  []*leaseNode
	down   [2][]bool  // for each side, whether it has downed each node
	holder *leaseNode // of the lease
}

type event struct {
	at time.Duration
	do func()
}

// leaseNode is one of the nodes.
type leaseNode struct {
	*leaseSim

	nr, side int
	r        *splitbrain.Resolver
	noticed  bool // the node has noticed the partition
	stopped  bool // the node is stuck, but no other node notices it
	ended    bool
}

func (e *leaseSim) after(d time.Duration, do func()) {
	at := e.now + d
	i := slices.IndexFunc(e.todo, func(d event) bool { return d.at > at })
	if i < 0 {
		i = len(e.todo)
	}
	e.todo = slices.Insert(e.todo, i, event{at, do})
}

func (e *leaseSim) run(until time.Duration) {
	for len(e.todo) > 0 && e.todo[0].at <= until {
		next := e.todo[0]
		e.todo = e.todo[1:]
		e.now = next.at
		next.do()
	}
	e.now = until
}

func (e *leaseSim) randomUpTo(d time.Duration) time.Duration {
	return time.Duration(e.rnd.Int64N(int64(d)))
}

// view returns the view of a node. With first set, it contains the member x, for whose downing the
// lease is acquired.
func (h *leaseNode) view(first bool) splitbrain.View {
	var v splitbrain.View
	lead := -1
	for i, n := range h.nodes {
		m := aged(i, identity.Up, false)
		switch far := h.noticed && n.side != h.side; {
		case far:
			v.Unreachable = append(v.Unreachable, m.Node)
		case lead < 0 && !h.down[h.side][i]:
			lead = i
		}
		if h.down[h.side][i] {
			m.Status = identity.Down
		} else if !h.noticed || n.side == h.side {
			v.Seen = append(v.Seen, m.Node)
		}
		v.Members = append(v.Members, m)
	}
	if first {
		v.Members = append(v.Members, identity.Member{Node: node("x"), Status: identity.Up, UpNumber: 99})
		v.Unreachable = append(v.Unreachable, node("x"))
	}
	v.Leader = lead == h.nr || first
	v.Reachability = observed(v)
	return v
}

func (h *leaseNode) tick() {
	if h.stopped || h.ended {
		return
	}
	h.after(time.Second, h.tick)
	h.apply(h.r.Tick(h.now))
}

func (h *leaseNode) step(in splitbrain.Input) {
	if !h.stopped && !h.ended {
		h.apply(h.r.Step(h.now, in))
	}
}

// apply carries out the effects of the resolver. The store answers with a delay, except to the
// owner of the lease.
func (h *leaseNode) apply(e splitbrain.Effects) {
	if e.ReleaseLease {
		h.after(h.randomUpTo(time.Second), func() {
			if h.holder == h {
				h.holder = nil
			}
			h.after(h.randomUpTo(time.Second), func() { h.step(splitbrain.LeaseReleased{Done: true}) })
		})
	}
	switch {
	case e.AskLease && h.holder == h:
		h.step(splitbrain.LeaseAnswer{Held: true})
	case e.AskLease:
		h.after(h.randomUpTo(time.Second), func() {
			in := splitbrain.LeaseAnswer{Held: h.holder == nil || h.holder == h}
			if in.Held {
				h.holder = h
			} else {
				in.Owner = h.holder.node()
			}
			h.after(h.randomUpTo(time.Second), func() { h.step(in) })
		})
	}
	if len(e.Down) == 0 {
		return
	}
	for i, n := range h.nodes {
		h.down[h.side][i] = h.down[h.side][i] || slices.Contains(e.Down, n.node())
	}
	h.receiveDecision()
	for _, n := range h.nodes {
		if n != h && n.side == h.side {
			h.after(h.randomUpTo(time.Second), n.receiveDecision)
		}
	}
}

func (h *leaseNode) node() identity.Node { return aged(h.nr, identity.Up, false).Node }

// receiveDecision handles the downing decisions of the node's side.
func (h *leaseNode) receiveDecision() {
	h.noticed = true
	h.ended = h.ended || h.down[h.side][h.nr]
	h.step(h.view(false))
}

// runLeaseSim runs one simulation and returns how many nodes of each side survive. It fails if a
// side survives without a decision. With ownerStops set, the owner of the lease is stuck after some
// time.
func runLeaseSim(t *testing.T, seed uint64, ownerStops bool) (survivors [2]int, summary string) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 11))
	n := 2 + rnd.IntN(5)
	e := &leaseSim{rnd: rnd, down: [2][]bool{make([]bool, n), make([]bool, n)}}
	s := splitbrain.Settings{Strategy: downing.LeaseMajority, StableAfter: 10 * time.Second, ReleaseAfter: 20 * time.Second}
	for i := range n {
		h := &leaseNode{leaseSim: e, nr: i, side: rnd.IntN(2), r: resolver(t, aged(i, identity.Up, false).Node.Name, s)}
		e.nodes = append(e.nodes, h)
	}
	e.nodes[0].side, e.nodes[n-1].side = 0, 1
	owner := e.nodes[rnd.IntN(n)]
	for _, h := range e.nodes {
		h.step(h.view(h == owner))
		e.after(e.randomUpTo(time.Second), h.tick)
	}
	e.run(15 * time.Second)
	if e.holder != owner {
		t.Fatalf("seed %d: the holder of the lease is %v, want the owner", seed, e.holder)
	}
	owner.step(owner.view(false)) // the lease is held for another 20 s
	e.run(e.now + e.randomUpTo(22*time.Second))
	for _, h := range e.nodes {
		e.after(e.randomUpTo(2*time.Second), h.receiveDecision)
	}
	if ownerStops {
		e.after(e.randomUpTo(20*time.Second), func() { owner.stopped = true })
	}
	e.run(e.now + 2*time.Minute)
	summary = fmt.Sprintf("seed %d, the owner is node %d:", seed, owner.nr)
	for _, h := range e.nodes {
		if !h.ended && !h.stopped {
			survivors[h.side]++
		}
		summary += fmt.Sprintf(" node %d on side %d, ended %t, stopped %t;", h.nr, h.side, h.ended, h.stopped)
	}
	for side := range survivors {
		if survivors[side] > 0 && !slices.Contains(e.down[side], true) {
			t.Errorf("side %d survives without a decision: %s", side, summary)
		}
	}
	return survivors, summary
}

func leaseSims() uint64 {
	return effort.Count[uint64](50, 200, 20000)
}

// Exactly one side survives, for any previous owner of the lease and any leader.
func TestLeaseOwner(t *testing.T) {
	t.Parallel()
	for seed := range leaseSims() {
		if survivors, summary := runLeaseSim(t, seed, false); (survivors[0] == 0) == (survivors[1] == 0) {
			t.Errorf("%d and %d nodes survive, want survivors on one side: %s", survivors[0], survivors[1], summary)
		}
	}
}

// If the owner of the lease is stuck, at most one side survives, and no side waits for the owner
// forever.
func TestStuckLeaseOwner(t *testing.T) {
	t.Parallel()
	for seed := range leaseSims() {
		survivors, summary := runLeaseSim(t, seed, true)
		if survivors[0] > 0 && survivors[1] > 0 {
			t.Errorf("both sides survive: %s", summary)
		}
	}
}

// TestOrphans checks that a joining node downs itself if the side that it joins downs itself, even
// if that side does not list the node as a member yet.
func TestOrphans(t *testing.T) {
	t.Parallel()
	for view, want := range map[string]string{
		"a:joining b:down c:down! d:down!":           "a",
		"a:weakly-up b:down c:down":                  "a",
		"a:joining b:down c:joining":                 "a",
		"a:joining b:down c:up!":                     "", // the strategy decides about the unreachable member first
		"a:joining b:down c:exiting":                 "",
		"a:joining b:down@2147483647":                "", // no member was ever Up
		"a:joining b:joining":                        "",
		"a:up b:down c:down":                         "",
		"a:leaving b:down":                           "",
		"a:joining b:up c:down":                      "",
		"a:joining b:down c:preparing-for-shutdown!": "",
	} {
		t.Run(view, func(t *testing.T) {
			t.Parallel()
			r, err := splitbrain.New(node("a"), splitbrain.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			if got := names(r.Step(time.Second, parse(t, view)).Down); got != want {
				t.Errorf("Step downs %q, want %q", got, want)
			}
		})
	}
}
