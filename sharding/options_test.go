// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/sharding"
)

// TestMismatch checks that a region with settings other than those of the coordinator is rejected
// with an error that names these settings, and that the other nodes continue.
func TestMismatch(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(w *world, o *sharding.Options){
		"Options.Shards is 20 here and 10 on that node": func(_ *world, o *sharding.Options) { o.Shards = 20 },
		"Options.ShardOf maps IDs to other shards":      func(_ *world, o *sharding.Options) { o.ShardOf = func(string) sharding.Shard { return 3 } },
		"Options.ShardOf maps": func(_ *world, o *sharding.Options) { // the same field, if ShardOf panics
			o.ShardOf = func(string) sharding.Shard { panic("no ID") }
		},
		"Options.Role is \"\" here and \"library\" on that node": func(_ *world, o *sharding.Options) { o.Role = "" },
		"Options.State is replicated here and journal on that node": func(w *world, o *sharding.Options) {
			o.State = sharding.ReplicatedStores{Replicator: w.replicator("b")}
		},
		"Options.Remember is journal here and none on that node": func(w *world, o *sharding.Options) { o.Remember = sharding.JournalStores{Journal: w.journal} },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) {
				w.options.Role, w.options.Shards = "library", 10
				a := w.start("a", "library")
				w.up(a)
				w.must(a.region.AwaitReady(w.Context()))
				b := w.join("b", "library")
				o := w.opts(b)
				change(w, &o)
				var err error
				b.region, err = sharding.Host(w.Context(), b.Node, b.rt, diaries("b"), o)
				w.must(err)
				soon, cancel := context.WithTimeout(w.Context(), time.Minute)
				defer cancel()
				if err = b.region.AwaitReady(soon); !errors.Is(err, sharding.ErrMismatch) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"diary" on a#`) {
					w.Errorf("AwaitReady of b = %v, want ErrMismatch", err)
				}
				health := sharding.NewHealth(b.Node, sharding.HealthConfig{GiveUpAfter: time.Second})
				w.up(a, b)
				_ = health.Ready()
				w.sleep(time.Minute)
				if err = health.Ready(); !errors.Is(err, sharding.ErrNotReady) || !errors.Is(err, sharding.ErrMismatch) {
					w.Errorf("Ready = %v, want ErrNotReady and ErrMismatch", err)
				}
				if s, failed := b.region.State(w.Context()); failed != nil || !errors.Is(s.Mismatch, sharding.ErrMismatch) || s.Registered {
					w.Errorf("State = %+v, %v, want ErrMismatch", s, failed)
				}
				if where := w.spread([]*host{a}, 10, 0); where["a"] != 10 {
					w.Errorf("replies by node: %v, want all of a", where)
				}
				for _, line := range []string{"the coordinator rejects the region: no entity can be reached through it", "coordinator: region rejected: its settings differ"} {
					if n := strings.Count(w.log.String(), line); n < 1 || n > 3 {
						w.Errorf("%q is logged %d times, want 1 to 3", line, n)
					}
				}
			})
		})
	}
}

// TestLocalSettingsMayDiffer checks that the settings of a single node, and the stores of a proxy,
// are not compared.
func TestLocalSettingsMayDiffer(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role = "library"
		a := w.start("a", "library")
		w.up(a)
		b := w.join("b")
		var err error
		b.region, err = sharding.Proxy(w.Context(), b.Node, nil, diaries("b").Protocol(), sharding.Options{Role: "library", MinMembers: 3, Tuning: sharding.Tuning{BufferSize: 10, HandOffTimeout: time.Hour}})
		w.must(err)
		w.must(b.region.AwaitReady(w.Context()))
		if s, err := b.region.State(w.Context()); err != nil || s.Mismatch != nil {
			w.Errorf("State = %+v, %v, want no mismatch", s, err)
		}
	})
}

// TestTooManyShards checks that a region whose state does not fit into the store is not started.
func TestTooManyShards(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		h := w.join("a")
		r, err := ddata.Start(w.Context(), h.Node, ddata.Config{MaxEntry: 20 << 10})
		w.must(err)
		w.options.Shards = 5000
		o := w.opts(h)
		o.State = sharding.ReplicatedStores{Replicator: r}
		_, err = sharding.Host(w.Context(), h.Node, h.rt, diaries("a"), o)
		if want := "Options.Shards is 5000: their state may take 26256 bytes, and ddata.Config.MaxEntry of replicator \"ddata\" is 20480"; !errors.Is(err, sharding.ErrInvalid) || !strings.Contains(err.Error(), want) {
			w.Errorf("Host = %v, want %q", err, want)
		}
		o.Shards = 2000
		h.region, err = sharding.Host(w.Context(), h.Node, h.rt, diaries("a"), o)
		w.must(err)
	})
}
