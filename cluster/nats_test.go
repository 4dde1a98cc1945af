// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

// The test runs a cluster over a real broker in real time. Three nodes join. A singleton with a
// lease answers another node and moves. An operator requests the state. All nodes leave.
func TestOverNATS(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	broker, err := embedded.Start(embedded.Config{Configure: func(o *server.Options) { o.AuthTimeout = 60 }})
	must(t, err)
	t.Cleanup(func() { must(t, broker.Close()) })
	access := broker.Access()
	access.ConnectTimeout = time.Minute
	must(t, nats.CreateLeaseBucket(ctx, nats.LeasesConfig{Access: access, Cluster: "bank", Name: "root"}))
	start := func(name string) *cluster.Node {
		self, failed := identity.New(name)
		must(t, failed)
		carrier, failed := nats.Connect(nats.Config{Access: access, Cluster: "bank", Self: self}) //nolint:contextcheck // the carrier outlives the call
		must(t, failed)
		leases, failed := nats.OpenLeases(ctx, nats.LeasesConfig{Access: access, Cluster: "bank", Name: name})
		must(t, failed)
		t.Cleanup(func() { must(t, leases.Close()) })
		n, failed := cluster.Start(cluster.Config{ //nolint:contextcheck // the node outlives the call
			Cluster: "bank", Carrier: carrier, Seeds: []string{"a", "b", "c"}, Leases: leases, Settings: cluster.Settings{
				SeedNodeTimeout: 200 * time.Millisecond, InitialDelay: 100 * time.Millisecond, GossipInterval: 100 * time.Millisecond, LeaderInterval: 100 * time.Millisecond,
			},
		})
		must(t, failed)
		t.Cleanup(func() {
			n.Stop()
			<-n.Done()
		})
		return n
	}
	nodes := []*cluster.Node{start("a"), start("b"), start("c")}
	o := &instanceCounter{}
	for _, n := range nodes {
		must(t, n.AwaitUp(ctx))
		s := o.on(n)
		s.Lease = true
		must(t, n.Singleton(ctx, s))
	}
	p, err := nodes[2].Proxy(ctx, cluster.ProxyConfig{Singleton: "one"})
	must(t, err)
	var answer []byte
	for string(answer) != "a hello" { // a node that lacks CPU time may reject the first requests
		if answer, err = p.Ask(ctx, []byte("hello")); ctx.Err() != nil || err == nil && string(answer) != "a hello" {
			t.Fatalf("Ask = %q, %v, want \"a hello\"", answer, err)
		}
	}
	operator, err := nats.ConnectOperator(nats.OperatorConfig{Access: access, Cluster: "bank", Name: "root"})
	must(t, err)
	t.Cleanup(func() { must(t, operator.Close()) })
	var seen *cluster.Summary
	// A node accepts operators' requests only some time after it has joined, so the first requests
	// may fail. The replying node may not have received all members yet.
	for seen == nil || len(seen.Members) < 3 || seen.Leader != nodes[0].Self().String() {
		if seen, err = cluster.NewAdmin(operator).State(ctx, ""); ctx.Err() != nil {
			t.Fatalf("State = %+v, %v", seen, err)
		}
	}
	if seen.Cluster != "bank" {
		t.Errorf("State = %+v, want the cluster bank", seen)
	}
	for err = errors.New("not asked"); err != nil && !errors.Is(err, cluster.ErrNotMember) && ctx.Err() == nil; {
		err = cluster.NewAdmin(operator).Leave(ctx, "", "a")
	}
	select {
	case <-nodes[0].Done():
	case <-ctx.Done():
		t.Fatal("the node did not leave in time")
	}
	for string(answer) != "b hello" && string(answer) != "c hello" {
		answer, err = p.Ask(ctx, []byte("hello"))
		if ctx.Err() != nil {
			t.Fatalf("Ask after the singleton has moved: %v", err)
		}
	}
	o.runs(t)
	for _, n := range nodes[1:] {
		must(t, n.Shutdown(ctx))
	}
}
