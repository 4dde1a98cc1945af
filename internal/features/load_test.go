// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/allocation"
	"github.com/refold-io/refold/store"
)

// A mill grinds: each command occupies a processor for some time. The reply is the node.
type (
	grind struct {
		eventsourcing.Command[mill, string]
		Turns int
	}
	ground struct{ Sum int }
	mill   struct {
		node string
		sum  int
	}
)

func (m *mill) grind(ctx *eventsourcing.Context[mill, ground, string], c grind) eventsourcing.Decision[mill, ground, string] {
	sum := m.sum
	for i := range c.Turns {
		sum = sum*31 + i
	}
	return ctx.Persist(ground{sum}).Reply(m.node)
}

func mills(node string) eventsourcing.Type[mill, ground] {
	return eventsourcing.Type[mill, ground]{
		Name: "mill", New: func(string) *mill { return &mill{node: node} }, Apply: func(m *mill, e ground) { m.sum = e.Sum },
		Events: codec.Types(codec.Name[ground]("ground")), Commands: eventsourcing.Commands(eventsourcing.On("grind", (*mill).grind)),
	}
}

// A node hosts two busy shards. An operator has moved one of them there, so it stays, and the other
// one moves to a node with less load.
func TestBusyShardMovesAndPinnedShardStays(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		f := startNodes(t, db, 3)
		ctx := within(t)
		var regions []*sharding.Region[mill]
		for i, node := range f.nodes {
			r, err := sharding.Host(ctx, node, f.runtimes[i], mills(node.Self().Name), sharding.Options{
				Shards: 6, MinMembers: 3, Strategy: sharding.Pure(allocation.ByLoad{}), Tuning: sharding.Tuning{RebalanceInterval: time.Second},
				ShardOf: func(id string) sharding.Shard {
					n, _ := strconv.ParseUint(id, 10, 8)
					return sharding.Shard(n % 6)
				},
			})
			if err == nil {
				err = r.AwaitReady(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			regions = append(regions, r)
		}
		at := func(shard sharding.Shard, turns int) string {
			node, err := askAgain(ctx, regions[0].Ref(strconv.Itoa(int(shard))), grind{Turns: turns})
			if err != nil {
				t.Fatal(err)
			}
			return node
		}
		on := map[string][]sharding.Shard{}
		for s := range sharding.Shard(6) {
			node := at(s, 1)
			on[node] = append(on[node], s)
		}
		busy := on["node-1"]
		if len(busy) != 2 {
			t.Fatalf("the shards are on %v, want two on each node", on)
		}
		operator, err := nats.ConnectOperator(nats.OperatorConfig{Access: f.server.Access(), Cluster: "features", Name: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if closed := operator.Close(); closed != nil {
				t.Error(closed)
			}
		}()
		pinned, free := busy[0], busy[1]
		if err = sharding.NewAdmin(operator).Move(ctx, "node-0", "mill", pinned, "node-1"); err != nil {
			t.Fatal(err)
		}
		for at(free, 300_000) == "node-1" { // the reports of the load follow in some seconds
			at(pinned, 300_000)
		}
		if node := at(pinned, 1); node != "node-1" {
			t.Errorf("the pinned shard is on %s, want node-1", node)
		}
	})
}
