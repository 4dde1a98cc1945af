// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/sharding"
)

// An entity leaves memory, and a command starts it again before the loop handles the report of its
// end. The entity keeps running, and handles the commands that follow.
func TestEntityStartsAgainBeforeItsEndIsHandled(t *testing.T) {
	t.Parallel()
	for _, remembers := range []bool{false, true} {
		in(t, func(w *world) {
			w.remembers, w.options.Shards = remembers, 2
			w.options.ShardOf = func(id string) sharding.Shard { return sharding.Shard(min(1, len(id)%2)) } // "other" is in shard 1, the others in shard 0
			w.hung = make(chan struct{})
			store := sync.OnceFunc(func() { close(w.hung) })
			defer store()
			held, release := make(chan struct{}), make(chan struct{})
			hold := sync.OnceFunc(func() {
				close(held)
				<-release
			})
			w.options.Observer.Dropped = func(sharding.DroppedInfo) { hold() } // blocks the loop
			a := w.start("a")
			w.must(a.region.AwaitReady(w.Context()))
			_, err := ask(w, a, "stuck0", remind{After: time.Hour}) // an entity with a timer stays in memory
			w.must(err)
			b := w.start("b")
			w.up(a, b)
			w.must(b.region.AwaitReady(w.Context()))
			for range 2 { // later commands bypass the loop
				_, err = ask(w, a, "stuck0", read{})
				w.must(err)
			}

			w.must(eventsourcing.Tell(w.Context(), a.region.Ref("other"), secret{})) // cannot be encoded for b
			<-held
			_, err = ask(w, a, "stuck0", closeIt{})
			w.must(err)
			synctest.Wait()
			if n := a.rt.Resident()["diary"]; n != 0 {
				t.Fatalf("%d entities are in memory, want none", n)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := ask(w, a, "stuck0", write{By: "a"}); err != nil { // the event of the command is being stored
					w.Errorf("the command that starts the entity again: got error %v, want none", err)
				}
			})
			synctest.Wait()
			close(release)
			synctest.Wait()
			wg.Go(func() {
				if _, err := ask(w, a, "stuck0", read{By: "a"}); err != nil {
					w.Errorf("the next command: got error %v, want none", err)
				}
			})
			synctest.Wait()
			store()
			wg.Wait()
			w.wrote(a, "stuck0", "a", 1)
			w.sleep(20 * time.Second)
			w.wantRunning(1, a)
		})
	}
}

// The state with the maximum number of shards fits into one key of replicated data of the default
// size.
func TestLargestStateFitsOneKey(t *testing.T) {
	t.Parallel()
	for _, regions := range effort.Count([]int{3000}, []int{3, 3000}, []int{3, 100, 1000, 3000}) {
		events := []event{started(1, "a")}
		each := coordinator.MaxShards / regions
		for i := range regions {
			name := fmt.Sprintf("refold-%d.accounts.bank.svc.cluster.local:7000", i)
			var shards []shard
			for s := range each {
				shards = append(shards, shard(s*regions+i))
			}
			events = append(events, registered(name), allocated(name, shards...))
		}
		s, err := coordinator.State{}.Apply(events...)
		if err != nil {
			t.Fatal(err)
		}
		size := len(coordinator.AppendState(nil, s))
		if t.Logf("%d regions, %d shards: %d bytes", regions, s.Shards(), size); size > 512<<10-1<<10 {
			t.Errorf("%d regions, %d shards: %d bytes, want at most %d", regions, s.Shards(), size, 512<<10-1<<10)
		}
	}
}
