// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodes starts the nodes of an example and a NATS server in one process. In production each
// node is a process of its own, and the servers run elsewhere.
package nodes

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

// Cluster consists of the nodes of an example.
type Cluster struct {
	// Nodes are the nodes in the order of their names: "shop-0", "shop-1" and so on in a cluster
	// with the name "shop".
	Nodes  []*cluster.Node
	server *embedded.Server
}

// Start starts a number of nodes and waits until all are Up.
func Start(ctx context.Context, name string, count int) (c *Cluster, err error) {
	c = new(Cluster)
	if c.server, err = embedded.Start(embedded.Config{}); err != nil { //nolint:contextcheck // the server outlives the call
		return nil, err
	}
	for i := range count {
		if err := c.add(ctx, name, fmt.Sprintf("%s-%d", name, i)); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

func (c *Cluster) add(ctx context.Context, name, node string) error {
	self, err := identity.New(node)
	if err != nil {
		return err
	}
	carrier, err := nats.Connect(nats.Config{Access: c.server.Access(), Cluster: name, Self: self}) //nolint:contextcheck // the carrier outlives the call
	if err != nil {
		return err
	}
	n, err := cluster.Join(ctx, cluster.Config{Cluster: name, Carrier: carrier, Seeds: []string{name + "-0"}})
	if err != nil {
		return err
	}
	c.Nodes = append(c.Nodes, n)
	return n.AwaitUp(ctx)
}

// Replicate starts a replicator on each node and waits until each has found the others. Before that,
// one node could be a majority.
func (c *Cluster) Replicate(ctx context.Context, cfg ddata.Config) ([]*ddata.Replicator, error) {
	var all []*ddata.Replicator
	for _, n := range c.Nodes {
		r, err := ddata.Start(ctx, n, cfg)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	for _, r := range all {
		if err := r.AwaitReplicas(ctx, len(all)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Crash ends a node without a leave.
func (c *Cluster) Crash(node int) {
	c.Nodes[node].Stop()
	<-c.Nodes[node].Done()
}

// Close ends all nodes and the server. The nodes do not leave the cluster in order.
func (c *Cluster) Close() error {
	for i := range c.Nodes {
		c.Crash(i)
	}
	return c.server.Close()
}
