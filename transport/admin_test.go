// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/transport"
)

// A request of an operator ends a minute after its arrival. If it waits for a slot until then, it is
// not carried out.
func TestAdminDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.open("a", transport.Config{})
		arrived, release := time.Now(), make(chan struct{})
		if err := a.HandleAdmin(func(ctx context.Context, _, _ string, _ transport.AdminRight, request []byte) []byte {
			if until, ok := ctx.Deadline(); !ok || until.Sub(arrived) > time.Minute {
				t.Errorf("the context of the handler ends %v after the arrival, want 1m", until.Sub(arrived))
			}
			if string(request) == "late" {
				t.Error("a request was carried out after its deadline")
			}
			<-release // a handler that ignores its context
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		ops := c.network.Operator("ops")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := ops.Ask(t.Context(), "test", transport.AdminAct, "a", nil); err != nil {
					t.Errorf("Ask with a running handler: %v", err)
				}
			})
		}
		synctest.Wait()
		wg.Go(func() {
			if _, err := ops.Ask(t.Context(), "test", transport.AdminAct, "a", []byte("late")); !errors.Is(err, transport.ErrBackpressure) {
				t.Errorf("Ask that waits for a slot for two minutes: %v, want ErrBackpressure", err)
			}
		})
		time.Sleep(2 * time.Minute)
		close(release)
		wg.Wait()
		if n := a.Stats().AdminRefused; n != 1 {
			t.Errorf("%d requests were counted as refused, want 1", n)
		}
	})
}

// A handler that ends its goroutine does not keep its slot.
func TestAdminGoexit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a", transport.Config{})
	if err := a.HandleAdmin(func(context.Context, string, string, transport.AdminRight, []byte) []byte {
		runtime.Goexit()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ops := c.network.Operator("ops")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 3 {
				if _, err := ops.Ask(t.Context(), "test", transport.AdminRead, "a", nil); !errors.Is(err, transport.ErrHandlerFailed) {
					t.Errorf("Ask of a handler that ends its goroutine: %v, want ErrHandlerFailed", err)
				}
			}
		})
	}
	wg.Wait()
}
