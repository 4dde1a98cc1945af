// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/allocation"
)

// places is a strategy with homes that change at run time. With several processes the homes would
// be in a database, because all nodes must read the same homes.
type places struct {
	mu      sync.Mutex
	desired map[sharding.Shard]string
}

// put sets the desired node of a shard.
func (p *places) put(shard sharding.Shard, node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := maps.Clone(p.desired)
	if changed == nil {
		changed = map[sharding.Shard]string{}
	}
	changed[shard] = node
	p.desired = changed
}

func (p *places) now() allocation.External {
	p.mu.Lock()
	defer p.mu.Unlock()
	return allocation.External{Desired: p.desired}
}

// Allocate is part of sharding.Strategy.
func (p *places) Allocate(_ context.Context, view allocation.View, request allocation.Request) (identity.Node, error) {
	n, _ := p.now().Allocate(view, request)
	return n, nil
}

// Rebalance is part of sharding.Strategy.
func (p *places) Rebalance(_ context.Context, view allocation.View) ([]allocation.Shard, error) {
	return p.now().Rebalance(view), nil
}

// A custom strategy decides where shards run and when they move.
func ExampleStrategy() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	network, journal := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal()
	p := &places{}
	opts := sharding.Options{Shards: 20, Strategy: p, Tuning: sharding.Tuning{RebalanceInterval: 100 * time.Millisecond}}
	var nodes []*branch
	for _, name := range []string{"a:1", "b:1"} {
		b, err := openBranch(ctx, network, journal, name, opts)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer b.stop(ctx)
		nodes = append(nodes, b)
	}
	region := nodes[0].region
	number, err := region.ShardOf("42")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"a:1", "b:1", "a:1"} {
		p.put(number, name)
		for { // the next rebalance moves the shard
			if _, err = eventsourcing.Ask(ctx, region.Ref("42"), Deposit{Amount: 10}); err != nil {
				fmt.Println(err)
				return
			}
			home, known, err := region.Home(ctx, number)
			if err != nil {
				fmt.Println(err)
				return
			}
			if known && home.Name == name {
				fmt.Println("account 42 is on", name)
				break
			}
		}
	}
	// Output:
	// account 42 is on a:1
	// account 42 is on b:1
	// account 42 is on a:1
}
