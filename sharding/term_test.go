// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// A member that cannot run the coordinator cannot disable a type with an invented term.
func TestInventedTermOfMember(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		all := w.cluster("a", "b", "c")
		w.spread(all, 10, 0)
		c := all[2].Transport()
		for range 5 {
			for _, h := range all[:2] {
				for _, kind := range []coordinator.Kind{coordinator.RegisterAgain, coordinator.RegisterAck, coordinator.Fenced, coordinator.Hosted} {
					w.attack(c, h, kindCoordinator, coordinator.AppendMessage(nil, coordinator.Message{Kind: kind, Type: "diary", Term: 1 << 63, Instance: 1}))
				}
			}
			w.sleep(10 * time.Second)
			for _, h := range all {
				if s, err := h.region.State(w.Context()); err != nil || !s.Registered {
					w.Fatalf("the region of %v is not registered: %v", h.Self(), err)
				}
			}
		}
		w.spread(all, 20, 1) // some of these have no home yet
	})
}

// The oldest member has announced a term that it has not claimed. When it has left, the other nodes
// drop this term.
func TestInventedTermOfFormerCoordinator(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		all := w.cluster("a", "b", "c")
		w.spread(all, 10, 0)
		for _, h := range all[1:] {
			w.attack(all[0].Transport(), h, kindCoordinator, coordinator.AppendMessage(nil, coordinator.Message{Kind: coordinator.RegisterAgain, Type: "diary", Term: 1 << 63}))
		}
		w.sleep(time.Second)
		w.must(all[1].Down(w.Context(), all[0].Self()))
		<-all[0].Done()
		w.up(all[1:]...)
		w.sleep(time.Minute)
		w.spread(all[1:], 20, 1)
	})
}
