// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/shardingtest"
	"github.com/refold-io/refold/transport"
)

// replicas is a cluster with a replicator on each node, in a bubble with its own clock.
type replicas struct {
	testing.TB

	network *inmem.Network
	nodes   []*ddata.Replicator
}

func replicate(tb testing.TB, n int) *replicas {
	tb.Helper()
	w := &replicas{TB: tb, network: inmem.NewNetwork(inmem.NetworkConfig{})}
	disk := &inmem.Durable{}
	for i := range n {
		self, err := identity.New(fmt.Sprint("n", i))
		if err != nil {
			tb.Fatal(err)
		}
		node, err := cluster.Join(tb.Context(), cluster.Config{Cluster: "bank", Carrier: w.network.Carrier(self), Seeds: []string{"n0"}})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			node.Stop()
			<-node.Done()
		})
		if err = node.AwaitUp(tb.Context()); err != nil {
			tb.Fatal(err)
		}
		r, err := ddata.Start(tb.Context(), node, ddata.Config{Durable: []string{"shard-*"}, Opener: disk})
		if err != nil {
			tb.Fatal(err)
		}
		w.nodes = append(w.nodes, r)
	}
	for range 60 {
		ready := true
		for _, r := range w.nodes {
			ready = ready && r.ReplicaCount() == n
		}
		if ready {
			return w
		}
		time.Sleep(time.Second) // time of the bubble
	}
	tb.Fatal("the replicators have not found each other within a minute")
	return nil
}

// place returns the place with the faults of one node.
func (w *replicas) place() shardingtest.Place {
	at := func(node int) *ddata.Replicator { return w.nodes[node%len(w.nodes)] }
	place := shardingtest.Place{
		Coordinators: func(node int) sharding.CoordinatorStores { return sharding.ReplicatedStores{Replicator: at(node)} },
		Entities:     func(node int) sharding.RememberStores { return sharding.ReplicatedStores{Replicator: at(node)} },
		Unfenced:     true,
	}
	others := func(node int) (names []string) {
		for i, r := range w.nodes {
			if i != node {
				names = append(names, r.Node().Self().Name)
			}
		}
		return names
	}
	for name, strike := range map[string]func(own string, others []string) func(){
		"the node is cut off":           func(own string, others []string) func() { return w.network.Partition([]string{own}, others) },
		"frames from the node are lost": func(own string, others []string) func() { return w.network.CutOneWay([]string{own}, others) },
		"frames to the node are lost":   func(own string, others []string) func() { return w.network.CutOneWay(others, []string{own}) },
	} {
		place.Faults = append(place.Faults, shardingtest.Fault{Name: name, Strike: func(node int) func() {
			return strike(at(node).Node().Self().Name, others(node))
		}})
	}
	place.Faults = append(place.Faults, shardingtest.Fault{Name: "one other node is cut off", Strike: func(node int) func() {
		other := at(node + 1).Node().Self().Name
		return w.network.Partition([]string{other}, others((node+1)%len(w.nodes)))
	}})
	return place
}

func TestReplicated(t *testing.T) {
	t.Parallel()
	shardingtest.Run(t, shardingtest.Config{
		Wrap:  synctest.Test,
		Limit: time.Hour, // time of the bubble
		Open: func(tb testing.TB) shardingtest.Place {
			tb.Helper()
			w := replicate(tb, 3)
			tb.Cleanup(w.network.Inject(inmem.Fault{Delay: time.Millisecond})) // so that a fault may strike between two steps of a call
			return w.place()
		},
	})
}

// TestReplicatedOnBadNetwork checks that concurrent coordinators lose nothing although frames are
// lost, delayed and duplicated.
func TestReplicatedOnBadNetwork(t *testing.T) {
	t.Parallel()
	shardingtest.Run(t, shardingtest.Config{
		Wrap: func(t *testing.T, check func(t *testing.T)) {
			t.Helper()
			if strings.HasSuffix(t.Name(), "RivalsInTrouble") {
				synctest.Test(t, check)
			}
		},
		Limit: time.Hour, // time of the bubble
		Open: func(tb testing.TB) shardingtest.Place {
			tb.Helper()
			w := replicate(tb, 5)
			tb.Cleanup(w.network.Inject(inmem.Fault{Lanes: []transport.Lane{transport.Data, transport.Bulk}, Drop: 0.05, Duplicate: 0.05, Jitter: 5 * time.Millisecond}))
			return w.place()
		},
	})
}

// TestReplicatedWithoutOneNode checks that a coordinator can save while one of three nodes has no
// network. A new coordinator reads from more nodes than a majority and fails.
func TestReplicatedWithoutOneNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := replicate(t, 3)
		a := lead(t, sharding.ReplicatedStores{Replicator: w.nodes[0]}, "a")
		heal := w.network.Partition([]string{"n1"}, []string{"n0", "n2"})
		for i := range 5 {
			began := time.Now()
			a.must(a.save(allocated("r", shard(i))))
			if took := time.Since(began); took > time.Second {
				t.Errorf("save %d took %v, want at most 1 s", i, took)
			}
		}
		a.must(a.load())
		b := open(t, sharding.ReplicatedStores{Replicator: w.nodes[2]}, "b")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if _, err := b.store.Load(ctx); !errors.Is(err, ddata.ErrQuorum) {
			t.Errorf("Load with two of three nodes: %v, want ErrQuorum", err)
		}
		cancel()
		heal()
		time.Sleep(10 * time.Second) // time of the bubble
		b.lead()
		if err := a.save(allocated("r", 9)); !errors.Is(err, sharding.ErrFenced) {
			t.Errorf("Save of the old coordinator: %v, want ErrFenced", err)
		}
		if b.state.Shards() != 5 {
			t.Errorf("the state has %d shards, want 5", b.state.Shards())
		}
	})
}

// TestReplicatedEntitiesAreDurable checks that remembered entities require durable keys.
func TestReplicatedEntitiesAreDurable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := replicate(t, 1).nodes[0].Node()
		for i, keys := range [][]string{nil, {"shard-account||all"}, {"shard-account||1*"}, {"other-*"}} {
			cfg := ddata.Config{Name: fmt.Sprintf("r%d", i), Durable: keys}
			if len(keys) > 0 {
				cfg.Opener = &inmem.Durable{}
			}
			r, err := ddata.Start(t.Context(), node, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := (sharding.ReplicatedStores{Replicator: r}).OpenEntities(sharding.Scope{Type: "account"}); !errors.Is(err, sharding.ErrInvalid) {
				t.Errorf("durable keys %q: %v, want ErrInvalid", keys, err)
			}
		}
	})
}

// TestReplicatedClaimFences checks that a claim fences the previous coordinator before the state of
// its term is stored, even if the claim fails.
func TestReplicatedClaimFences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := replicate(t, 3)
		a, b := lead(t, sharding.ReplicatedStores{Replicator: w.nodes[0]}, "a"), open(t, sharding.ReplicatedStores{Replicator: w.nodes[1]}, "b")
		b.must(b.load())
		a.must(a.save(allocated("r", 1)))
		if err := b.save(started(2, "b")); !errors.Is(err, sharding.ErrConflict) {
			t.Errorf("a claim that does not follow the stored state: %v, want ErrConflict", err)
		}
		if err := a.save(allocated("r", 2)); !errors.Is(err, sharding.ErrFenced) {
			t.Errorf("a save after the claim of a higher term: %v, want ErrFenced", err)
		}
		b.lead()
		if b.state.Term() != 3 {
			t.Errorf("the term is %d, want 3", b.state.Term())
		}
		if _, found := b.state.Home(1); !found {
			t.Errorf("an acknowledged change was lost")
		}
	})
}

// TestReplicatedKeys checks the names of keys and the key of each entity, which never change.
func TestReplicatedKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := replicate(t, 1).nodes[0]
		lead(t, sharding.ReplicatedStores{Replicator: r}, "a")
		s := openEntities(t, sharding.ReplicatedStores{Replicator: r})
		for i, id := range []string{"x", "42", "0f8fad5b-d9cb-469f-a165-70867728950e", ""} {
			err := s.AddShards(t.Context(), []shard{shard(i)})
			if id != "" && err == nil {
				err = s.Update(t.Context(), shard(i), []string{id}, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"shard-account||0-1", "shard-account||1-1", "shard-account||2-4", "shard-account||all", "sharding|account||state", "sharding|account||terms"}
		if got := r.Keys(); !slices.Equal(got, want) {
			t.Errorf("the keys are %q, want %q", got, want)
		}
	})
}
