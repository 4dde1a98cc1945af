// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/refold-io/refold/sharding"
)

// TestAwaitReady checks that AwaitReady always returns the same result when several conditions
// hold. The conditions count in this order: the region has ended, it has been ready, it was
// refused, and the context has ended.
func TestAwaitReady(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		ended, cancel := context.WithCancelCause(w.Context())
		why := errors.New("canceled by the test")
		cancel(why)
		always := func(h *host, subject string, want error) {
			w.Helper()
			for range 50 {
				if err := h.region.AwaitReady(ended); !errors.Is(err, want) {
					w.Fatalf("%s and an ended context: AwaitReady = %v, want %v", subject, err, want)
				}
			}
		}
		w.options.Shards = 10
		a := w.start("a")
		always(a, "not registered", why)
		w.up(a)
		w.must(a.region.AwaitReady(w.Context()))
		always(a, "ready", nil)
		b := w.join("b")
		o := w.opts(b)
		o.Shards = 20
		var err error
		b.region, err = sharding.Host(w.Context(), b.Node, b.rt, diaries("b"), o)
		w.must(err)
		w.up(a, b)
		if err = b.region.AwaitReady(w.Context()); !errors.Is(err, sharding.ErrMismatch) {
			w.Fatalf("AwaitReady of b = %v, want ErrMismatch", err)
		}
		always(b, "refused", sharding.ErrMismatch)
		c := w.start("c")
		w.up(a, b, c)
		w.must(c.region.AwaitReady(w.Context()))
		w.must(a.Shutdown(w.Context())) // b now runs the coordinator, which accepts the settings of b and rejects the settings of c
		always(a, "ended and ready", sharding.ErrStopped)
		w.sleep(time.Minute)
		if s, failed := c.region.State(w.Context()); failed != nil || !errors.Is(s.Mismatch, sharding.ErrMismatch) {
			w.Fatalf("State of c = %+v, %v, want ErrMismatch", s, failed)
		}
		for _, h := range []*host{b, c} {
			always(h, "ready and refused", nil)
		}
		b.Stop()
		<-b.Done()
		always(b, "ended, ready and refused", sharding.ErrStopped)
	})
}
