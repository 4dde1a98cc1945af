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

// id returns the ID of a diary.
func id(d int) string { return "d" + strconv.Itoa(d) }

// A node hands off all shards while all nodes write. No write is lost. The node still reaches all
// entities, even if it runs the coordinator or the coordinator moves to another node.
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
							w.Errorf("%s: write %d to %s: %v", by, n, id(d), err)
							return
						}
						pause()
					}
				})
			}
		}
		w.sleep(time.Second)
		w.must(all[0].region.Drain(w.Context())) // node a runs the coordinator
		if s, err := all[0].region.State(w.Context()); err != nil || len(s.Shards) != 0 {
			w.Errorf("State of the drained node = %+v, %v, want no shard", s, err)
		}
		wg.Wait()
		for _, h := range all {
			for d := range 10 {
				w.wrote(all[0], id(d), "writer "+h.Self().Name, writes)
			}
		}
		w.must(all[0].region.Drain(w.Context())) // a second time
		if where := w.spread(all, 40, 1); where["a"] != 0 || len(where) != 2 {
			w.Errorf("replies by node: %v, want none of a", where)
		}
		w.must(all[1].region.Drain(w.Context()))
		w.must(all[0].Shutdown(w.Context())) // b runs the next coordinator and stays drained
		w.sleep(time.Minute)
		if where := w.spread(all[1:], 40, 2); where["b"] != 0 || len(where) != 1 {
			w.Errorf("replies by node: %v, want all of c", where)
		}
		w.must(all[1].Shutdown(w.Context()))
	})
}

// After Undrain a node is allocated shards again, even if the drain was not completed.
func TestUndrain(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		w.options.Shards = 20
		all := w.cluster("a", "b")
		w.spread(all, 20, 0)
		w.must(all[1].region.Undrain(w.Context())) // without a drain
		w.must(all[1].region.Drain(w.Context()))
		w.spread(all, 20, 1)
		w.must(all[1].region.Undrain(w.Context()))
		w.sleep(5 * time.Minute)
		if where := w.spread(all, 20, 2); where["b"] < 10 {
			w.Errorf("replies by node: %v, want at least 10 of b", where)
		}
		for _, h := range all {
			for d := range 20 {
				w.wrote(h, id(d), h.Self().Name, 3)
			}
		}
		w.must(all[1].region.Drain(w.Context()))
		if where := w.spread(all, 20, 3); where["b"] != 0 {
			w.Errorf("replies by node after a second drain: %v, want none of b", where)
		}
		w.must(all[1].region.Undrain(w.Context()))
		w.must(all[0].Shutdown(w.Context()))
		if where := w.spread(all[1:], 20, 4); where["b"] != 20 {
			w.Errorf("replies by node: %v, want all of b", where)
		}
	})
}

// Undrain ends a waiting Drain with ErrUndrained.
func TestUndrainEndsDrain(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		all := w.cluster("a", "b")
		w.spread(all, 10, 0)
		heal := w.network.Partition([]string{"a"}, []string{"b"}) // b can hand off no shards
		defer heal()
		result := make(chan error, 1)
		go func() { result <- all[1].region.Drain(w.Context()) }()
		synctest.Wait()
		w.must(all[1].region.Undrain(w.Context()))
		if err := <-result; !errors.Is(err, sharding.ErrUndrained) {
			w.Errorf("Drain = %v, want ErrUndrained", err)
		}
	})
}

// Without another region the shards have no home. Commands wait until another node hosts the
// shards.
func TestDrainOfTheOnlyRegion(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 5
		all := w.cluster("a")
		w.spread(all, 5, 0)
		w.must(all[0].region.Drain(w.Context()))
		short, cancel := context.WithTimeout(w.Context(), 10*time.Second)
		defer cancel()
		if p, err := eventsourcing.Ask(short, all[0].region.Ref(id(0)), write{}); err == nil {
			w.Errorf("a drained cluster replied: %v", p)
		}
		b := w.start("b")
		if where := w.spread([]*host{all[0], b}, 5, 1); where["b"] != 10 {
			w.Errorf("replies by node: %v, want all of b", where)
		}
	})
}

// A drained node stays drained after a suspension.
func TestDrainedNodeAfterSuspension(t *testing.T) {
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
			w.Errorf("replies by node: %v, want none of c", where)
		}
	})
}
