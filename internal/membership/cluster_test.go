// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/testkit/effort"
)

func TestFormAndLeave(t *testing.T) {
	t.Parallel()
	for seed := range seeds(5) {
		w := newWorld(t, seed)
		hosts := w.join(names(3 + int(seed)%10)...)
		w.up(30*time.Second, hosts...)
		for len(hosts) > 0 {
			gone := hosts[0]
			gone.do(membership.Leave{Node: gone.node})
			hosts = hosts[1:]
			if !w.until(20*time.Second, func() bool { return gone.dead && w.agree(hosts...) }) {
				t.Fatalf("%v has not left:\n%s", gone.node, w.describe())
			}
			if !gone.stopped(membership.Left) {
				t.Errorf("life events of %v: %v, want Stopped with Left", gone.node, gone.lives)
			}
		}
	}
}

func TestJoinRestartCrashWithLoss(t *testing.T) {
	t.Parallel()
	for seed := range seeds(6) {
		w := newWorld(t, seed)
		w.loss, w.double, w.delay = 0.05, 0.05, 50*time.Millisecond
		hosts := w.join(names(8)...)
		w.up(120*time.Second, hosts...)

		// A node is killed and restarted under its name.
		dead := hosts[3]
		dead.kill()
		again := w.start(dead.node.Name)
		again.do(membership.JoinSeeds{Seeds: names(3)})
		hosts[3] = again
		w.up(120*time.Second, hosts...)

		// Another node is killed and is not restarted.
		gone := hosts[5]
		gone.kill()
		if !w.until(60*time.Second, func() bool { return len(hosts[0].m.Gossip().Unreachable(hosts[0].node)) == 1 }) {
			t.Fatalf("no member has noticed the crash:\n%s", w.describe())
		}
		hosts[1].do(membership.DownNode{Node: gone.node})
		hosts = append(hosts[:5:5], hosts[6:]...)
		w.up(120*time.Second, hosts...)

		// New nodes join.
		for _, name := range []string{"x", "y"} {
			h := w.start(name)
			h.do(membership.JoinSeeds{Seeds: names(3)})
			hosts = append(hosts, h)
		}
		w.up(120*time.Second, hosts...)
	}
}

func TestPartitionHeals(t *testing.T) {
	t.Parallel()
	for seed := range seeds(4) {
		w := newWorld(t, seed)
		hosts := w.join(names(7)...)
		w.up(60*time.Second, hosts...)
		left := map[string]bool{}
		for _, h := range hosts[:3] {
			left[h.node.Name] = true
		}
		w.cut = func(from, to string) bool { return left[from] != left[to] }
		w.run(20 * time.Second)
		for _, h := range hosts {
			want := 4
			if !left[h.node.Name] {
				want = 3
			}
			if got := len(h.m.Gossip().Unreachable(h.node)); got != want {
				t.Errorf("%v finds %d unreachable, want %d", h.node, got, want)
			}
		}
		h := w.start("x")
		h.do(membership.JoinSeeds{Seeds: names(3)})
		w.run(10 * time.Second)
		if me := hosts[0].m.Gossip().Member(h.node); me != nil && me.Status == up {
			t.Error("a member became Up without convergence")
		}
		w.cut = func(string, string) bool { return false }
		w.up(60*time.Second, append(hosts, h)...)
	}
}

// The number of messages that an idle member sends does not depend on the size of the cluster.
func TestIdleTraffic(t *testing.T) {
	t.Parallel()
	perNode := func(n int) (bytes, packets float64) {
		w := newWorld(t, 1)
		w.checked = false
		hosts := w.join(names(n)...)
		w.up(2*time.Minute, hosts...)
		w.run(5 * time.Second)
		w.bytes, w.packets = 0, 0
		w.run(time.Minute)
		return float64(w.bytes) / float64(n), float64(w.packets) / float64(n)
	}
	few, many := effort.Count(20, 30, 30), effort.Count(50, 75, 75)
	fewBytes, fewPackets := perNode(few)
	manyBytes, manyPackets := perNode(many)
	t.Logf("each of %d members sends %.0f bytes and %.0f packets a minute, each of %d members %.0f and %.0f", few, fewBytes, fewPackets, many, manyBytes, manyPackets)
	if manyBytes > 1.1*fewBytes || manyPackets > 1.1*fewPackets {
		t.Error("an idle member of the larger cluster sends over 10 % more bytes or packets")
	}
}

// BenchmarkJoin measures the formation of a cluster in which 1 of 20 members crashes.
func BenchmarkJoin(b *testing.B) {
	for _, n := range []int{500, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				benchmarkJoin(b, n)
			}
		})
	}
}

func benchmarkJoin(b *testing.B, n int) {
	b.Helper()
	w := newWorld(b, 1)
	w.checked = false
	all := names(n)
	var hosts []*host
	for i, name := range all {
		h := w.start(name)
		h.do(membership.JoinSeeds{Seeds: all[:3]})
		hosts = append(hosts, h)
		if i%20 == 19 {
			w.run(10 * time.Millisecond)
		}
	}
	joined := w.now
	w.until(5*time.Minute, func() bool { return w.agree(hosts...) })
	b.ReportMetric((w.now - joined).Seconds(), "s-to-up")
	for range n / 20 {
		hosts[len(hosts)-1].kill()
		hosts = hosts[:len(hosts)-1]
	}
	crashed := w.now
	w.until(time.Minute, func() bool { return len(hosts[0].m.Gossip().Unreachable(hosts[0].node)) == n/20 })
	b.ReportMetric((w.now - crashed).Seconds(), "s-to-noticed")
	b.ReportMetric(float64(w.packets), "packets")
	b.ReportMetric(float64(w.bytes)/1e6, "MB-sent")
}
