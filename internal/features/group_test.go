// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/sharding"
)

// TestGroups checks over NATS that a group survives the loss of a node, and that each worker runs
// once and is taken over.
func TestGroups(t *testing.T) {
	t.Parallel()
	f := threeNodes(t)
	ctx := within(t)
	var mu sync.Mutex
	running, most := map[int]int{}, 0
	changed := make(chan struct{}, 1)
	count := func(nr, n int) {
		mu.Lock()
		defer mu.Unlock()
		running[nr] += n
		most = max(most, running[nr])
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	// await waits until each worker runs.
	await := func(when string) {
		t.Helper()
		for {
			mu.Lock()
			all := running[0] == 1 && running[1] == 1 && running[2] == 1 && running[3] == 1
			mu.Unlock()
			if all {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("%s: workers %v run, want each once", when, running)
			}
		}
	}
	var group, workers *sharding.GroupRef
	for i, node := range f.nodes {
		var err error
		group, err = sharding.StartGroup(ctx, node, sharding.Group{Name: "prices", Instances: 2, Run: func(ctx context.Context, i *sharding.Instance) error {
			for d := range i.All(ctx) {
				if failed := d.Reply(fmt.Appendf(nil, "%s costs %d", d.Payload, i.Nr())); failed != nil {
					return failed
				}
			}
			return nil
		}, Logger: quiet()})
		if err == nil {
			workers, err = sharding.StartWorkers(ctx, node, sharding.Workers{Name: "mailers", Count: 4, Run: func(ctx context.Context, w *sharding.Instance) error {
				count(w.Nr(), 1)
				defer count(w.Nr(), -1)
				<-ctx.Done()
				return nil
			}, Logger: quiet()})
		}
		if err != nil {
			t.Fatalf("node %d: %v", i, err)
		}
	}
	check := func(when string) {
		t.Helper()
		if err := group.Await(ctx); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		for nr := range 2 {
			reply := ""
			for ctx.Err() == nil && reply == "" { // the instance may be on the node that crashes
				attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
				payload, err := group.Instance(nr).Ask(attempt, []byte("tea"))
				cancel()
				if err == nil {
					reply = string(payload)
				}
			}
			if want := fmt.Sprintf("tea costs %d", nr); reply != want {
				t.Errorf("%s: instance %d replies %q, want %q", when, nr, reply, want)
			}
		}
		await(when)
		if err := workers.Await(ctx); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	check("with three nodes")
	f.crash(f.nodes[0])
	check("after the crash")
	if most > 1 {
		t.Errorf("%d workers of one number ran at the same time, want 1", most)
	}
}
