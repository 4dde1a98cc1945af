// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"fmt"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// With HandOffAtOnce, shards move under load without waiting for all nodes. Each command is handled
// once, or refused without an effect.
func TestHandOffAtOnce(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		f := startNodes(t, db, 3)
		ctx := within(t)
		var regions []*sharding.Region[tally]
		for i, node := range f.nodes {
			r, err := sharding.Host(ctx, node, f.runtimes[i], tallyType(), sharding.Options{Shards: 10, HandOff: sharding.HandOffAtOnce})
			if err != nil {
				t.Fatal(err)
			}
			regions = append(regions, r)
		}
		moved := make(chan error, 1)
		handled := make([]int, 5)
		for round := range 40 {
			if round == 10 {
				go func() { moved <- regions[0].Drain(ctx) }()
			}
			for id := range handled {
				_, err := eventsourcing.Ask(ctx, regions[round%3].Ref(fmt.Sprint(id)), count{By: 1})
				switch {
				case err == nil:
					handled[id]++
				case !eventsourcing.NotDone(err):
					t.Fatalf("a command to entity %d: %v, want a reply or a refusal", id, err)
				}
			}
		}
		if err := <-moved; err != nil {
			t.Error(err)
		}
		for id, want := range handled {
			if n, err := eventsourcing.Ask(ctx, regions[2].Ref(fmt.Sprint(id)), count{}); n != want || err != nil {
				t.Errorf("entity %d has counted %d, %v, want %d", id, n, err, want)
			}
		}
	})
}
