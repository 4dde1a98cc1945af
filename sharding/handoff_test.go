// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
)

// A silent node delays the moves of HandOffLossless until it is removed, and not those of
// HandOffAtOnce.
func TestMoveWhileANodeIsSilent(t *testing.T) {
	t.Parallel()
	for how, want := range map[sharding.HandOff]error{sharding.HandOffLossless: context.DeadlineExceeded, sharding.HandOffAtOnce: nil} {
		in(t, func(w *world) {
			w.options.HandOff, w.options.Shards = how, 10
			all := w.cluster("a", "b", "c")
			w.spread(all, 30, 0)
			w.network.Partition([]string{"c"}, []string{"a", "b"})
			soon, cancel := context.WithTimeout(w.Context(), 4*time.Second)
			defer cancel()
			if err := all[1].region.Drain(soon); !errors.Is(err, want) {
				w.Errorf("%v: drain of b while c is silent: %v, want %v", how, err, want)
			}
			w.must(all[1].region.Drain(w.Context())) // c is removed later
		})
	}
}

// With HandOffAtOnce, moves under load keep the order of each sender. A command is either handled or
// refused.
func TestHandOffAtOnceKeepsTheOrder(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.HandOff, w.options.Shards = sharding.HandOffAtOnce, 10
		all := w.cluster("a", "b", "c")
		var senders sync.WaitGroup
		var mu sync.Mutex
		done := map[string][]int{}
		for _, h := range all {
			for d := range 5 {
				senders.Go(func() {
					id, by := fmt.Sprint("d", d), h.Self().Name
					for n := range 200 {
						_, err := ask(w, h, id, write{By: by, N: n})
						switch {
						case err == nil:
							mu.Lock()
							done[id+by] = append(done[id+by], n)
							mu.Unlock()
						case !eventsourcing.NotDone(err):
							w.Errorf("write %d of %s to %s: %v, want a reply or a refusal", n, by, id, err)
						}
						pause()
					}
				})
			}
		}
		for range 2 {
			for _, h := range all {
				w.must(h.region.Drain(w.Context()))
				w.must(h.region.Undrain(w.Context()))
				w.sleep(time.Second)
			}
		}
		senders.Wait()
		for d := range 5 {
			for _, h := range all {
				id, by := fmt.Sprint("d", d), h.Self().Name
				got, err := ask(w, all[0], id, read{By: by})
				if w.must(err); fmt.Sprint(got) != fmt.Sprint(done[id+by]) {
					w.Errorf("%s has the pages %v of %s, want %v", id, got, by, done[id+by])
				}
			}
		}
	})
}
