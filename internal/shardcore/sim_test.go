// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore_test

import (
	"cmp"
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/testkit/effort"
)

var (
	firstSeed = flag.Uint64("shards.seed", 0, "first seed of TestSimulation")
	manySeeds = flag.Uint64("shards.seeds", 0, "number of seeds of TestSimulation; 0 is the usual number")
)

// staying returns the nodes that are Up and do not leave.
func (w *world) staying() []*host {
	return slices.DeleteFunc(slices.Clone(w.hosts), func(h *host) bool { return h.gone || h.leaving || h.forced || h.status != identity.Up })
}

// startCoordinator starts the coordinator on the oldest eligible node unless another node runs it.
func (w *world) startCoordinator() {
	for _, h := range w.hosts {
		if h.hasCoordinator && h.status != identity.Removed { // a crashed node counts until it is removed
			return
		}
	}
	for _, h := range w.hosts {
		if !h.proxy && !h.gone && h.status == identity.Up && !h.forced {
			w.hit["coordinator started"]++
			h.hasCoordinator = true
			h.step(shardcore.StartCoordinator{})
			return
		}
	}
}

// leave shuts a node down gracefully: first its shards, then its coordinator, then the node. Some
// nodes are drained first.
func (w *world) leave(h *host) {
	h.leaving = true
	if w.rnd.IntN(2) == 0 {
		w.hit["drained"]++
		h.step(shardcore.Leave{KeepRouting: true})
		w.after(time.Duration(w.rnd.Int64N(int64(10*time.Second))), func() {
			if !h.gone {
				w.goAway(h)
			}
		})
		return
	}
	w.goAway(h)
}

func (w *world) goAway(h *host) {
	w.hit["leave"]++
	h.step(shardcore.Leave{})
	var wait func()
	wait = func() {
		switch {
		case h.gone:
			return
		case h.stopped && h.status == identity.Up:
			h.status = identity.Leaving
			w.publish()
			h.step(shardcore.StopCoordinator{})
		case h.stopped && !h.hasCoordinator:
			w.remove(h)
			return
		}
		w.after(200*time.Millisecond, wait)
	}
	wait()
}

func (w *world) remove(h *host) {
	w.hit["removed"]++
	h.status = identity.Removed
	w.publish()
	w.after(3*time.Second, func() { h.gone = true })
}

// crash ends a node at once. The others remove it later.
func (w *world) crash(h *host) {
	w.hit["crash"]++
	h.gone, h.crashed = true, true
	for at, e := range h.entities {
		for _, nr := range e.mailbox {
			w.sentMessages[nr-1].lost = true
		}
		delete(w.live, at.entity)
	}
	w.after(2*time.Second, func() { w.remove(h) })
}

// down stops a region by force. The node is removed 10 seconds later.
func (w *world) down(h *host) {
	w.hit["down"]++
	h.forced = true
	h.step(shardcore.Stop{})
	w.after(10*time.Second, func() {
		if !h.stopped {
			w.fail("%v has not stopped: %s", h.node, h.text())
		}
		w.remove(h)
	})
}

// disturb starts a random fault or operator action.
func (w *world) disturb() {
	staying := w.staying()
	if len(staying) == 0 {
		return
	}
	h := staying[w.rnd.IntN(len(staying))]
	regions := len(slices.DeleteFunc(staying, func(h *host) bool { return h.proxy }))
	spare := regions > 2 || h.proxy
	switch n := w.rnd.IntN(300); {
	case n < 3 && len(w.hosts) < 9:
		w.join(w.rnd.IntN(4) == 0)
	case n == 3 && spare:
		w.leave(h)
	case n == 4 && spare && w.crashes:
		w.crash(h)
	case n == 5 && spare && w.crashes:
		w.down(h)
	case n == 6 && w.crashes && !h.proxy && !h.hasCoordinator: // a second coordinator for a short time
		w.hit["second"]++
		h.hasCoordinator = true
		h.step(shardcore.StartCoordinator{})
		w.after(w.delay()*5, func() { h.step(shardcore.StopCoordinator{Now: true}) })
	case n == 7:
		h.step(shardcore.Rebalance{})
	}
}

func (w *world) tick() {
	if w.now < sends {
		w.disturb()
		for range w.rnd.IntN(6) {
			w.write(w.hosts[w.rnd.IntN(len(w.hosts))])
		}
	}
	w.startCoordinator()
	for _, h := range slices.Clone(w.hosts) {
		h.tick()
	}
	if w.now < sends+settle {
		w.after(50*time.Millisecond, w.tick)
	}
}

// settled checks the final state.
func (w *world) settled() {
	for i, l := range w.sentMessages {
		lost := l.lost || slices.ContainsFunc(l.at, func(h *host) bool { return h.crashed })
		if l.results != 1 && (l.results != 0 || !lost) {
			w.fail("message %d of %v for %s has %d results, want 1", i+1, l.from.node, l.entity, l.results)
		}
		if l.results == 0 && !w.crashes {
			w.fail("message %d is lost", i+1)
		}
	}
	for _, h := range w.staying() {
		if n := h.m.Waiting(); n > 0 || !h.m.Registered() {
			w.fail("%v: %d messages wait and registered is %t at the end", h.node, n, h.m.Registered())
		}
		if coord, _ := h.m.Coordinator(); !w.find(coord).hasCoordinator {
			w.fail("%v is registered with a coordinator on %v, which does not run it", h.node, coord)
		}
	}
	if !w.remember {
		return
	}
	for s, ids := range w.store.entities {
		for id := range ids {
			if w.live[id] == nil {
				w.fail("%s of shard %d is remembered, but does not run", id, s)
			}
		}
	}
}

func simulate(t *testing.T, seed uint64, with mode, hit map[string]int) string {
	t.Helper()
	w := &world{
		t: t, rnd: rand.New(rand.NewPCG(seed, 5)), seed: seed, mode: with, remember: seed%2 == 1, last: map[string]uint64{}, live: map[string]*entity{},
		links: map[link]time.Duration{}, hit: hit,
	}
	w.store = store{
		w: w, fold: coordinator.NewFold(coordinator.State{}), known: map[shardcore.Shard]bool{}, entities: map[shardcore.Shard]map[string]bool{},
		owner: map[shardcore.Shard]owner{},
	}
	for i := range 3 + w.rnd.IntN(2) {
		w.join(i == 3)
	}
	w.tick()
	for w.due.Len() > 0 && w.now <= sends+settle {
		next := heap.Pop(&w.due).(task) //nolint:errcheck // the agenda has only tasks
		w.now = next.at
		next.do()
	}
	w.settled()
	return fmt.Sprint(len(w.sentMessages), w.seq, len(w.store.events), len(w.live))
}

// Planned moves lose, repeat and reorder no message. No entity runs twice, with any faults.
// Coordinators send only stored homes. At the end each message has reached its entity, was refused,
// or was lost with a crashed node.
func TestSimulation(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]mode{"planned": {}, "lossy": {lossy: true}, "at once": {atOnce: true}, "crashes": {lossy: true, crashes: true}, "at once with crashes": {lossy: true, atOnce: true, crashes: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hit := map[string]int{}
			for seed := *firstSeed; seed < *firstSeed+cmp.Or(*manySeeds, effort.Count[uint64](8, 20, 1000)); seed++ {
				first := simulate(t, seed, with, hit)
				if seed%10 == 0 {
					if again := simulate(t, seed, with, map[string]int{}); again != first {
						t.Fatalf("seed %d: two runs differ: %s and %s", seed, first, again)
					}
				}
			}
			for _, subject := range []string{"drained", "leave", "removed", "coordinator stopped", "region has stopped", "hand-off done", "start", "stop"} {
				if hit[subject] == 0 {
					t.Errorf("no run had the event %q", subject)
				}
			}
			t.Log(hit)
		})
	}
}
