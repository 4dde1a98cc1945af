// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
)

// id is the ID of a diary.
func id(d int) string { return "d" + strconv.Itoa(d) }

// TestDrain: a node gives all its shards away while everybody writes, nothing is lost, and it goes
// on reaching all entities, also when it has the coordinator, or another node gets it.
func TestDrain(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		all := w.cluster("a", "b", "c")
		w.spread(all, 20, 0)
		const writes = 100
		var wg sync.WaitGroup
		for _, h := range all {
			for d := range 10 {
				wg.Go(func() {
					by := "writer " + h.Self().Name
					for n := range writes {
						if _, err := ask(w, h, id(d), write{By: by, N: n}); err != nil {
							w.Errorf("%s writes %d into %s: %v", by, n, id(d), err)
							return
						}
						pause()
					}
				})
			}
		}
		w.sleep(time.Second)
		w.must(all[0].region.Drain(w.Context())) // the one with the coordinator
		if s, err := all[0].region.State(w.Context()); err != nil || len(s.Shards) != 0 {
			w.Errorf("drained is %+v: %v", s, err)
		}
		wg.Wait()
		for _, h := range all {
			for d := range 10 {
				w.wrote(all[0], id(d), "writer "+h.Self().Name, writes)
			}
		}
		w.must(all[0].region.Drain(w.Context())) // again
		if where := w.spread(all, 40, 1); where["a"] != 0 || len(where) != 2 {
			w.Errorf("all is on %v", where)
		}
		w.must(all[1].region.Drain(w.Context()))
		w.must(all[0].Shutdown(w.Context())) // b gets the coordinator, and does not forget
		w.sleep(time.Minute)
		if where := w.spread(all[1:], 40, 2); where["b"] != 0 || len(where) != 1 {
			w.Errorf("all is on %v", where)
		}
		w.must(all[1].Shutdown(w.Context()))
	})
}

// TestUndrain: a node that was drained gets shards again, also when it was not done yet, and goes
// on as before.
func TestUndrain(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		w.options.Shards = 20
		all := w.cluster("a", "b")
		w.spread(all, 20, 0)
		w.must(all[1].region.Undrain(w.Context())) // it was not drained
		w.must(all[1].region.Drain(w.Context()))
		w.spread(all, 20, 1)
		w.must(all[1].region.Undrain(w.Context()))
		w.sleep(5 * time.Minute)
		if where := w.spread(all, 20, 2); where["b"] < 10 {
			w.Errorf("all is on %v", where)
		}
		for _, h := range all {
			for d := range 20 {
				w.wrote(h, id(d), h.Self().Name, 3)
			}
		}
		w.must(all[1].region.Drain(w.Context()))
		if where := w.spread(all, 20, 3); where["b"] != 0 {
			w.Errorf("drained again, and all is on %v", where)
		}
		w.must(all[1].region.Undrain(w.Context()))
		w.must(all[0].Shutdown(w.Context()))
		if where := w.spread(all[1:], 20, 4); where["b"] != 20 {
			w.Errorf("all is on %v", where)
		}
	})
}

// TestUndrainMeanwhile: who waits for a drain that was taken back is told.
func TestUndrainMeanwhile(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		all := w.cluster("a", "b")
		w.spread(all, 10, 0)
		heal := w.network.Partition([]string{"a"}, []string{"b"}) // nobody takes a shard from b
		defer heal()
		told := make(chan error, 1)
		go func() { told <- all[1].region.Drain(w.Context()) }()
		synctest.Wait()
		w.must(all[1].region.Undrain(w.Context()))
		if err := <-told; !errors.Is(err, sharding.ErrUndrained) {
			w.Error(err)
		}
	})
}

// TestDrainWithoutAnother: shards go, what comes for them waits, and a node that hosts may bring
// them back.
func TestDrainWithoutAnother(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 5
		all := w.cluster("a")
		w.spread(all, 5, 0)
		w.must(all[0].region.Drain(w.Context()))
		short, cancel := context.WithTimeout(w.Context(), 10*time.Second)
		defer cancel()
		if p, err := eventsourcing.Ask(short, all[0].region.Ref(id(0)), write{}); err == nil {
			w.Errorf("somebody answers: %v", p)
		}
		b := w.start("b")
		if where := w.spread([]*host{all[0], b}, 5, 1); where["b"] != 10 {
			w.Errorf("all is on %v", where)
		}
	})
}

// TestADrainedNodeThatWasCutOff: when it hosts again, after it was suspended, it does not.
func TestADrainedNodeThatWasCutOff(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		all := w.cluster("a", "b", "c")
		w.spread(all, 10, 0)
		w.must(all[2].region.Drain(w.Context()))
		reconnect := w.network.Disconnect("c", context.DeadlineExceeded)
		for !all[2].State().Suspended {
			w.sleep(time.Second)
		}
		reconnect()
		for all[2].State().Suspended {
			w.sleep(time.Second)
		}
		w.up(all...)
		w.sleep(time.Minute)
		if where := w.spread(all, 20, 1); where["c"] != 0 {
			w.Errorf("all is on %v", where)
		}
	})
}
