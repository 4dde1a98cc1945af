// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

// Many callers run concurrently on all nodes, at all levels. Each caller reads its own writes.
// Finally all nodes hold each change exactly once.
func TestConcurrentCallers(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		rs := w.replicators(ddata.Config{}, "a", "b", "c", "d", "e")
		levels := []ddata.WriteLevel{ddata.WriteLocal(), ddata.WriteMajority(), ddata.WriteTo(2), ddata.WriteAll()}
		const callers, rounds, keys = 8, 25, 3
		var running sync.WaitGroup
		for i, r := range rs {
			for c := range callers {
				running.Go(func() {
					for n := range rounds {
						key := ddata.Key[crdt.GCounter](fmt.Sprintf("key-%d", (c+n)%keys))
						before, _ := w.get(r, key, ddata.ReadLocal())
						if err := w.add(r, key, levels[(i+c+n)%len(levels)], 1); err != nil {
							t.Error(err)
						}
						if after, err := w.get(r, key, ddata.ReadLocal()); err != nil || after <= before {
							t.Errorf("an increment changed %[2]d to %[1]d (error %[3]v), want a higher count", after, before, err)
						}
						if err := w.put(r, levels[(i+c+n)%2], fmt.Sprint(i, c, n)); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		running.Wait()
		w.sleep(time.Second)
		w.converged(rs...)
		for _, r := range rs {
			sum := uint64(0)
			for key := range keys {
				n, err := w.get(r, ddata.Key[crdt.GCounter](fmt.Sprintf("key-%d", key)), ddata.ReadLocal())
				w.must(err)
				sum += n
			}
			s, err := ddata.Get(w.Context(), r, cart, ddata.ReadLocal())
			if err != nil || sum != 5*callers*rounds || s.Len() != 5*callers*rounds {
				t.Errorf("%v has count %d and %d elements (error %v), want one of each for every call", r.Node().Self(), sum, s.Len(), err)
			}
		}
	})
}
