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
	manySeeds = flag.Uint64("shards.seeds", 0, "how many seeds; 0 is the usual number")
)

// well are those nodes that stay.
func (w *world) well() []*host {
	return slices.DeleteFunc(slices.Clone(w.hosts), func(h *host) bool { return h.gone || h.leaving || h.forced || h.status != identity.Up })
}

// appoint sees to it that the oldest node that can have the coordinator has it, once nobody else
// does.
func (w *world) appoint() {
	for _, h := range w.hosts {
		if h.appointed && h.status != identity.Removed { // a crashed one has it until it is removed
			return
		}
	}
	for _, h := range w.hosts {
		if !h.proxy && !h.gone && h.status == identity.Up && !h.forced {
			w.hit["appointed"]++
			h.appointed = true
			h.step(shardcore.StartCoordinator{})
			return
		}
	}
}

// leave takes a node out in good order: its shards, then its coordinator, then itself. Some stay
// for a while without shards.
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
		case h.stopped && !h.appointed:
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

// crash ends a node without a word. Others notice later.
func (w *world) crash(h *host) {
	w.hit["crash"]++
	h.gone, h.crashed = true, true
	for at, e := range h.entities {
		for _, nr := range e.mailbox {
			w.letters[nr-1].lost = true
		}
		delete(w.live, at.entity)
	}
	w.after(2*time.Second, func() { w.remove(h) })
}

// down ends a node by force: it stops by itself, and is removed when that is done.
func (w *world) down(h *host) {
	w.hit["down"]++
	h.forced = true
	h.step(shardcore.Stop{})
	w.after(10*time.Second, func() {
		if !h.stopped {
			w.fail("%v is still running: %s", h.node, h.text())
		}
		w.remove(h)
	})
}

// disturb is what happens by itself.
func (w *world) disturb() {
	well := w.well()
	if len(well) == 0 {
		return
	}
	h := well[w.rnd.IntN(len(well))]
	regions := len(slices.DeleteFunc(well, func(h *host) bool { return h.proxy }))
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
	case n == 6 && w.crashes && !h.proxy && !h.appointed: // two at a time, for a while
		w.hit["second"]++
		h.appointed = true
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
	w.appoint()
	for _, h := range slices.Clone(w.hosts) {
		h.tick()
	}
	if w.now < sends+settle {
		w.after(50*time.Millisecond, w.tick)
	}
}

// settled checks that all is well in the end.
func (w *world) settled() {
	for i, l := range w.letters {
		lost := l.lost || slices.ContainsFunc(l.at, func(h *host) bool { return h.crashed })
		if l.fate != 1 && (l.fate != 0 || !lost) {
			w.fail("message %d of %v for %s has reached %d ends", i+1, l.from.node, l.entity, l.fate)
		}
		if l.fate == 0 && !w.crashes {
			w.fail("message %d is lost", i+1)
		}
	}
	for _, h := range w.well() {
		if n := h.m.Waiting(); n > 0 || !h.m.Registered() {
			w.fail("%v: %d messages wait, registered: %t", h.node, n, h.m.Registered())
		}
		if boss, _ := h.m.Coordinator(); !w.find(boss).appointed {
			w.fail("%v takes %v for the one with the coordinator", h.node, boss)
		}
	}
	if !w.remember {
		return
	}
	for s, ids := range w.store.entities {
		for id := range ids {
			if w.live[id] == nil {
				w.fail("%s of shard %d is remembered, and does not run", id, s)
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
		next := heap.Pop(&w.due).(task) //nolint:errcheck // what else is in it
		w.now = next.at
		next.do()
	}
	w.settled()
	return fmt.Sprint(len(w.letters), w.seq, len(w.store.events), len(w.live))
}

// On planned moves nothing is lost, repeated or overtaken, and no entity runs twice, whatever
// fails. Coordinators say what is stored. In the end all messages have reached somebody, or their
// senders know.
func TestSimulation(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]mode{"planned": {}, "lossy": {lossy: true}, "crashes": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hit := map[string]int{}
			for seed := *firstSeed; seed < *firstSeed+cmp.Or(*manySeeds, effort.Count[uint64](8, 20, 1000)); seed++ {
				first := simulate(t, seed, with, hit)
				if seed%10 == 0 {
					if again := simulate(t, seed, with, map[string]int{}); again != first {
						t.Fatalf("seed %d: %s, and again %s", seed, first, again)
					}
				}
			}
			for _, subject := range []string{"drained", "leave", "removed", "dismissed", "region has stopped", "hand-off done", "start", "stop"} {
				if hit[subject] == 0 {
					t.Errorf("%s never happened", subject)
				}
			}
			t.Log(hit)
		})
	}
}
