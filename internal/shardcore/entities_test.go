// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// place identifies an incarnation of an entity.
type place struct {
	shardcore.ShardRun

	entity      string
	incarnation uint64
}

// entity is an incarnation with its mailbox. It handles messages after random times.
type entity struct {
	h       *host
	at      place
	mailbox []uint64
	stop    bool // requested; takes effect after the messages in the mailbox
	killed  bool
	ended   bool
}

func (h *host) act(a shardcore.Action) {
	w := h.w
	at := place{a.ShardRun, a.Entity, a.Incarnation}
	e := h.entities[at]
	switch {
	case a.Kind == shard.Start:
		if other := w.live[a.Entity]; other != nil {
			w.fail("%s runs on %v and starts on %v", a.Entity, other.h.node, h.node)
		}
		if w.remember && !w.store.entities[a.Shard][a.Entity] {
			w.fail("%s starts before its start is stored", a.Entity)
		}
		e = &entity{h: h, at: at}
		h.entities[at], h.runs[a.ShardRun], w.live[a.Entity] = e, true, e
		w.hit["start"]++
		w.after(w.delay(), func() {
			if e.runs() {
				h.step(shardcore.ShardInput{ShardRun: at.ShardRun, Input: shard.Started{Entity: at.entity, Incarnation: at.incarnation}})
				e.work()
			}
		})
	case e == nil:
		w.fail("%v of %s %d on %v, which does not run", a.Kind, a.Entity, a.Incarnation, h.node)
	case a.Kind == shard.Pass && (e.stop || e.killed):
		w.fail("%s gets a message after its stop", a.Entity)
	case a.Kind == shard.Pass:
		e.mailbox = append(e.mailbox, w.number(a.Message))
	case a.Kind == shard.Stop:
		w.hit["stop"]++
		e.stop = true
	case a.Kind == shard.Kill:
		w.hit["kill"]++
		e.killed = true
	}
}

func (e *entity) runs() bool { return !e.ended && !e.h.gone }

// work handles messages, or ends the entity, and schedules the next call.
func (e *entity) work() {
	w := e.h.w
	if !e.runs() {
		return
	}
	switch {
	case e.killed, w.odds(200):
		e.end()
		return
	case len(e.mailbox) > 0:
		nr := e.mailbox[0]
		e.mailbox = e.mailbox[1:]
		l := w.sentMessages[nr-1]
		from := fmt.Sprint(l.from.node, l.entity)
		if l.entity != e.at.entity || nr <= w.last[from] {
			w.fail("%s gets message %d of %s for %s after message %d", e.at.entity, nr, from, l.entity, w.last[from])
		}
		w.last[from] = nr
		l.results++
	case e.stop:
		e.end()
		return
	case w.rnd.IntN(40) == 0:
		e.h.step(shardcore.ShardInput{ShardRun: e.at.ShardRun, Input: shard.Passivate{Entity: e.at.entity, Incarnation: e.at.incarnation}})
	}
	w.after(w.delay(), e.work)
}

// end ends an incarnation. The messages in its mailbox are lost.
func (e *entity) end() {
	for _, nr := range e.mailbox {
		e.h.w.sentMessages[nr-1].lost = true
	}
	e.ended = true
	delete(e.h.entities, e.at)
	delete(e.h.w.live, e.at.entity)
	e.h.step(shardcore.ShardInput{ShardRun: e.at.ShardRun, Input: shard.Ended{Entity: e.at.entity, Incarnation: e.at.incarnation}})
}

func (h *host) ended(r shardcore.ShardRun) {
	delete(h.runs, r)
	for at := range h.entities {
		if at.ShardRun == r {
			h.w.fail("%v of %v has ended, but %s still runs", r, h.node, at.entity)
		}
	}
}

// text returns the running entities of a node.
func (h *host) text() string {
	var running []string
	for at := range h.entities {
		running = append(running, at.entity)
	}
	slices.Sort(running)
	return h.node.String() + ": " + strings.Join(running, " ")
}

// RecoverNumber limits the starts of remembered entities of all shards together, and shards take
// turns.
func TestRecoveryRateIsSharedByShards(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Region.Remember = true
	cfg.Shard, cfg.RecoverNumber, cfg.RecoverInterval = shard.Config{}, 3, time.Second
	m, err := shardcore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, m: m}
	d.setMembers(identity.Up, "b", "a")
	d.receive(coordinator.Message{Kind: coordinator.RegisterAck})
	out := d.receive(coordinator.Message{Kind: coordinator.Host, Round: 1, Shards: []shardcore.Shard{1, 2, 3, 4, 5}})
	if len(out.Remember) != 5 {
		t.Fatalf("%d of 5 shards are loaded, want all", len(out.Remember))
	}
	started := map[shardcore.Shard]int{}
	count := func(out shardcore.Effects) (n int) {
		for _, a := range out.Actions {
			if a.Kind == shard.Start {
				started[a.Shard]++
				n++
			}
		}
		return n
	}
	n := 0
	for i, r := range out.Remember {
		n += count(d.step(shardcore.ShardInput{ShardRun: r.ShardRun, Input: shard.Loaded{Entities: []string{fmt.Sprint(i, "a"), fmt.Sprint(i, "b")}}}))
	}
	for n < 10 {
		at := d.m.Next()
		n += count(d.m.Tick(at))
		if most := 3 * (1 + int(at/time.Second)); n > most {
			t.Fatalf("%v: %d entities have started, want at most %d", at, n, most)
		}
		if at > 10*time.Second {
			t.Fatalf("%d of 10 entities have started after 10 s, want all", n)
		}
		if n == 6 && len(started) != 5 {
			t.Errorf("%d of 5 shards had a turn: %v, want all", len(started), started)
		}
	}
}
