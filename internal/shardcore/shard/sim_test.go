// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/sharding/passivation"
)

// incarnation is a running entity with its mailbox.
type incarnation struct {
	n       uint64
	mailbox []uint64
	stop    bool // stops after its mailbox is empty
	idle    bool // the entity may stay
	killed  bool
	ready   bool
}

// world simulates the entities of a shard and the store of remembered entities. The entities start,
// handle messages, request passivation, fail and stop after random times.
type world struct {
	t          *testing.T
	rnd        *rand.Rand
	seed       uint64
	m          *shard.Machine
	now        time.Duration
	cfg        shard.Config
	live       map[string]*incarnation
	last       map[string]uint64 // last token that was handled
	results    map[uint64]int
	sent       uint64
	stored     map[string]bool
	update     *shard.Update
	load       bool
	done       shard.Reason
	handingOff bool
	unexpected bool
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d, %v: %s", w.seed, w.now, fmt.Sprintf(format, args...))
}

func (w *world) perform(out shard.Effects) {
	w.t.Helper()
	for _, r := range out.Refused {
		w.results[r.Token]++
	}
	w.load = w.load || out.Load
	if out.Update != nil {
		if w.update != nil {
			w.fail("an update is requested while another one is being stored")
		}
		w.update = out.Update
	}
	starting := 0
	for _, a := range out.Actions {
		at := w.live[a.Entity]
		switch {
		case a.Kind == shard.Start && at != nil:
			w.fail("%s runs twice", a.Entity)
		case a.Kind == shard.Start:
			if w.cfg.Remember && !w.stored[a.Entity] {
				w.fail("%s starts before its start is stored", a.Entity)
			}
			w.live[a.Entity] = &incarnation{n: a.Incarnation}
		case at == nil || at.n != a.Incarnation:
			w.fail("%v of %s %d, which does not run", a.Kind, a.Entity, a.Incarnation)
		case a.Kind == shard.Pass && at.stop:
			w.fail("%s gets a message after its stop", a.Entity)
		case a.Kind == shard.Pass:
			at.mailbox = append(at.mailbox, a.Token)
		case a.Kind == shard.Stop:
			at.stop, at.idle = true, a.Idle
		case a.Kind == shard.Kill:
			at.killed = true
		}
	}
	for _, at := range w.live {
		if !at.ready {
			starting++
		}
	}
	if starting > w.cfg.Starts {
		w.fail("%d entities are starting, want at most %d", starting, w.cfg.Starts)
	}
	if out.Done != 0 {
		if w.done = out.Done; len(w.live) > 0 {
			w.fail("done although %d entities run", len(w.live))
		}
	}
}

func (w *world) step(in shard.Input) { w.perform(w.m.Step(w.now, in)) }

func (w *world) some() (string, *incarnation) {
	ids := slices.Sorted(maps.Keys(w.live))
	if len(ids) == 0 {
		return "", nil
	}
	id := ids[w.rnd.IntN(len(ids))]
	return id, w.live[id]
}

// end ends an incarnation. The messages in its mailbox are lost if the end was not requested.
func (w *world) end(id string, at *incarnation) {
	for _, token := range at.mailbox {
		w.results[token]++
	}
	delete(w.live, id)
	w.step(shard.Ended{Entity: id, Incarnation: at.n})
}

func (w *world) work() {
	id, at := w.some()
	switch {
	case at == nil:
	case at.killed:
		w.end(id, at)
	case !at.ready:
		at.ready = true
		w.step(shard.Started{Entity: id, Incarnation: at.n})
	case len(at.mailbox) > 0:
		token := at.mailbox[0]
		at.mailbox = at.mailbox[1:]
		if token <= w.last[id] {
			w.fail("%s gets message %d after message %d", id, token, w.last[id])
		}
		w.last[id] = token
		w.results[token]++
	case at.stop && at.idle && w.rnd.IntN(2) == 0:
		at.stop = false
		w.step(shard.Busy{Entity: id, Incarnation: at.n})
	case at.stop:
		w.end(id, at)
	case w.rnd.IntN(4) == 0:
		w.step(shard.Passivate{Entity: id, Incarnation: at.n})
	case w.unexpected && w.rnd.IntN(4) == 0 && !w.handingOff:
		w.end(id, at)
	}
}

func (w *world) answer() {
	switch {
	case w.load:
		w.load = false
		w.step(shard.Loaded{Entities: slices.Sorted(maps.Keys(w.stored))})
	case w.update != nil:
		u := w.update
		w.update = nil
		for _, id := range u.Started {
			w.stored[id] = true
		}
		for _, id := range u.Stopped {
			if w.live[id] != nil {
				w.fail("%s is stored as stopped although it runs", id)
			}
			delete(w.stored, id)
		}
		w.step(shard.Updated{ID: u.ID})
	}
}

func simulate(t *testing.T, seed uint64) (string, int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 7))
	w := &world{
		t: t, rnd: rnd, seed: seed, live: map[string]*incarnation{}, last: map[string]uint64{}, results: map[uint64]int{}, stored: map[string]bool{},
		cfg: shard.Config{
			Remember: rnd.IntN(2) == 0, Starts: 1 + rnd.IntN(5), StopTimeout: time.Hour, UpdateTimeout: time.Hour, RecoverOnRequest: rnd.IntN(3) > 0,
			Passivation: passivation.Settings{IdleTimeout: 3 * time.Second, Limit: 10}, Entities: 1 + rnd.IntN(6), RestartBackoff: time.Second,
		},
		unexpected: rnd.IntN(2) == 0,
	}
	for i := range rnd.IntN(8) {
		if w.cfg.Remember {
			w.stored[fmt.Sprint("e", i)] = true
		}
	}
	m, err := shard.New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.m = m
	w.perform(m.Open(0))
	messages := 100 + rnd.IntN(200)
	for range 100_000 {
		if w.done != 0 {
			break
		}
		switch n := rnd.IntN(20); {
		case n < 8 && int(w.sent) < messages:
			w.sent++
			w.step(shard.Deliver{Entity: fmt.Sprint("e", rnd.IntN(10)), Token: w.sent})
		case n < 15:
			w.work()
		case n < 17:
			w.answer()
		case n == 17 && int(w.sent) == messages && !w.handingOff:
			w.handingOff = true
			w.step(shard.HandOff{})
		default:
			w.step(shard.Recover{Number: 1})
			w.now += 100 * time.Millisecond
			if w.now >= m.Next() {
				w.perform(m.Tick(w.now))
			}
		}
	}
	if w.done != shard.HandedOff {
		w.fail("not done: Running() = %v, %d messages wait", m.Running(), m.Buffered())
	}
	for token := uint64(1); token <= w.sent; token++ {
		if w.results[token] != 1 {
			w.fail("message %d has %d results, want 1", token, w.results[token])
		}
	}
	return fmt.Sprint(w.now, w.last, w.stored), len(w.last)
}

// In any order of events no entity runs twice, and each message reaches its entity once and in
// order. Starts are stored before an entity runs, stops after its end. A hand-off completes.
func TestSimulation(t *testing.T) {
	t.Parallel()
	entities := 0
	for seed := range uint64(400) {
		first, n := simulate(t, seed)
		if again, _ := simulate(t, seed); again != first {
			t.Fatalf("seed %d: two runs differ: %s and %s", seed, first, again)
		}
		entities += n
	}
	if entities < 1000 {
		t.Errorf("%d entities received messages, want at least 1000", entities)
	}
}
