// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
)

// hanging is a journal in which writes of entities called stuck hang until wait is closed.
type hanging struct {
	*inmem.Journal

	wait chan struct{}
}

func (h *hanging) Append(ctx context.Context, writes []journal.Write) []error {
	for i := range writes {
		if strings.Contains(writes[i].ID, "|stuck") {
			<-h.wait
		}
	}
	return h.Journal.Append(ctx, writes)
}

// TestBlockedEntityIsKilled checks that an entity that does not stop is killed when its shard
// moves. Commands that it has not handled are refused on every node, and the entity runs at its new
// home.
func TestBlockedEntityIsKilled(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards, w.options.Tuning.HandOffTimeout, w.options.Host.MaxPending = 4, 20*time.Second, 1
		w.hung = make(chan struct{})
		release := sync.OnceFunc(func() { close(w.hung) })
		defer release()
		a := w.start("a")
		b := w.start("b")
		w.up(a, b)
		id := ""
		for i := 0; id == ""; i++ {
			try := "stuck" + strconv.Itoa(i)
			_, err := ask(w, b, try, read{})
			w.must(err)
			n, err := b.region.ShardOf(try)
			w.must(err)
			if home, _, err := b.region.Home(w.Context(), n); err == nil && home == a.Self() {
				id = try
			}
		}
		var wg sync.WaitGroup
		for i, h := range []*host{a, a, b} {
			wg.Go(func() {
				_, err := ask(w, h, id, write{By: "x", N: i})
				if i == 0 {
					w.wantErr(err, eventsourcing.ErrOutcomeUnknown, true)
				} else {
					w.wantErr(err, sharding.ErrHandOff, false)
				}
			})
			synctest.Wait()
		}
		w.must(a.region.Drain(w.Context()))
		wg.Wait()
		_, err := ask(w, b, id, write{By: "b"})
		w.must(err)
		release()
		w.sleep(time.Minute)
		w.wrote(b, id, "x", 0) // the late write was not stored
		w.wrote(b, id, "b", 1)
	})
}

// TestEntityThatCannotBeCreated checks that callers get the error of an entity that cannot be
// created, and that the host retries after pauses. The entity runs after the cause was removed.
func TestEntityThatCannotBeCreated(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var broken atomic.Bool
		var tries atomic.Int64
		broken.Store(true)
		w.made = func(id string) {
			if id == "bad" && broken.Load() {
				tries.Add(1)
				panic("no paper")
			}
		}
		w.options.Host.MinBackoff, w.options.Host.MaxBackoff = 2*time.Second, 10*time.Second
		all := w.cluster("a", "b")
		began := time.Now()
		for time.Since(began) < time.Minute {
			for _, h := range all {
				_, err := ask(w, h, "bad", write{})
				if err == nil || !strings.Contains(err.Error(), "no paper") {
					w.Fatalf("got error %v, want one that contains %q", err, "no paper")
				}
			}
		}
		if n := tries.Load(); n < 5 || n > 12 {
			w.Errorf("%d attempts to create the entity in a minute, want 5 to 12", n)
		}
		broken.Store(false)
		_, err := ask(w, all[0], "bad", write{By: "a"})
		w.must(err)
		w.wrote(all[1], "bad", "a", 1)
	})
}

// TestBusyEntityStays checks that an entity with pending work stays in memory although it gets no
// commands.
func TestBusyEntityStays(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		a := w.cluster("a")
		for _, id := range []string{"x", "idle"} {
			_, err := ask(w, a[0], id, write{By: "a"})
			w.must(err)
		}
		_, err := ask(w, a[0], "x", remind{After: 15 * time.Minute})
		w.must(err)
		w.sleep(14 * time.Minute)
		if n := a[0].rt.Resident()["diary"]; n != 1 {
			t.Errorf("%d entities are in memory, want only the busy one", n)
		}
		for n := range 3 { // the entity still handles commands
			_, err := ask(w, a[0], "x", write{By: "a", N: n + 1})
			w.must(err)
			w.sleep(10 * time.Second)
		}
		w.sleep(10 * time.Minute)
		if n := a[0].rt.Resident()["diary"]; n != 0 {
			t.Errorf("%d idle entities are in memory, want none", n)
		}
		w.wrote(a[0], "x", "a", 4)
		w.wrote(a[0], "x", "timer", 1)
	})
}
