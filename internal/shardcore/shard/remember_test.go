// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/sharding/passivation"
)

func remembering() shard.Config { return shard.Config{Remember: true} }

func TestStartIsStoredFirst(t *testing.T) {
	t.Parallel()
	d := drive(t, remembering())
	d.step(loaded(), "")
	d.step(to("a", 1), "store1 +[a] -[]")
	d.step(to("b", 2), "") // one update at a time
	d.step(to("a", 3), "")
	d.step(to("c", 4), "")
	d.step(shard.Updated{ID: 2}, "")
	d.step(shard.Updated{ID: 1}, "store2 +[b c] -[], +a1, a1:1, a1:3")
	d.step(shard.Updated{ID: 1}, "")
	d.step(shard.Updated{ID: 2}, "+b2, b2:2, +c3, c3:4")
}

func TestPassivationIsStored(t *testing.T) {
	t.Parallel()
	d := drive(t, remembering())
	d.step(loaded("a", "b"), "+a1, +b2")
	d.step(passivate("a", 1), "-a1")
	d.step(passivate("b", 2), "-b2")
	d.step(ended("a", 1), "store1 +[] -[a]")
	d.step(ended("b", 2), "")
	d.step(to("a", 1), "")
	d.step(shard.Updated{ID: 1}, "store2 +[a] -[b]") // a message has arrived for the entity
	if d.m.Len() != 2 {
		t.Errorf("Len() = %d, want 2", d.m.Len())
	}
	d.step(shard.Updated{ID: 2}, "+a3, a3:1")
	if d.m.Len() != 1 {
		t.Errorf("Len() = %d, want 1", d.m.Len())
	}
}

func TestRememberedEntitiesAreNotPassivated(t *testing.T) {
	t.Parallel()
	d := drive(t, shard.Config{Remember: true, Passivation: passivation.Settings{IdleTimeout: time.Second}})
	d.step(loaded("a"), "+a1")
	d.step(to("a", 1), "a1:1")
	d.tick(time.Hour, "")
}

func TestMessagesWaitForTheLoad(t *testing.T) {
	t.Parallel()
	cfg := remembering()
	cfg.BufferSize = 3
	d := drive(t, cfg)
	d.step(to("b", 1), "")
	d.step(to("c", 2), "")
	d.step(to("b", 3), "")
	d.step(to("c", 4), "x4 buffer full")
	d.step(loaded("a", "b", "a"), "store1 +[c] -[], +b1, b1:1, b1:3, +a2")
	d.step(loaded("z"), "")
	d.step(shard.LoadFailed{}, "")
}

func TestLoadFails(t *testing.T) {
	t.Parallel()
	d := drive(t, remembering())
	d.step(to("b", 1), "")
	d.step(shard.LoadFailed{}, "x1 shard failed, done: shard failed")
	d.step(loaded("a"), "")
}

func TestStoreFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*driver, string){
		"failed": func(d *driver, want string) { d.step(shard.UpdateFailed{ID: 1}, want) },
		"late":   func(d *driver, want string) { d.tick(5*time.Second, want) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := drive(t, remembering())
			d.step(loaded("a"), "+a1")
			d.step(to("b", 1), "store1 +[b] -[]")
			d.step(shard.UpdateFailed{ID: 2}, "")
			d.tick(time.Second, "")
			fail(d, "x1 shard failed, !a1")
			d.step(shard.Updated{ID: 1}, "")
			d.step(ended("a", 1), "done: shard failed")
		})
	}
}

func TestUnexpectedEnd(t *testing.T) {
	t.Parallel()
	cfg := remembering()
	cfg.RestartBackoff = 5 * time.Second
	d := drive(t, cfg)
	d.step(loaded("a", "b"), "+a1, +b2")
	d.step(ended("a", 1), "")
	d.step(ended("b", 2), "")
	d.tick(4*time.Second, "")
	d.step(to("b", 1), "+b3, b3:1") // a message starts the entity without the pause
	d.tick(time.Second, "+a4")
	d.tick(time.Hour, "")
}

func TestRecoveryOnRequest(t *testing.T) {
	t.Parallel()
	cfg := remembering()
	cfg.RecoverOnRequest = true
	d := drive(t, cfg)
	d.step(loaded("a", "b", "c", "d", "e"), "")
	d.step(shard.Recover{Number: 2}, "+a1, +b2")
	d.step(to("c", 1), "+c3, c3:1")
	d.step(shard.Recover{Number: 2}, "+d4, +e5") // an entity that a message has started does not count
	d.step(shard.Recover{Number: 2}, "")
}

// A hand-off waits until the current update is stored, and until the entities that need this update
// have started, received their messages and ended. Remembered entities that were not started yet
// start on the next home.
func TestHandOffOfRemembered(t *testing.T) {
	t.Parallel()
	cfg := remembering()
	cfg.Starts = 2
	d := drive(t, cfg)
	d.step(loaded("a", "b", "c"), "+a1, +b2")
	d.step(passivate("a", 1), "-a1")
	d.step(to("x", 1), "store1 +[x] -[]")
	d.step(shard.HandOff{}, "-b2")
	d.step(ended("a", 1), "")
	d.step(shard.Updated{ID: 1}, "store2 +[] -[a], +x3, x3:1, -x3")
	d.step(ended("b", 2), "")
	d.step(ended("x", 3), "")
	d.step(shard.Updated{ID: 2}, "done: handed off")
}

// An entity that ended unexpectedly and waits for its restart is not restarted by a hand-off.
func TestHandOffStartsNoRestingEntities(t *testing.T) {
	t.Parallel()
	d := drive(t, remembering())
	d.step(loaded("a"), "+a1")
	d.step(ended("a", 1), "")
	d.step(shard.HandOff{}, "done: handed off")
	d.tick(time.Hour, "")
}

func TestHandOffWhileLoading(t *testing.T) {
	t.Parallel()
	d := drive(t, remembering())
	d.step(shard.HandOff{}, "done: handed off")
	d = drive(t, remembering())
	d.step(to("a", 1), "")
	d.step(shard.HandOff{}, "")
	d.step(to("a", 2), "x2 handed off")
	d.step(loaded("a", "b"), "+a1, a1:1, -a1")
	d.step(ended("a", 1), "done: handed off")
	d = drive(t, remembering())
	d.step(to("a", 1), "")
	d.step(shard.HandOff{}, "")
	d.tick(55*time.Second, "x1 handed off, done: handed off")
}

// The stop of a passivated entity is stored before its shard moves.
func TestHandOffOfRememberedWaitsForTheStore(t *testing.T) {
	t.Parallel()
	d := drive(t, remembering())
	d.step(loaded("a"), "+a1")
	d.step(passivate("a", 1), "-a1")
	d.step(ended("a", 1), "store1 +[] -[a]")
	d.step(shard.HandOff{}, "")
	d.step(shard.Updated{ID: 1}, "done: handed off")
}

// An entity starts without another message while it waits for its recovery, for the store, and for the
// end of its back-off, but not while it runs, and not when its stop is being stored.
func TestStartsWithoutAMessage(t *testing.T) {
	t.Parallel()
	cfg := remembering()
	cfg.RecoverOnRequest, cfg.RestartBackoff = true, 5*time.Second
	d := drive(t, cfg)
	want := func(at string, want bool) {
		t.Helper()
		if got := d.m.Starts("a"); got != want {
			t.Errorf("%s: Starts() = %t, want %t", at, got, want)
		}
	}
	want("unknown", false)
	d.step(loaded(), "")
	d.step(to("a", 1), "store1 +[a] -[]")
	want("while its start is being stored", true)
	d.step(shard.Updated{ID: 1}, "+a1, a1:1")
	want("running", false)
	d.step(ended("a", 1), "")
	want("in a back-off", true)
	d.tick(5*time.Second, "+a2")
	d.step(passivate("a", 2), "-a2")
	d.step(ended("a", 2), "store2 +[] -[a]")
	want("while its stop is being stored", false)
	d.step(to("a", 2), "")
	want("while its stop is being stored, with a message", true)
	d = drive(t, cfg)
	d.step(loaded("a"), "")
	want("remembered", true)
}
