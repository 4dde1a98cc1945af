// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
	"github.com/refold-io/refold/internal/testkit/effort"
)

// resolving gives each host a downing strategy, as internal/node does.
func (w *world) resolving(s splitbrain.Settings) {
	w.resolver = func(h *host) *splitbrain.Resolver {
		r, err := splitbrain.New(h.node, s)
		if err != nil {
			w.tb.Fatal(err)
		}
		return r
	}
}

// resolve passes the effects of a step to the resolver of a host.
func (h *host) resolve(e membership.Effects) {
	if h.resolver == nil || h.dead {
		return
	}
	now := h.w.now - h.since
	s := h.m.Connectivity()
	if mute := s != membership.Confirmed && s != membership.LostTogether; mute != h.mute {
		h.mute = mute
		h.decide(h.resolver.Step(now, splitbrain.Link{Up: !mute}))
	}
	if len(e.Events) > 0 {
		v := h.m.View()
		h.decide(h.resolver.Step(now, splitbrain.View(v)))
	}
}

func (h *host) decide(e splitbrain.Effects) {
	for _, n := range e.Down {
		h.w.note("%v: %v are downed by %v", h.w.now, n, h.node)
		h.do(membership.DownNode{Node: n})
	}
}

// hosting reports whether singletons and shards may run on the host.
func (h *host) hosting() bool {
	me := h.m.Gossip().Member(h.node)
	return !h.dead && !h.paused && me != nil && (me.Status == up || me.Status == leaving) && !h.m.Suspended()
}

// overlap fails if two hosts may run the same instances: both may host, and one has removed the
// other more than the margin ago.
func (w *world) overlap(margin time.Duration) {
	w.tb.Helper()
	for _, h := range w.hosts {
		if !h.hosting() {
			continue
		}
		for _, other := range w.hosts {
			if at, gone := h.downed[other.node]; gone && w.now >= at+margin && other.hosting() {
				w.tb.Fatalf("%v: %v removed %v at %v, and both host:\n%s\n%s", w.now, h.node, other.node, at, strings.Join(w.notes, "\n"), w.describe())
			}
		}
	}
}

// TestSurvivors cuts links, stops the broker, and pauses and kills processes, with each downing
// strategy. No node may host instances that another node has taken over. When all faults have
// ended, the remaining nodes must form one working cluster.
func TestSurvivors(t *testing.T) {
	t.Parallel()
	resumed, downed, left := 0, 0, 0
	count := cmp.Or(*chaosSeeds, seeds(12))
	for seed := *chaosSeed; seed < *chaosSeed+count; seed++ {
		s := &survivors{world: newWorld(t, seed)}
		s.run(t, seed)
		for _, h := range s.hosts {
			resumed += countLife(h, membership.Resumed)
			downed += countLife(h, membership.Downed)
			if !h.dead {
				left++
			}
		}
	}
	t.Logf("%d resumptions, %d downings, %d nodes alive at the end", resumed, downed, left)
	if count >= 12 && (resumed == 0 || downed == 0 || left == 0) {
		t.Errorf("%d seeds had %d resumptions, %d downings and %d nodes alive at the end, want each above 0", count, resumed, downed, left)
	}
}

func countLife(h *host, kind membership.LifeKind) (n int) {
	for _, l := range h.lives {
		if l.Kind == kind {
			n++
		}
	}
	return n
}

type survivors struct {
	*world
	cutOff map[string]bool
}

func (s *survivors) run(t *testing.T, seed uint64) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("replay with -run TestSurvivors -chaos.seed=%d -chaos.seeds=1\n%s", seed, strings.Join(s.notes, "\n"))
		}
	}()
	s.settings.UndecidedAfter, s.settings.LeavingUndecidedAfter, s.settings.GiveUpAfter = 30*time.Second, 10*time.Second, 52*time.Second
	s.resolving(splitbrain.Settings{Strategy: []downing.Strategy{downing.KeepMajority, downing.KeepOldest}[s.rand.IntN(2)]})
	s.cutOff = map[string]bool{}
	s.cut = func(from, to string) bool { return s.cutOff[from] != s.cutOff[to] }
	hosts := s.join(names(3 + s.rand.IntN(5))...)
	s.up(time.Minute, hosts...)
	if seed%2 == 0 {
		s.loss, s.double, s.delay = 0.02, 0.02, 20*time.Millisecond
	}
	for range 1 + s.rand.IntN(3) {
		s.fault(hosts)
		s.watch(time.Duration(s.rand.IntN(60_000)) * time.Millisecond)
	}
	clear(s.cutOff)
	s.broker, s.loss = false, 0
	for _, h := range hosts {
		h.offline = false
		if h.paused {
			h.unpause()
		}
	}
	s.note("%v: all faults have ended", s.now)
	s.watch(3 * time.Minute)
	var living []*host
	for _, h := range hosts {
		if !h.dead {
			living = append(living, h)
		}
	}
	for _, h := range living {
		if !h.hosting() || !s.agree(living...) {
			t.Errorf("%v does not continue:\n%s", h.node, s.describe())
		}
	}
}

// watch advances the time and checks which nodes host.
func (s *survivors) watch(d time.Duration) {
	s.until(d, func() bool {
		s.overlap(20 * time.Second)
		return false
	})
}

func (s *survivors) fault(hosts []*host) {
	some := func(f func(*host)) (names []string) {
		for _, h := range hosts {
			if !h.dead && s.rand.IntN(3) == 0 {
				f(h)
				names = append(names, h.node.Name)
			}
		}
		return names
	}
	switch s.rand.IntN(6) {
	case 0:
		s.broker = !s.broker
		s.note("%v: the broker is unavailable: %t", s.now, s.broker)
	case 1:
		clear(s.cutOff)
		s.note("%v: cut off: %v", s.now, some(func(h *host) { s.cutOff[h.node.Name] = true }))
	case 2:
		clear(s.cutOff)
		s.note("%v: the network is repaired", s.now)
	case 3:
		s.note("%v: offline is toggled: %v", s.now, some(func(h *host) { h.offline = !h.offline }))
	case 4:
		s.note("%v: paused or resumed: %v", s.now, some(func(h *host) {
			if h.paused {
				h.unpause()
			} else {
				h.pause()
			}
		}))
	case 5:
		h := hosts[s.rand.IntN(len(hosts))]
		s.note("%v: %v is killed", s.now, h.node)
		h.kill()
	}
}

// The broker is unavailable for a minute. All nodes continue afterwards, even if one of them
// crashed in this time.
func TestBrokerOutage(t *testing.T) {
	t.Parallel()
	for _, crashes := range []int{0, 1} {
		w := newWorld(t, 1)
		w.settings.UndecidedAfter, w.settings.GiveUpAfter = 30*time.Second, 52*time.Second
		w.resolving(splitbrain.Settings{})
		hosts := w.join(names(5)...)
		w.up(time.Minute, hosts...)
		w.broker = true
		w.run(time.Minute)
		for _, h := range hosts {
			if h.hosting() || h.dead {
				t.Errorf("%v did not stop hosting", h.node)
			}
		}
		for _, h := range hosts[:crashes] {
			h.kill()
		}
		hosts = hosts[crashes:]
		w.broker = false
		all := func() bool {
			return !slices.ContainsFunc(hosts, func(h *host) bool { return !h.hosting() }) && w.agree(hosts...)
		}
		most := map[int]time.Duration{0: 3 * time.Second, 1: 35 * time.Second}[crashes]
		if !w.until(most, all) {
			t.Errorf("%d nodes crashed, and not all others continue after %v:\n%s", crashes, most, w.describe())
		}
	}
}

// Two nodes of a cluster of three or five lose their broker and connect to another broker. They
// must not resume because of confirmations by each other alone.
func TestTwoUnreachableMembers(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		w := newWorld(t, 1)
		w.resolving(splitbrain.Settings{})
		hosts := w.join(names(n)...)
		w.up(time.Minute, hosts...)
		for _, h := range hosts[:2] {
			h.offline = true
		}
		w.run(40 * time.Second)
		for _, h := range hosts[:2] {
			h.offline = false
		}
		w.cut = func(from, to string) bool { return (from < "node-002") != (to < "node-002") }
		w.until(2*time.Minute, func() bool {
			w.overlap(20 * time.Second)
			for _, h := range hosts[:2] {
				if h.hosting() && slices.ContainsFunc(h.m.Gossip().Unreachable(h.node), func(o *identity.Member) bool { return o.Status != down }) {
					t.Fatalf("%v continues without a confirmation of a member that was not disconnected", h.node)
				}
			}
			return false
		})
		for i, h := range hosts {
			minority := i < 2 == (n == 5)
			if h.dead != minority || h.hosting() == minority {
				t.Errorf("%d members: the wrong side continues: %v has ended: %t\n%s\n%s", n, h.node, h.dead, fmt.Sprint(h.lives), strings.Join(w.notes, "\n"))
			}
		}
	}
}

// A large cluster is cut in two, and the small side has the oldest member. The small side finds all
// others unreachable soon enough to decide, and survives.
func TestSmallSideSurvives(t *testing.T) {
	t.Parallel()
	for _, side := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(side), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.resolving(splitbrain.Settings{Strategy: downing.KeepOldest, KeepLoneOldest: true, StableAfter: 13 * time.Second})
			hosts := w.join(names(effort.Count(20, 60, 60))...)
			w.up(2*time.Minute, hosts...)
			w.run(20 * time.Second)
			small := map[string]bool{}
			for _, h := range hosts[:side] {
				small[h.node.Name] = true
			}
			w.cut = func(from, to string) bool { return small[from] != small[to] }
			w.run(53 * time.Second)
			for _, h := range hosts {
				if stays := small[h.node.Name]; h.dead == stays || !stays && !h.stopped(membership.WasDowned) {
					t.Errorf("%v has ended: %t, want %t with WasDowned", h.node, h.dead, !stays)
				}
			}
		})
	}
}
