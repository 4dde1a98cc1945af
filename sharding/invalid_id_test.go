// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
)

// An invalid ID is refused before it reaches a shard. The other entities of the shard run on.
func TestInvalidIDs(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		w.remembers, w.options.Shards = true, 1
		var mu sync.Mutex
		made := map[string]int{}
		w.made = func(id string) {
			mu.Lock()
			defer mu.Unlock()
			made[id]++
		}
		all := w.cluster("a", "b")
		p, err := ask(w, all[0], "good", write{})
		w.must(err)
		home := w.nodes[p.Node]
		bad := []string{"", " ", "\xff", "a\x00b", strings.Repeat("x", journal.MaxIDLength), strings.Repeat("x", journal.MaxIDLength-len("diary"))}
		var wg sync.WaitGroup
		for i, id := range bad {
			for _, h := range all {
				wg.Go(func() {
					_, err := ask(w, h, id, write{By: "x"})
					w.wantErr(err, eventsourcing.ErrArgument, false)
					w.wantErr(h.region.Start(w.Context(), id), eventsourcing.ErrArgument, false)
				})
				wg.Go(func() {
					_, err := ask(w, h, fmt.Sprint("good", i), write{By: h.Self().Name})
					w.must(err)
				})
			}
		}
		wg.Wait()
		for _, h := range all {
			for _, id := range bad {
				if h == home {
					continue
				}
				w.attack(h.Transport(), home, kindRegion, w.forward(home, id, write{By: "x"}, h.Self()))
			}
		}
		w.sleep(time.Minute)
		for i := range bad {
			for _, h := range all {
				w.wrote(all[0], fmt.Sprint("good", i), h.Self().Name, 1)
			}
		}
		running := w.running(all...)
		if len(running) != len(bad)+1 {
			w.Errorf("%d diaries run, want %d: %v", len(running), len(bad)+1, running)
		}
		for id := range running {
			if made[id] != 1 {
				w.Errorf("diary %q was made %d times, want once", id, made[id])
			}
		}
	})
}
