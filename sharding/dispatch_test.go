// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
)

// homes returns, for each node, an entity of a shard that the node hosts, and a second entity of
// the same shard.
func (w *world) homes(by *host, on ...*host) (ids, seconds []string) {
	w.Helper()
	ids, seconds = make([]string, len(on)), make([]string, len(on))
	first := map[sharding.Shard]string{}
	for n := 0; ; n++ {
		id, missing := "h"+strconv.Itoa(n), false
		number, err := by.region.ShardOf(id)
		w.must(err)
		_, err = ask(w, by, id, read{})
		w.must(err)
		home, _, err := by.region.Home(w.Context(), number)
		w.must(err)
		for i, h := range on {
			if home == h.Self() && first[number] != "" && ids[i] == "" {
				ids[i], seconds[i] = first[number], id
			}
			missing = missing || ids[i] == ""
		}
		if !missing {
			return ids, seconds
		}
		if first[number] == "" {
			first[number] = id
		}
	}
}

// Commands for a running entity wait in a queue because an earlier command is for an entity that
// does not run. When the loop has handled the earlier command, all others bypass the machine at
// once. If they did not, new commands would keep the queue from becoming empty.
func TestQueueIsDrainedAtOnce(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 4
		blocked, release := make(chan struct{}), make(chan struct{})
		b := w.start("b")
		w.options.Observer.Dropped = func(sharding.DroppedInfo) {
			close(blocked)
			<-release
		}
		a := w.start("a")
		w.up(a, b)
		ids, _ := w.homes(b, a, b)
		hot, far := ids[0], ids[1]
		for range 2 {
			for _, h := range []*host{a, b} {
				_, err := ask(w, h, hot, write{}) // an entity with an event stays in memory
				w.must(err)
			}
		}
		number, err := a.region.ShardOf(hot)
		w.must(err)
		var cold []string
		for n := 0; len(cold) < 2; n++ {
			id := "cold " + strconv.Itoa(n)
			if at, bad := a.region.ShardOf(id); bad != nil || at == number {
				cold = append(cold, id)
			}
		}
		before, err := a.region.State(w.Context())
		w.must(err)
		w.must(eventsourcing.Tell(w.Context(), a.region.Ref(far), secret{})) // cannot be encoded for the other node
		<-blocked
		var wg sync.WaitGroup
		for i, h := range []*host{a, b} {
			w.must(eventsourcing.Tell(w.Context(), h.region.Ref(cold[i]), write{}))
			synctest.Wait()
			for range 50 {
				wg.Go(func() {
					if _, failed := ask(w, h, hot, read{}); failed != nil {
						w.Error(failed)
					}
				})
			}
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		after, err := a.region.State(w.Context())
		w.must(err)
		if n := after.Queued - before.Queued; n != 3 {
			w.Errorf("%d commands were handled by the machine, want 3", n)
		}
	})
}
