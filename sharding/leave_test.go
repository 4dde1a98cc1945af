// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
)

// asks begins to ask and returns once the command waits in the region. The error comes when the ask is over.
func (w *world) asks(ctx context.Context, h *host, id string) <-chan error {
	w.Helper()
	over := make(chan error, 1)
	go func() {
		_, err := eventsourcing.Ask(ctx, h.region.Ref(id), write{})
		over <- err
	}()
	w.sleep(time.Millisecond)
	if s, err := h.region.State(w.Context()); err != nil || s.Waiting != 1 { //nolint:contextcheck // ctx is that of the command
		w.Errorf("%d commands wait: %v", s.Waiting, err)
	}
	return over
}

// leaves shuts a node down, whose region must not be stopped by force.
func (w *world) leaves(h *host) {
	w.Helper()
	begun := time.Now()
	w.must(h.Shutdown(w.Context()))
	w.Logf("%v has left after %v", h.Self(), time.Since(begun))
	w.sleep(time.Second)
	if strings.Contains(w.log.String(), "by force") {
		w.Error("it was stopped by force")
	}
}

// TestARegionLeavesWithoutThoseWhoHaveLeft: commands whose callers have left don't hold up a region that leaves, though the coordinator answers.
func TestARegionLeavesWithoutThoseWhoHaveLeft(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var dropped []sharding.DroppedInfo
		w.options.Observer.Dropped = func(d sharding.DroppedInfo) { dropped = append(dropped, d) }
		begun := time.Now()
		a := w.cluster("a")[0]
		w.must(a.region.Drain(w.Context()))              // no shard has a home
		w.sleep(time.Until(begun.Add(17 * time.Second))) // the next sweep, after 30 s, would come too late
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		over := w.asks(ctx, a, "d0")
		w.leaves(a)
		err := <-over
		w.wantErr(err, context.DeadlineExceeded, false)
		if len(dropped) != 1 || !errors.Is(dropped[0].Err, sharding.ErrGivenUp) || !dropped[0].Asked || dropped[0].Entity != "d0" {
			w.Errorf("dropped: %+v", dropped)
		}
	})
}

// TestARegionLeavesBeforeItIsKnown: one that no coordinator has ever answered refuses its commands and leaves.
func TestARegionLeavesBeforeItIsKnown(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role = "library"
		a := w.start("a") // a proxy, and nobody has the role
		w.up(a)
		over := w.asks(w.Context(), a, "d0")
		w.leaves(a)
		w.wantErr(<-over, sharding.ErrStopped, false)
	})
}

// TestTheRoomOfThoseWhoHaveLeft: commands whose callers have left make room for others, while the region goes on.
func TestTheRoomOfThoseWhoHaveLeft(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role = "library"
		a := w.start("a")
		w.up(a)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		w.wantErr(<-w.asks(ctx, a, "d0"), context.DeadlineExceeded, false)
		w.sleep(30 * time.Second)
		if s, err := a.region.State(w.Context()); err != nil || s.Waiting != 0 || s.Dropped != 1 {
			w.Errorf("%+v: %v", s, err)
		}
	})
}
