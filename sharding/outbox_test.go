// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// An outbox reaches entities through a proxy of its node, and entities of a region of its node that has
// another runtime.
func TestOutboxReachesAllTypesOfNode(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		a := w.join("a", "courier", "bell")
		w.up(a)
		report := make(chan string, 10)
		bellRuntime, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(w.journal, nil)})
		w.must(err)
		defer bellRuntime.Close(context.Background()) //nolint:errcheck // nothing is in flight
		c, err := sharding.Host(w.Context(), a.Node, a.rt, couriers(report), sharding.Options{Role: "courier", Shards: 10})
		w.must(err)
		w.must(c.AwaitReady(w.Context()))

		dispatchTo := func(id string) {
			t.Helper()
			_, asked := eventsourcing.Ask(w.Context(), c.Ref("1"), dispatch{To: id})
			w.must(asked)
			w.reported(report, id+" rings")
		}
		// The bells of node a have a runtime of their own.
		of, err := sharding.Host(w.Context(), a.Node, bellRuntime, bells(report), sharding.Options{Role: "bell", Shards: 10})
		w.must(err)
		w.must(of.AwaitReady(w.Context()))
		dispatchTo("hosted")

		// Node d has couriers and a proxy of the bells. The proxy has no runtime, or one of its own.
		d := w.join("d", "courier")
		w.up(a, d)
		_, err = sharding.Proxy(w.Context(), d.Node, nil, bells(report).Protocol(), sharding.Options{Role: "bell", Shards: 10})
		w.must(err)
		ofD, err := sharding.Host(w.Context(), d.Node, d.rt, couriers(report), sharding.Options{Role: "courier", Shards: 10})
		w.must(err)
		w.must(ofD.AwaitReady(w.Context()))
		w.must(c.Drain(w.Context())) // all couriers run on d
		dispatchTo("remote")

		// A runtime without a region has the access of its proxy.
		e := w.join("e")
		w.up(a, d, e)
		local, err := eventsourcing.Host(e.rt, couriers(report))
		w.must(err)
		_, err = sharding.Proxy(w.Context(), e.Node, e.rt, bells(report).Protocol(), sharding.Options{Role: "bell", Shards: 10})
		w.must(err)
		_, err = eventsourcing.Ask(w.Context(), local.Ref("2"), dispatch{To: "proxied"})
		w.must(err)
		w.reported(report, "proxied rings")
	})
}
