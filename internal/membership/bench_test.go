// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// sizes are numbers of members.
var sizes = []int{100, 1000}

func BenchmarkEncode(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g, _ := many(rand.New(rand.NewPCG(1, 1)), n)
			b.ReportMetric(float64(len(membership.AppendMessage(nil, membership.StateOf(g)))), "bytes")
			b.ReportAllocs()
			for b.Loop() {
				membership.AppendMessage(nil, membership.StateOf(g))
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, n := range sizes {
		g, _ := many(rand.New(rand.NewPCG(1, 1)), n)
		state := membership.StateOf(g)
		for name, known := range map[string]membership.Gossip{"new": {}, "known": g} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := state.Gossip(known); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkMerge(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g, _ := many(rand.New(rand.NewPCG(1, 1)), n)
			x, y := g.Members()[1].Node, g.Members()[2].Node
			one := apply(b, g, x, membership.Change{Observed: []membership.Observation{{y, unreachable}}})
			two := apply(b, g, y, membership.Change{Put: []*identity.Member{member("x", joining)}})
			b.ReportAllocs()
			for b.Loop() {
				one.Merge(two)
			}
		})
	}
}

func BenchmarkCompare(b *testing.B) {
	g, _ := many(rand.New(rand.NewPCG(1, 1)), 1000)
	var one, two membership.Clock
	for i, m := range g.Members() {
		one = append(one, membership.Tick{Node: m.Node, Count: 1})
		if i > 0 {
			two = append(two, membership.Tick{Node: identity.Node{Name: m.Node.Name, UID: m.Node.UID}, Count: 1})
		}
	}
	for b.Loop() {
		if one.Compare(two) != membership.After {
			b.Fatal("Compare did not find one more change in the first clock")
		}
	}
}

// BenchmarkStep measures a member of a large cluster: a received heartbeat, a tick without effect,
// and a received change.
func BenchmarkStep(b *testing.B) {
	g, self := many(rand.New(rand.NewPCG(1, 1)), 1000)
	other := g.Members()[500].Node
	start := func(b *testing.B) *membership.Machine {
		b.Helper()
		m, err := membership.New(membership.Config{Self: self, Rand: rand.New(rand.NewPCG(1, 1))})
		if err != nil {
			b.Fatal(err)
		}
		e := m.Step(0, membership.JoinNode{Name: other.Name})
		m.Step(0, membership.Received{From: self, To: self, Data: e.Send[0].Data})
		m.Step(0, membership.Received{From: other, To: self, Data: membership.AppendMessage(nil, membership.Welcome{State: membership.StateOf(g)})})
		if !m.Member() {
			b.Fatal("the node is not a member")
		}
		return m
	}
	b.Run("heartbeat", func(b *testing.B) {
		m := start(b)
		in := membership.Received{From: other, To: self, Data: membership.AppendMessage(nil, membership.Heartbeat{Nr: 1})}
		b.ReportAllocs()
		for b.Loop() {
			m.Step(0, in)
		}
	})
	b.Run("tick", func(b *testing.B) {
		m := start(b)
		for _, o := range g.Members() {
			m.Step(0, membership.Received{From: other, To: self, Data: membership.AppendMessage(nil, membership.SeenOf(g.Saw(o.Node)))})
		}
		b.ReportAllocs()
		for now := time.Duration(0); b.Loop(); now = m.Next() {
			m.Tick(now)
		}
	})
	b.Run("change", func(b *testing.B) {
		m := start(b)
		b.ReportAllocs()
		for b.Loop() {
			next, err := m.Gossip().Apply(other, membership.Change{Observed: []membership.Observation{{self, unreachable}}})
			if err != nil {
				b.Fatal(err)
			}
			if next.Reachability().By(other, self) == unreachable {
				next, err = next.Apply(other, membership.Change{Observed: []membership.Observation{{self, reachable}}})
			}
			if err != nil {
				b.Fatal(err)
			}
			m.Step(0, membership.Received{From: other, To: self, Data: membership.AppendMessage(nil, membership.StateOf(next))})
		}
	})
}
