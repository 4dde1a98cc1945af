// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"iter"
	"sync"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/adminrpc"
	"github.com/refold-io/refold/transport"
)

// Admin sends requests of an operator to nodes. Its methods are safe for concurrent use. They
// return the errors of transport.AdminClient, and the errors that nodes report, which match
// ErrNoRegion or ErrNoCoordinator if that is the cause.
type Admin struct{ client *adminrpc.Client }

// NewAdmin returns an Admin that sends its requests through a client of a plugin, such as
// nats.ConnectOperator. It does not close the client.
func NewAdmin(client transport.AdminClient) *Admin {
	return &Admin{adminrpc.NewClient(client, adminProtocol())}
}

// AdminNode is the reply of a node about its regions.
type AdminNode struct {
	// Name is the name of the node. Node is the replying incarnation in the format of
	// identity.Node.String, empty without a reply.
	Name, Node string
	Regions    []AdminRegion
	// Err is the reason for which Regions is missing or incomplete. It matches ErrNoRegion if the
	// node has no region.
	Err error
}

// Region returns the region or the proxy of a type, nil if there is none.
func (n *AdminNode) Region(typ string) *AdminRegion {
	for i := range n.Regions {
		if n.Regions[i].Type == typ {
			return &n.Regions[i]
		}
	}
	return nil
}

// Regions returns all regions and proxies of some nodes. It sends the requests concurrently and
// reports failures in AdminNode.Err.
func (a *Admin) Regions(ctx context.Context, nodes []string) []AdminNode {
	found := make([]AdminNode, len(nodes))
	var all sync.WaitGroup
	for i, name := range nodes {
		all.Go(func() {
			n := AdminNode{Name: name}
			request := adminRequest{Command: adminCmdRegions}
			for reply, err := range a.pages(ctx, name, &request) {
				if n.Err = err; err != nil {
					break
				}
				n.Node, n.Regions = reply.Node, append(n.Regions, reply.Regions...)
				if len(reply.Regions) > 0 {
					request.After = reply.Regions[len(reply.Regions)-1].Type
				}
			}
			found[i] = n
		})
	}
	all.Wait()
	return found
}

// Shards yields the shards of a type that a node hosts, sorted. An error ends the sequence.
func (a *Admin) Shards(ctx context.Context, node, typ string) iter.Seq2[ShardCount, error] {
	return func(yield func(ShardCount, error) bool) {
		request := adminRequest{Command: adminCmdShards, Type: typ}
		for reply, err := range a.pages(ctx, node, &request) {
			if err != nil {
				yield(ShardCount{}, err)
				return
			}
			for _, s := range reply.Shards {
				if request.Behind = s.Shard + 1; !yield(s, nil) {
					return
				}
			}
		}
	}
}

// Entities yields the IDs of the entities of a shard that run on a node, sorted. An error ends the
// sequence.
func (a *Admin) Entities(ctx context.Context, node, typ string, shard Shard) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		request := adminRequest{Command: adminCmdEntities, Type: typ, Shard: shard}
		for reply, err := range a.pages(ctx, node, &request) {
			if err != nil {
				yield("", err)
				return
			}
			for _, id := range reply.Entities {
				if request.After = id; !yield(id, nil) {
					return
				}
			}
		}
	}
}

// Find returns the location of an entity. It asks the given node first, then the coordinator if
// that node has no home for the shard, then the home whether the entity runs. If the home does not
// reply, Running is false. The error matches ErrNoRegion if the given node has no region of the
// type.
func (a *Admin) Find(ctx context.Context, node, typ, id string) (*AdminFound, error) {
	request := adminRequest{Command: adminCmdFind, Type: typ, ID: id}
	found, err := a.find(ctx, node, request)
	if err != nil {
		return nil, err
	}
	if found.Home == "" && found.Coordinator != "" {
		if from, err := a.find(ctx, nameOf(found.Coordinator), request); err == nil {
			found.Home = from.Home
		}
	}
	if found.Running = false; found.Home == "" {
		return found, nil
	}
	if at, err := a.find(ctx, nameOf(found.Home), request); err == nil {
		found.Running = at.Running
	}
	return found, nil
}

func (a *Admin) find(ctx context.Context, node string, request adminRequest) (*AdminFound, error) {
	reply, err := a.ask(ctx, node, request)
	if err != nil {
		return nil, err
	}
	if reply.Found == nil {
		return nil, a.client.Malformed(string(request.Command), "no location")
	}
	return reply.Found, nil
}

// nameOf returns the name in the text form of a node.
func nameOf(node string) string {
	if n, err := identity.Parse(node); err == nil {
		return n.Name
	}
	return node
}

// Rebalance runs the strategy of a type once and returns the number of hand-offs that it starts.
// The node must run the coordinator of the type, otherwise the error matches ErrNoCoordinator.
func (a *Admin) Rebalance(ctx context.Context, node, typ string) (moving int, err error) {
	reply, err := a.ask(ctx, node, adminRequest{Command: adminCmdRebalance, Type: typ})
	if err != nil {
		return 0, err
	}
	return reply.Moving, nil
}

// Drain starts to hand off all shards of a type that a node hosts: see Region.Drain. It does
// nothing on a proxy.
func (a *Admin) Drain(ctx context.Context, node, typ string) error {
	_, err := a.ask(ctx, node, adminRequest{Command: adminCmdDrain, Type: typ})
	return err
}

// Undrain cancels Drain: see Region.Undrain.
func (a *Admin) Undrain(ctx context.Context, node, typ string) error {
	_, err := a.ask(ctx, node, adminRequest{Command: adminCmdUndrain, Type: typ})
	return err
}

// pages yields the replies of a list. The consumer sets in the request where the next page begins.
func (a *Admin) pages(ctx context.Context, node string, r *adminRequest) iter.Seq2[*adminReply, error] {
	r.Service = adminService
	return adminrpc.Pages[adminRequest, adminReply](ctx, a.client, node, string(r.Command), r)
}

func (a *Admin) ask(ctx context.Context, node string, r adminRequest) (*adminReply, error) {
	r.Service = adminService
	return adminrpc.Ask[adminReply](ctx, a.client, node, string(r.Command), r)
}
