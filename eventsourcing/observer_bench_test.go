// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
)

// switchOn persists an event: an entity without events does not stay in memory.
var switchOn = do{f: func(ctx *lampCtx, c do) lampDecision { return ctx.Persist(switched{}).Reply(0) }}

// switchOff is a command whose handler allocates no memory.
var switchOff = do{f: func(ctx *lampCtx, c do) lampDecision { return ctx.Reply(0) }}

// BenchmarkObserver measures the cost of an observer. The empty observer must cost nothing.
func BenchmarkObserver(b *testing.B) {
	for _, bench := range []struct {
		name     string
		observer eventsourcing.Observer
	}{
		{"none", eventsourcing.Observer{}},
		{"command", eventsourcing.Observer{Command: func(eventsourcing.CommandInfo) {}}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l := openLamps(b, eventsourcing.Config{Observer: bench.observer}, nil)
			ref, ctx := l.Ref("1"), context.Background()
			l.ask(b, ctx, "1", switchOn)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := eventsourcing.Ask(ctx, ref, switchOff); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

//nolint:paralleltest // it counts the allocations of the whole process
func TestEmptyObserverDoesNotAllocate(t *testing.T) {
	limit := 0.0
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		limit = 2 // with the race detector a sync.Pool drops some objects
	}
	l := openLamps(t, eventsourcing.Config{}, nil)
	ref, ctx := l.Ref("1"), context.Background()
	var command eventsourcing.Request[lamp, int] = switchOff
	l.ask(t, ctx, "1", switchOn)
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := eventsourcing.Ask(ctx, ref, command); err != nil {
			t.Fatal(err)
		}
	}); n > limit {
		t.Errorf("an Ask makes %v allocations, want at most %v", n, limit)
	}
}
