// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
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

// TestNameInUse checks that the errors of a region name the reason if its node cannot join because
// another node uses its name.
func TestNameInUse(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		all := w.cluster("a", "b")
		heal := w.network.Partition([]string{"a"}, []string{"b"})
		second := w.start("b")
		waiting := make(chan error, 1)
		go func() {
			_, err := ask(w, second, id(1), write{})
			waiting <- err
		}()
		soon, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := second.region.AwaitReady(soon); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "has not joined the cluster") {
			w.Errorf("AwaitReady of a node that is joining = %v, want a time-out that names this cause", err)
		}
		heal()
		ready := second.region.AwaitReady(w.Context())
		select {
		case <-second.region.Done():
			w.Error("AwaitReady waited for the end of the region, which waits for the command")
		default:
		}
		waited := <-waiting
		<-second.region.Done()
		_, later := ask(w, second, id(1), write{})
		_, state := second.region.State(w.Context())
		_, hosted := sharding.Host(w.Context(), second.Node, second.rt, diaries("b"), w.opts(second))
		if !errors.Is(hosted, cluster.ErrShuttingDown) || !errors.Is(hosted, cluster.ErrNameInUse) {
			w.Errorf("Host on a node whose name is in use = %v, want ErrShuttingDown and ErrNameInUse", hosted)
		}
		for call, err := range map[string]error{"AwaitReady": ready, "Ask before the end": waited, "Ask after the end": later, "State": state} {
			if !errors.Is(err, sharding.ErrStopped) || !errors.Is(err, cluster.ErrNameInUse) || !strings.Contains(err.Error(), all[1].Self().String()) {
				w.Errorf("%s on a node whose name is in use: %v, want ErrStopped and ErrNameInUse with the owner of the name", call, err)
			}
		}
	})
}
