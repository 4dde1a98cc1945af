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

// estate is a cluster that is partitioned some time after one of its nodes has acquired the lease
// for another decision. The nodes of a side notice the partition at different times, and receive
// each other's downing decisions a little later.
type estate struct {
	rnd    *rand.Rand
	now    time.Duration
	todo   []deed
	nodes  []*heir
	down   [2][]bool // by side, the nodes that it has downed
	holder *heir     // in the store
}

type deed struct {
	at time.Duration
	do func()
}

// heir is one of the nodes.
type heir struct {
	*estate

	nr, side int
	r        *splitbrain.Resolver
	cut      bool // it has noticed
	stopped  bool // it is stuck forever without being noticed
	ended    bool
}

func (e *estate) after(d time.Duration, do func()) {
	at := e.now + d
	i := slices.IndexFunc(e.todo, func(d deed) bool { return d.at > at })
	if i < 0 {
		i = len(e.todo)
	}
	e.todo = slices.Insert(e.todo, i, deed{at, do})
}

func (e *estate) run(until time.Duration) {
	for len(e.todo) > 0 && e.todo[0].at <= until {
		next := e.todo[0]
		e.todo = e.todo[1:]
		e.now = next.at
		next.do()
	}
	e.now = until
}

func (e *estate) upTo(d time.Duration) time.Duration { return time.Duration(e.rnd.Int64N(int64(d))) }

// view is the view of a node, with a member that is removed when the lease was acquired.
func (h *heir) view(first bool) splitbrain.View {
	var v splitbrain.View
	lead := -1
	for i, n := range h.nodes {
		m := aged(i, identity.Up, false)
		switch far := h.cut && n.side != h.side; {
		case far:
			v.Unreachable = append(v.Unreachable, m.Node)
		case lead < 0 && !h.down[h.side][i]:
			lead = i
		}
		if h.down[h.side][i] {
			m.Status = identity.Down
		} else if !h.cut || n.side == h.side {
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

func (h *heir) tick() {
	if h.stopped || h.ended {
		return
	}
	h.after(time.Second, h.tick)
	h.does(h.r.Tick(h.now))
}

func (h *heir) step(in splitbrain.Input) {
	if !h.stopped && !h.ended {
		h.does(h.r.Step(h.now, in))
	}
}

// does carries out the effects of the resolver. Answers of the store are late, except for the owner
// of the lease.
func (h *heir) does(e splitbrain.Effects) {
	if e.ReleaseLease {
		h.after(h.upTo(time.Second), func() {
			if h.holder == h {
				h.holder = nil
			}
			h.after(h.upTo(time.Second), func() { h.step(splitbrain.LeaseReleased{Done: true}) })
		})
	}
	switch {
	case e.AskLease && h.holder == h:
		h.step(splitbrain.LeaseAnswer{Held: true})
	case e.AskLease:
		h.after(h.upTo(time.Second), func() {
			in := splitbrain.LeaseAnswer{Held: h.holder == nil || h.holder == h}
			if in.Held {
				h.holder = h
			} else {
				in.Owner = h.holder.node()
			}
			h.after(h.upTo(time.Second), func() { h.step(in) })
		})
	}
	if len(e.Down) == 0 {
		return
	}
	for i, n := range h.nodes {
		h.down[h.side][i] = h.down[h.side][i] || slices.Contains(e.Down, n.node())
	}
	h.heard()
	for _, n := range h.nodes {
		if n != h && n.side == h.side {
			h.after(h.upTo(time.Second), n.heard)
		}
	}
}

func (h *heir) node() identity.Node { return aged(h.nr, identity.Up, false).Node }

// heard is when it receives the downing decision of its side.
func (h *heir) heard() {
	h.cut = true
	h.ended = h.ended || h.down[h.side][h.nr]
	h.step(h.view(false))
}

// bequeath runs one scenario and returns how many nodes are left on each side. All sides have to
// decide.
func bequeath(t *testing.T, seed uint64, patient bool) (left [2]int, story string) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 11))
	n := 2 + rnd.IntN(5)
	e := &estate{rnd: rnd, down: [2][]bool{make([]bool, n), make([]bool, n)}}
	s := splitbrain.Settings{Strategy: downing.LeaseMajority, StableAfter: 10 * time.Second, ReleaseAfter: 20 * time.Second}
	for i := range n {
		h := &heir{estate: e, nr: i, side: rnd.IntN(2), r: resolver(t, aged(i, identity.Up, false).Node.Name, s)}
		e.nodes = append(e.nodes, h)
	}
	e.nodes[0].side, e.nodes[n-1].side = 0, 1
	owner := e.nodes[rnd.IntN(n)]
	for _, h := range e.nodes {
		h.step(h.view(h == owner))
		e.after(e.upTo(time.Second), h.tick)
	}
	e.run(15 * time.Second)
	if e.holder != owner {
		t.Fatalf("seed %d: the lease is held by %v", seed, e.holder)
	}
	owner.step(owner.view(false)) // from here on it is held for 20 s
	e.run(e.now + e.upTo(22*time.Second))
	for _, h := range e.nodes {
		e.after(e.upTo(2*time.Second), h.heard)
	}
	if !patient {
		e.after(e.upTo(20*time.Second), func() { owner.stopped = true })
	}
	e.run(e.now + 2*time.Minute)
	story = fmt.Sprintf("seed %d, the owner was %d:", seed, owner.nr)
	for _, h := range e.nodes {
		if !h.ended && !h.stopped {
			left[h.side]++
		}
		story += fmt.Sprintf(" %d on side %d, ended %t, stopped %t;", h.nr, h.side, h.ended, h.stopped)
	}
	for side := range left {
		if left[side] > 0 && !slices.Contains(e.down[side], true) {
			t.Errorf("side %d continues without a decision: %s", side, story)
		}
	}
	return left, story
}

func estates() uint64 {
	return effort.Count[uint64](50, 200, 20000)
}

// One side survives, with any previous owner of the lease and any leader on its side.
func TestOneSideSurvivesWithAnyOwnerOfTheLease(t *testing.T) {
	t.Parallel()
	for seed := range estates() {
		if left, story := bequeath(t, seed, true); (left[0] == 0) == (left[1] == 0) {
			t.Errorf("%d and %d are left: %s", left[0], left[1], story)
		}
	}
}

// With an owner that is stuck, two sides never survive, and no side waits for it forever.
func TestNeverDoBothSidesSurviveWhenTheOwnerStops(t *testing.T) {
	t.Parallel()
	for seed := range estates() {
		left, story := bequeath(t, seed, false)
		if left[0] > 0 && left[1] > 0 {
			t.Errorf("both sides are left: %s", story)
		}
	}
}

// TestOrphans checks that a node downs itself if it is joining a side that downs itself, even if
// that side does not list the node as a member yet.
func TestOrphans(t *testing.T) {
	t.Parallel()
	for view, want := range map[string]string{
		"a:joining b:down c:down! d:down!":           "a",
		"a:weakly-up b:down c:down":                  "a",
		"a:joining b:down c:joining":                 "a",
		"a:joining b:down c:up!":                     "", // it is decided about that one first
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
				t.Errorf("it downs %q, want %q", got, want)
			}
		})
	}
}
