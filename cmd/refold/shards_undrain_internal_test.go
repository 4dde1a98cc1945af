// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

func TestShardsUndrain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a, b := l.join("a"), l.join("b")
	l.settled()
	j := inmem.NewJournal()
	opts := sharding.Options{Shards: 12, Tuning: sharding.Tuning{RetryInterval: 200 * time.Millisecond}}
	l.region(a, j, "account", opts)
	l.region(b, j, "account", opts)
	l.wantShards(2, []string{"undrain", "--node", "b"}, `b was not drained of "account"`)
	l.wantShards(2, []string{"undrain", "--node", "x"}, `no member "x"`)
	l.wantShards(0, []string{"drain", "--node", "b", "--wait"})
	l.wantShards(0, nil, `b .* drained\n`)
	l.wantShards(2, []string{"--type", "loan", "undrain", "--node", "b"}, `no entity type "loan"`)
	l.wantShards(0, []string{"undrain", "--node", "b"}, `^b can host shards of account again\n$`)
	l.wantShards(2, []string{"undrain", "--node", "b"}, `b was not drained of "account"`)
}

// A refused region is printed with the reason, and the exit status is 1.
func TestRefusedRegion(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a, b := l.join("a"), l.join("b")
	l.settled()
	j := inmem.NewJournal()
	l.region(a, j, "account", sharding.Options{Shards: 12})
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(j, nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		b.Stop()
		<-b.Done()
		if failed := rt.Close(context.WithoutCancel(t.Context())); failed != nil {
			t.Error(failed)
		}
	}()
	r, err := sharding.Host(t.Context(), b, rt, tallies("account"), sharding.Options{Shards: 13})
	if err != nil {
		t.Fatal(err)
	}
	if err = r.AwaitReady(t.Context()); !errors.Is(err, sharding.ErrMismatch) {
		t.Fatal(err)
	}
	l.wantShards(1, nil, `b .* refused: Options.Shards is 13 here and 12 on that node, not registered with a coordinator\n`)
	l.wantShards(1, []string{"list", "--json"}, `"refused":1`)
}
