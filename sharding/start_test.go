// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// TestHostAgain checks that Host with an ended context registers nothing, and that a later call
// succeeds.
func TestHostAgain(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		a := w.join("a")
		w.up(a)
		ended, cancel := context.WithCancel(w.Context())
		cancel()
		if _, err := sharding.Host(ended, a.Node, a.rt, diaries("a"), w.opts(a)); !errors.Is(err, context.Canceled) {
			w.Errorf("with a context that has ended: %v, want Canceled", err)
		}
		proxy := sharding.Options{Role: "other"}
		if _, err := sharding.Proxy(ended, a.Node, nil, diaries("a").Protocol(), proxy); !errors.Is(err, context.Canceled) {
			w.Errorf("a proxy with a context that has ended: %v, want Canceled", err)
		}
		var err error
		a.region, err = sharding.Host(w.Context(), a.Node, a.rt, diaries("a"), w.opts(a))
		w.must(err)
		if _, err = ask(w, a, "x", write{}); err != nil {
			w.Error(err)
		}
	})
}

// TestRegionOfDuringHost checks that RegionOf finds a region only after Host has completed it.
func TestRegionOfDuringHost(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		a := w.join("a")
		w.up(a)
		typ, calls := diaries("a"), 0
		typ.New = func(string) *diary { // Start calls it as well
			if calls++; calls == 1 {
				if r, err := sharding.RegionOf[diary](a.Node, "diary"); !errors.Is(err, sharding.ErrInvalid) {
					w.Errorf("RegionOf during Host = %v, %v, want ErrInvalid", r, err)
				}
				if _, err := sharding.Host(w.Context(), a.Node, a.rt, diaries("a"), w.opts(a)); !errors.Is(err, sharding.ErrInvalid) || !strings.Contains(err.Error(), "already has a region") {
					w.Errorf("second Host during Host: %v, want ErrInvalid", err)
				}
			}
			return &diary{node: "a"}
		}
		r, err := sharding.Host(w.Context(), a.Node, a.rt, typ, w.opts(a))
		w.must(err)
		if found, err := sharding.RegionOf[diary](a.Node, "diary"); err != nil || found != r || calls == 0 {
			w.Errorf("RegionOf = %v, want %v: %v", found, r, err)
		}
	})
}

// bare are stores that return no store, or that panic.
type bare struct{ panics bool }

func (b bare) open() {
	if b.panics {
		panic("no shelf")
	}
}

func (b bare) OpenCoordinator(sharding.Scope) (sharding.CoordinatorStore, error) {
	b.open()
	return nil, nil //nolint:nilnil // the case that is tested
}

func (b bare) OpenEntities(sharding.Scope) (sharding.RememberStore, error) {
	b.open()
	return nil, nil //nolint:nilnil // the case that is tested
}

// A tally is an aggregate that saves snapshots.
type (
	tally   struct{ Sum int }
	counted struct{ N int }
	count   struct {
		eventsourcing.Command[tally, int]
		N int
	}
)

func (t *tally) apply(e counted) { t.Sum += e.N }

func (t *tally) count(ctx *eventsourcing.Context[tally, counted, int], c count) eventsourcing.Decision[tally, counted, int] {
	return ctx.Persist(counted{c.N}).ReplyFunc(func() int { return t.Sum })
}

// localSnapshots is a snapshot store that is local to one node.
type localSnapshots struct{ inmem.SnapshotStore }

func (*localSnapshots) Local() bool { return true }

// TestHostWithLocalSnapshots checks that events of a shared journal are not deleted if only one node
// can read the snapshots that cover them.
func TestHostWithLocalSnapshots(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		a := w.join("a")
		w.up(a)
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(w.journal, &localSnapshots{})})
		w.must(err)
		w.Cleanup(func() { w.must(rt.Close(context.Background())) })
		typ := eventsourcing.Type[tally, counted]{
			Name:      "tally",
			New:       func(string) *tally { return &tally{} },
			Apply:     (*tally).apply,
			Events:    codec.Types(codec.Name[counted]("counted")),
			Commands:  eventsourcing.Commands(eventsourcing.On("count", (*tally).count)),
			Snapshots: eventsourcing.Snapshots[tally, counted]{Every: 1, Keep: 1, DeleteEvents: true},
		}
		for want, state := range map[string]sharding.CoordinatorStores{
			"Type.Snapshots.DeleteEvents": nil,
			"JournalStores.Snapshots":     sharding.JournalStores{Journal: w.journal, Snapshots: &localSnapshots{}},
		} {
			_, err = sharding.Host(w.Context(), a.Node, rt, typ, sharding.Options{State: state})
			if !errors.Is(err, sharding.ErrInvalid) || !strings.Contains(err.Error(), want) {
				w.Errorf("Host: %v, want ErrInvalid with %q", err, want)
			}
		}
		typ.Snapshots.DeleteEvents = false
		_, err = sharding.Host(w.Context(), a.Node, rt, typ, sharding.Options{})
		w.must(err)
	})
}

// TestHostFails checks that errors of stores and of the type match ErrInvalid and name the cause.
func TestHostFails(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		a := w.join("a")
		w.up(a)
		for want, change := range map[string]func(*sharding.Options, *eventsourcing.Type[diary, wrote]){
			"HostOptions.MaxPending":                 func(o *sharding.Options, _ *eventsourcing.Type[diary, wrote]) { o.Host.MaxPending = -1 },
			"Options.State: returned no store":       func(o *sharding.Options, _ *eventsourcing.Type[diary, wrote]) { o.State = bare{} },
			"Options.State: panic":                   func(o *sharding.Options, _ *eventsourcing.Type[diary, wrote]) { o.State = bare{panics: true} },
			"Options.Remember: returned":             func(o *sharding.Options, _ *eventsourcing.Type[diary, wrote]) { o.Remember = bare{} },
			"Options.Remember: panic":                func(o *sharding.Options, _ *eventsourcing.Type[diary, wrote]) { o.Remember = bare{panics: true} },
			"Type.Apply is missing":                  func(_ *sharding.Options, typ *eventsourcing.Type[diary, wrote]) { typ.Apply = nil },
			`: Type.Name is "a|b", it must be UTF-8`: func(_ *sharding.Options, typ *eventsourcing.Type[diary, wrote]) { typ.Name = "a|b" },
			"Type.Name has 247 bytes, at most": func(_ *sharding.Options, typ *eventsourcing.Type[diary, wrote]) {
				typ.Name = strings.Repeat("x", 247)
			},
		} {
			o, typ := w.opts(a), diaries("a")
			change(&o, &typ)
			if _, err := sharding.Host(w.Context(), a.Node, a.rt, typ, o); !errors.Is(err, sharding.ErrInvalid) || !strings.Contains(err.Error(), want) {
				w.Errorf("Host = %[2]v, want %[1]q", want, err)
			}
		}
		typ := diaries("a")
		typ.Name = strings.Repeat("x", 246)
		_, err := sharding.Host(w.Context(), a.Node, a.rt, typ, w.opts(a))
		w.must(err)
	})
}

// TestMaximumDurations checks that maximum durations do not overflow.
func TestMaximumDurations(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		w.options.Tuning.LoadTimeout, w.options.Tuning.SaveTimeout, w.options.Tuning.ShardBackoff = math.MaxInt64, math.MaxInt64, math.MaxInt64
		w.options.Tuning.HandOffTimeout, w.options.Tuning.StrategyTimeout, w.options.Tuning.RebalanceInterval = math.MaxInt64, math.MaxInt64, math.MaxInt64
		w.options.Tuning.ShardStartTimeout, w.options.Tuning.CoordinatorBackoff, w.options.Tuning.RestartBackoff = math.MaxInt64, math.MaxInt64, math.MaxInt64
		w.options.Passivation.IdleTimeout, w.options.Passivation.IdleInterval = math.MaxInt64, math.MaxInt64
		all := w.cluster("a", "b")
		w.spread(all, 10, 0)
		w.sleep(5 * time.Minute)
		if n := all[0].rt.Resident()["diary"] + all[1].rt.Resident()["diary"]; n != 10 {
			w.Errorf("%d entities are in memory, want 10", n)
		}
		soon, cancel := context.WithTimeout(w.Context(), 10*time.Second)
		defer cancel()
		w.must(all[0].region.Drain(soon))
		if where := w.spread(all, 10, 1); where["b"] != 20 {
			w.Errorf("replies by node: %v, want all of b", where)
		}
		if s := w.log.String(); strings.Contains(s, "level=WARN") {
			w.Error("the log has a warning")
		}
	})
}
