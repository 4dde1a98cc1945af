// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/sharding/passivation"
)

func TestEntitiesStartOnDemand(t *testing.T) {
	t.Parallel()
	d := drive(t, off())
	d.step(to("a", 1), "+a1, a1:1")
	d.step(to("a", 2), "a1:2")
	d.step(to("b", 3), "+b2, b2:3")
	if got := d.m.Running(); !slices.Equal(got, []string{"a", "b"}) || d.m.Len() != 2 {
		t.Errorf("Running() = %v, Len() = %d, want [a b] and 2", got, d.m.Len())
	}
	d.step(ended("a", 2), "") // another incarnation
	d.step(ended("a", 1), "")
	d.step(to("a", 4), "+a3, a3:4")
	d.step(ended("a", 1), "") // late
	d.step(to("a", 5), "a3:5")
}

func TestPassivationLosesNothing(t *testing.T) {
	t.Parallel()
	d := drive(t, off())
	d.step(to("a", 1), "+a1, a1:1")
	d.step(passivate("a", 2), "")
	d.step(passivate("a", 1), "-a1")
	d.step(passivate("a", 1), "")
	d.step(to("a", 2), "")
	d.step(to("a", 3), "")
	if d.m.Buffered() != 2 {
		t.Errorf("%d messages wait, want 2", d.m.Buffered())
	}
	d.step(ended("a", 1), "+a2, a2:2, a2:3")
	d.step(passivate("a", 2), "-a2")
	d.step(ended("a", 2), "")
	if d.m.Len() != 0 || d.m.Buffered() != 0 {
		t.Errorf("Len() = %d, %d messages wait, want 0 and 0", d.m.Len(), d.m.Buffered())
	}
}

func TestIdleEntitiesArePassivated(t *testing.T) {
	t.Parallel()
	d := drive(t, shard.Config{Passivation: passivation.Settings{IdleTimeout: 10 * time.Second}})
	d.step(to("a", 1), "+a1, a1:1")
	d.tick(6*time.Second, "")
	d.step(to("b", 2), "+b2, b2:2")
	d.tick(6*time.Second, "-a1")
	d.tick(6*time.Second, "-b2")
}

func TestLimitOfEntities(t *testing.T) {
	t.Parallel()
	cfg := shard.Config{Passivation: passivation.Settings{Limit: 100}, Entities: 2}
	d := drive(t, cfg)
	d.step(to("a", 1), "+a1, a1:1")
	d.step(to("b", 2), "+b2, b2:2")
	d.step(to("c", 3), "+c3, c3:3, -a1")
	d.step(shard.Limits{Entities: 1, Starts: 10}, "-b2")
	d.step(shard.Limits{Starts: 10}, "-c3")
	d.step(to("d", 4), "+d4, d4:4, -d4") // with a limit of 0, an entity stops right after its message
}

func TestStartsInFlightAreLimited(t *testing.T) {
	t.Parallel()
	cfg := off()
	cfg.Starts = 1
	d := drive(t, cfg)
	d.step(to("a", 1), "+a1, a1:1")
	d.step(to("b", 2), "")
	d.step(to("b", 3), "")
	d.step(to("a", 4), "a1:4")
	d.step(to("c", 5), "")
	d.step(started("a", 1), "+b2, b2:2, b2:3")
	d.step(started("a", 1), "")
	d.step(ended("b", 2), "+c3, c3:5") // a start that failed frees its slot too
	d.step(to("d", 6), "")
	d.step(shard.Limits{Starts: 2}, "+d4, d4:6")
}

func TestBufferIsLimited(t *testing.T) {
	t.Parallel()
	cfg := off()
	cfg.BufferSize = 2
	d := drive(t, cfg)
	d.step(to("a", 1), "+a1, a1:1")
	d.step(to("b", 2), "+b2, b2:2")
	d.step(passivate("a", 1), "-a1")
	d.step(passivate("b", 2), "-b2")
	d.step(to("a", 3), "")
	d.step(to("b", 4), "")
	d.step(to("a", 5), "x5 buffer full")
	d.step(ended("a", 1), "+a3, a3:3")
	d.step(to("b", 6), "")
}

func TestHandOffStopsAfterQueuedMessages(t *testing.T) {
	t.Parallel()
	cfg := off()
	cfg.Starts = 3
	d := drive(t, cfg)
	d.step(to("a", 1), "+a1, a1:1")
	d.step(to("b", 2), "+b2, b2:2")
	d.step(to("c", 3), "+c3, c3:3")
	d.step(to("d", 4), "") // waits for a slot
	d.step(passivate("a", 1), "-a1")
	d.step(passivate("b", 2), "-b2")
	d.step(to("a", 5), "")
	d.step(shard.HandOff{}, "-c3")
	d.step(shard.HandOff{}, "")
	d.step(to("a", 6), "x6 handed off")
	d.step(ended("b", 2), "+d4, d4:4, -d4")
	d.step(ended("c", 3), "")
	d.step(ended("a", 1), "+a5, a5:5, -a5")
	d.step(ended("d", 4), "")
	d.step(ended("a", 5), "done: handed off")
	d.step(to("a", 7), "x7 handed off")
	d.tick(time.Hour, "")
}

func TestHandOffOfAnEmptyShard(t *testing.T) {
	t.Parallel()
	d := drive(t, off())
	d.step(shard.HandOff{}, "done: handed off")
}

func TestHandOffEndsByForce(t *testing.T) {
	t.Parallel()
	cfg := off()
	cfg.StopTimeout = 5 * time.Second
	d := drive(t, cfg)
	d.step(to("a", 1), "+a1, a1:1")
	d.step(to("b", 2), "+b2, b2:2")
	d.step(passivate("a", 1), "-a1")
	d.step(to("a", 3), "")
	d.step(shard.HandOff{}, "-b2")
	d.tick(4*time.Second, "")
	d.tick(time.Second, "x3 handed off, !a1, !b2")
	d.tick(time.Hour, "")
	d.step(ended("a", 1), "")
	d.step(ended("b", 2), "done: handed off")
}

func TestAbort(t *testing.T) {
	t.Parallel()
	d := drive(t, off())
	d.step(to("a", 1), "+a1, a1:1")
	d.step(shard.Abort{}, "!a1")
	d.step(shard.HandOff{}, "")
	d.step(to("b", 2), "x2 shard failed")
	d.step(ended("a", 1), "done: shard failed")
}

func TestInvalidConfigsNameTheField(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]shard.Config{
		"BufferSize":     {BufferSize: shard.MaxBuffer + 1},
		"Starts":         {Starts: -1},
		"Entities":       {Entities: -1},
		"RestartBackoff": {RestartBackoff: -1},
		"StopTimeout":    {StopTimeout: -1},
		"UpdateTimeout":  {UpdateTimeout: -1},
		"LeaseRetry":     {LeaseRetry: -1},
	} {
		if _, err := shard.New(cfg); !errors.Is(err, shard.ErrInvalid) || !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("%s: %v, want ErrInvalid with the field", field, err)
		}
	}
	_, err := shard.New(shard.Config{Passivation: passivation.Settings{Limit: -1}})
	if !errors.Is(err, passivation.ErrInvalid) || !strings.Contains(err.Error(), "Config.Passivation") {
		t.Errorf("got error %v, want passivation.ErrInvalid with Config.Passivation", err)
	}
}

// An idle entity that is busy stays and receives the messages that arrived since the stop request.
// It is requested to stop again later.
func TestBusyEntities(t *testing.T) {
	t.Parallel()
	cfg := shard.Config{Passivation: passivation.Settings{IdleTimeout: time.Minute, IdleInterval: time.Minute}}
	d := drive(t, cfg)
	busy := shard.Busy{Entity: "a", Incarnation: 1}
	d.step(to("a", 1), "+a1, a1:1")
	d.step(busy, "")
	d.tick(2*time.Minute, "-a1")
	d.step(busy, "")
	d.tick(29*time.Second, "")
	d.tick(time.Second, "-a1")
	d.step(to("a", 2), "")
	d.step(to("a", 3), "")
	d.step(busy, "a1:2, a1:3")
	d.tick(31*time.Second, "") // the entity is not idle
	d.tick(2*time.Minute, "-a1")
	d.step(to("a", 4), "")
	d.step(shard.HandOff{}, "")
	d.step(busy, "a1:4, -a1")
	d.step(busy, "")
	d.step(ended("a", 1), "done: handed off")

	d = drive(t, cfg)
	d.step(to("a", 1), "+a1, a1:1")
	d.step(passivate("a", 1), "-a1") // the entity requests its stop
	d.step(busy, "")
	d.step(to("a", 2), "")
	d.step(ended("a", 1), "+a2, a2:2")

	d = drive(t, cfg)
	d.step(to("a", 1), "+a1, a1:1")
	d.tick(2*time.Minute, "-a1")
	d.step(busy, "")
	d.step(ended("a", 1), "")
	d.step(to("a", 2), "+a2, a2:2")
	d.tick(31*time.Second, "") // a new incarnation is not requested to stop
	d.tick(time.Minute, "-a2")
}
