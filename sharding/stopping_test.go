// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
)

// A diary whose node leaves writes a page before it moves. The new home reads the page.
func TestStoppingDuringHandOff(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		const diaries = 10
		w.stopping = func(d *diary, ctx *diaryCtx[eventsourcing.None], s eventsourcing.Stopping) diaryEffect {
			if s.Reason != eventsourcing.StopMoved {
				w.Errorf("Stopping of %s at %s: the reason is %d, want StopMoved", ctx.ID(), d.node, s.Reason)
			}
			return ctx.Persist(wrote{By: "stopping at " + d.node, N: 0})
		}
		all := w.cluster("a", "b", "c")
		w.spread(all, diaries, 0)
		hosted := 0
		for _, h := range all[:2] {
			state, err := h.region.State(w.Context())
			w.must(err)
			var moved []string
			for _, s := range state.Shards {
				moved = append(moved, s.Entities...)
			}
			hosted += len(moved)
			if h == all[0] {
				w.must(h.region.Drain(w.Context()))
			} else {
				w.must(h.Shutdown(w.Context()))
			}
			for _, id := range moved {
				w.wrote(all[2], id, "stopping at "+h.Self().Name, 1)
			}
		}
		if hosted == 0 {
			w.Error("the nodes a and b hosted no diary")
		}
	})
}

// A diary that cannot store its last page is killed before the hand-off times out, and its shard moves.
func TestStoppingTakesTooLong(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.hung, w.remembers = make(chan struct{}), true // a remembered diary stays in memory without pages
		w.options.Shards, w.options.Tuning.HandOffTimeout = 1, 20*time.Second
		began := make(chan time.Time, 1)
		w.stopping = func(d *diary, ctx *diaryCtx[eventsourcing.None], _ eventsourcing.Stopping) diaryEffect {
			if d.node == "a" {
				began <- time.Now()
			}
			return ctx.Persist(wrote{By: "stopping", N: 0})
		}
		all := w.cluster("a", "b")
		w.must(all[0].region.Start(w.Context(), "stuck"))
		w.must(all[0].region.Drain(w.Context()))
		if passed := time.Since(<-began); passed != 15*time.Second {
			w.Errorf("the shard moved %v after the signal, want 15 s", passed)
		}
		p, err := ask(w, all[0], "stuck", write{By: "next", N: 0})
		if w.must(err); p.Node != "b" {
			w.Errorf("the diary runs at %s, want b", p.Node)
		}
		close(w.hung)
	})
}
