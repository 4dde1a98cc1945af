// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/replication"
)

var errDisk = errors.New("the disk is full")

func durable(t *testing.T, n int) *world {
	t.Helper()
	return newWorld(t, 1, replication.Config{Durable: []string{"kept", "shard-*"}}, n)
}

// A durable key is on disk before its update is answered, here and where it is
// acknowledged; others never are.
func TestStoredBeforeAcknowledged(t *testing.T) {
	t.Parallel()
	w := durable(t, 3)
	for _, h := range w.hosts {
		h.held = true
	}
	a := w.hosts[0]
	one, most, read := a.add("shard-1", local, 1), a.add("shard-2", majority, 1), a.add("other", majority, 1)
	w.run(time.Second)
	if len(a.replies) != 1 || a.replies[read].Outcome != replication.Done {
		t.Errorf("answered before it is stored: %v", a.replies)
	}
	a.held = false
	w.run(time.Second)
	if a.replies[one].Outcome != replication.Done || len(a.replies) != 2 {
		t.Errorf("stored here: %v", a.replies)
	}
	w.hosts[1].held, w.hosts[2].held, a.held = false, false, true
	here := a.add("shard-2", majority, 1)
	w.run(500 * time.Millisecond)
	if r, found := a.replies[here]; found {
		t.Errorf("answered before it is stored here: %+v", r)
	}
	a.held = false
	if r := w.wait(a, here); r.Outcome != replication.Done {
		t.Errorf("stored here: %+v", r)
	}
	if r := w.wait(a, most); r.Outcome != replication.Done {
		t.Errorf("stored everywhere: %+v", r)
	}
	w.run(time.Second)
	for _, h := range w.hosts {
		if got := sortedKeys(h.disk); !slices.Equal(got, []string{"shard-1", "shard-2"}) {
			t.Errorf("%v has stored %v", h.self, got)
		}
	}
}

func TestStoreFails(t *testing.T) {
	t.Parallel()
	w := durable(t, 3)
	a := w.hosts[0]
	a.broken = errDisk
	for _, l := range []replication.Level{local, majority} {
		if r := w.wait(a, a.add("kept", l, 1)); r.Outcome != replication.StoreFailed || !errors.Is(r.Err, errDisk) {
			t.Errorf("%v: %+v", l.Kind, r)
		}
		if r := w.wait(a, a.del("shard-"+l.Kind.String(), l)); r.Outcome != replication.StoreFailed {
			t.Errorf("delete, %v: %+v", l.Kind, r)
		}
	}
	// It has changed nevertheless, and spreads.
	w.run(5 * time.Second)
	if got := w.hosts[1].show("kept"); got != "2" {
		t.Errorf("another one has %s", got)
	}
	// The disks of the others are needed as well.
	a.broken, w.hosts[1].broken, w.hosts[2].broken = nil, errDisk, errDisk
	if r := w.wait(a, a.add("kept", majority, 1)); r.Outcome != replication.StoreFailed || r.Answered != 1 {
		t.Errorf("others: %+v", r)
	}
	w.hosts[2].broken = nil
	if r := w.wait(a, a.add("kept", majority, 1)); r.Outcome != replication.Done || r.Answered != 2 {
		t.Errorf("one is enough: %+v", r)
	}
}

// A disk that does not answer is what a request fails of, whatever the others say; the node does not count as one that has taken part.
func TestDiskDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := durable(t, 3)
	a := w.hosts[0]
	a.held = true
	r := w.wait(a, a.add("kept", majority, 1))
	if r.Outcome != replication.StoreFailed || r.Err == nil || r.Answered != 2 || r.Required != 2 || len(r.Silent) != 0 {
		t.Errorf("the others have it: %+v", r)
	}
	w.cut = func(x, y *host) bool { return x != y }
	r = w.wait(a, a.add("kept", majority, 1))
	if r.Outcome != replication.TimedOut || r.Answered != 0 || r.Required != 2 || len(r.Silent) != 2 {
		t.Errorf("nobody has it: %+v", r)
	}
}

// What a read has found and merged is stored, also if it fails of what it has found elsewhere.
func TestReadStoresWhatItMerges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Durable: []string{"kept"}, GossipInterval: time.Hour}, 3)
	w.cut = func(x, y *host) bool { return x != y }
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	b.add("kept", local, 1)
	c.put("kept", local, "x")
	w.run(time.Second) // nobody hears of it
	w.cut = nil
	if r := w.wait(a, a.get("kept", all)); r.Outcome != replication.Failed {
		t.Fatalf("of two types: %+v", r)
	}
	a.sync()
	if found, there := a.show("kept") != "-", len(a.disk["kept"]) > 0; !found || !there {
		t.Errorf("it has it: %t, on disk: %t", found, there)
	}
}

// Whatever could not be written is tried once more at the end.
func TestLastTry(t *testing.T) {
	t.Parallel()
	w := durable(t, 1)
	a := w.hosts[0]
	a.broken = errDisk
	const keys = 2_500
	for i := range keys {
		a.add(fmt.Sprint("shard-", i), local, 1)
	}
	a.sync()
	a.broken = nil
	a.step(replication.Stop{})
	a.sync()
	if n := len(a.disk); n != keys {
		t.Errorf("%d of %d keys are on disk", n, keys)
	}
}

// A node that comes back has what it has stored, and serves nothing before it is
// loaded.
func TestLoad(t *testing.T) {
	t.Parallel()
	w := durable(t, 1)
	h := w.hosts[0]
	w.wait(h, h.add("kept", local, 7))
	w.wait(h, h.put("shard-1", local, "a", "b"))
	w.wait(h, h.del("shard-2", local))
	disk := maps.Clone(h.disk)
	h.dead = true
	cfg := w.cfg
	back := newWorld(t, 2, cfg, 0)
	later := back.start("n1", disk)
	if later.show("kept") != "7" || later.show("shard-1") != "a b" || later.show("shard-2") != "deleted" {
		t.Errorf("it has %s, %s, %s", later.show("kept"), later.show("shard-1"), later.show("shard-2"))
	}
	later.add("kept", local, 1)
	if later.show("kept") != "8" {
		t.Errorf("it counts on to %s", later.show("kept"))
	}
}

func TestRequestsWaitForLoading(t *testing.T) {
	t.Parallel()
	w := durable(t, 1)
	stored := w.hosts[0]
	w.wait(stored, stored.add("kept", local, 7))
	h := &host{w: w, self: node("x", 9), actor: stored.actor, replies: map[uint64]replication.Reply{}, values: map[string]replication.Change{}}
	cfg := w.cfg
	cfg.Self, cfg.Rand, cfg.MaxRequests = stored.actor, w.rnd, 2
	h.m = must(replication.New(cfg))
	get, add := h.get("kept", local), h.add("kept", local, 1)
	if busy := h.get("kept", local); h.replies[busy].Outcome != replication.Busy || len(h.replies) != 1 {
		t.Errorf("while loading: %v", h.replies)
	}
	if n := h.m.ReplicaCount(); n != 0 {
		t.Errorf("%d replicas while loading", n)
	}
	h.step(replication.Load{Key: "kept", Data: stored.disk["kept"]})
	h.step(replication.Loaded{})
	if r := h.replies[get]; r.Outcome != replication.Done || show(r.Value) != "7" {
		t.Errorf("get: %+v", r)
	}
	if len(h.storing) != 1 || h.show("kept") != "8" || h.replies[add].Outcome != 0 {
		t.Errorf("update: %+v, %d records", h.replies[add], len(h.storing))
	}
}

// To go on without a record would be to lose what was acknowledged.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	for what, data := range map[string][]byte{"nothing": {}, "garbage": {1, 2, 3}, "another version": {9, 0, 0, 0}, "no value": {1, 0, 0, 1, 9, 0}} {
		w := durable(t, 0)
		h := w.start("n1", map[string][]byte{"kept": data})
		if !h.stopped || len(h.notes) != 1 || h.notes[0].Kind != replication.NoteLoad {
			t.Errorf("%s: stopped: %t, %v", what, h.stopped, h.notes)
		}
	}
}
