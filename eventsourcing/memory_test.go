// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
)

// TestIdleEntitiesHoldNoGoroutine checks that idle entities have no goroutine. It is not parallel
// because it counts all goroutines of the process.
func TestIdleEntitiesHoldNoGoroutine(t *testing.T) { //nolint:paralleltest // see above
	s := newScene(t).open()
	s.mustAsk(recall)
	before := runtime.NumGoroutine()
	const entities = 10_000
	waits := make(chan error, entities)
	for i := range entities {
		err := eventsourcing.Tell(context.Background(), s.actors.Ref(fmt.Sprint(i)), act{f: func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"x"}).Then(func(ctx *actorCtx) actorStep {
				waits <- nil
				return ctx.Effect
			}).Reply("")
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range entities {
		if err := <-waits; err != nil {
			t.Fatal(err)
		}
	}
	if n := s.actors.Resident(); n != entities {
		t.Errorf("%d entities are in memory, want %d", n, entities)
	}
	// The goroutines of recoveries, 50 at most, may not have ended yet.
	after := runtime.NumGoroutine()
	for end := time.Now().Add(time.Minute); after > before+60 && time.Now().Before(end); after = runtime.NumGoroutine() {
		runtime.Gosched()
	}
	if after > before+60 {
		t.Errorf("%d idle entities added %d goroutines, want at most 60", entities, after-before)
	}
	s.close()
}
