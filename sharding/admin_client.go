// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

// maxAdminPages is how many answers a list may be made of.
const maxAdminPages = 100_000

// Admin asks nodes for regions on behalf of an operator, who is no node. Its methods are safe for concurrent use. Their errors are those
// of transport.AdminClient, or an *AdminError.
type Admin struct{ asker transport.AdminClient }

// NewAdmin returns an Admin that asks through what a plugin offers, such as nats.ConnectOperator. That stays the caller's.
func NewAdmin(asker transport.AdminClient) *Admin { return &Admin{asker} }

// AdminError is what a node says that could not do what it was asked. It matches ErrNoRegion or ErrNoCoordinator, if that is why.
type AdminError struct {
	Command adminCommand
	Text    string

	is error
}

func (e *AdminError) Error() string {
	return fmt.Sprintf("sharding: %s: the node says: %s", e.Command, strings.TrimPrefix(e.Text, "sharding: "))
}

// Unwrap returns the error of this package that it matches, nil if there is none.
func (e *AdminError) Unwrap() error { return e.is }

// AdminNode is what a node has said about its regions.
type AdminNode struct {
	// Name is its name; Node is who has answered, as identity.Node.String writes it, empty if nobody has.
	Name, Node string
	Regions    []AdminRegion
	// Err says why there is nothing else. It matches ErrNoRegion if the node has no region.
	Err error
}

// Region returns the region, or the proxy, of a type; nil if there is none.
func (n *AdminNode) Region(typ string) *AdminRegion {
	for i := range n.Regions {
		if n.Regions[i].Type == typ {
			return &n.Regions[i]
		}
	}
	return nil
}

// Regions asks some nodes for all their regions and proxies, all at the same time. Kind nodes don't answer is in Err of each.
func (a *Admin) Regions(ctx context.Context, nodes []string) []AdminNode {
	found := make([]AdminNode, len(nodes))
	var all sync.WaitGroup
	for i, name := range nodes {
		all.Go(func() {
			n := AdminNode{Name: name}
			request := adminRequest{Command: adminCmdRegions}
			for answer, err := range a.pages(ctx, name, &request) {
				if n.Err = err; err != nil {
					break
				}
				n.Node, n.Regions = answer.Node, append(n.Regions, answer.Regions...)
				if len(answer.Regions) > 0 {
					request.After = answer.Regions[len(answer.Regions)-1].Type
				}
			}
			found[i] = n
		})
	}
	all.Wait()
	return found
}

// Shards yields the shards of a type that a node hosts, sorted. The error is the last that it yields.
func (a *Admin) Shards(ctx context.Context, node, typ string) iter.Seq2[AdminShard, error] {
	return func(yield func(AdminShard, error) bool) {
		request := adminRequest{Command: adminCmdShards, Type: typ}
		for answer, err := range a.pages(ctx, node, &request) {
			if err != nil {
				yield(AdminShard{}, err)
				return
			}
			for _, s := range answer.Shards {
				if request.Behind = s.Shard + 1; !yield(s, nil) {
					return
				}
			}
		}
	}
}

// Entities yields the IDs of those entities of a shard that run on a node, sorted. The error is the last that it yields.
func (a *Admin) Entities(ctx context.Context, node, typ string, shard Shard) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		request := adminRequest{Command: adminCmdEntities, Type: typ, Shard: shard}
		for answer, err := range a.pages(ctx, node, &request) {
			if err != nil {
				yield("", err)
				return
			}
			for _, id := range answer.Entities {
				if request.After = id; !yield(id, nil) {
					return
				}
			}
		}
	}
}

// Find returns where an entity is: it asks a node, then the coordinator if that one does not know, and then the home whether the
// entity runs. If the home does not answer, Running is false. A node without a region of the type does not know the shard: the error
// matches ErrNoRegion.
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
	answer, err := a.ask(ctx, node, request)
	if err != nil {
		return nil, err
	}
	if answer.Found == nil {
		return nil, fmt.Errorf("sharding: the answer to %s makes no sense", request.Command)
	}
	return answer.Found, nil
}

// nameOf returns the name of a node that is written with its UID.
func nameOf(node string) string {
	if n, err := identity.Parse(node); err == nil {
		return n.Name
	}
	return node
}

// Rebalance lets the coordinator of a type ask its strategy at once which shards should move, and returns how many begin to move. The node is the one that has the coordinator: the error matches ErrNoCoordinator if it does not.
func (a *Admin) Rebalance(ctx context.Context, node, typ string) (moving int, err error) {
	answer, err := a.ask(ctx, node, adminRequest{Command: adminCmdRebalance, Type: typ})
	if err != nil {
		return 0, err
	}
	return answer.Moving, nil
}

// Drain begins to give all shards of a node away, of one type: see Region.Drain. A proxy has none.
func (a *Admin) Drain(ctx context.Context, node, typ string) error {
	_, err := a.ask(ctx, node, adminRequest{Command: adminCmdDrain, Type: typ})
	return err
}

// Undrain lets a node take shards of a type again: see Region.Undrain.
func (a *Admin) Undrain(ctx context.Context, node, typ string) error {
	_, err := a.ask(ctx, node, adminRequest{Command: adminCmdUndrain, Type: typ})
	return err
}

// pages yields answers until there are no more. Whoever takes them sets what the next one begins behind.
func (a *Admin) pages(ctx context.Context, node string, request *adminRequest) iter.Seq2[*adminReply, error] {
	return func(yield func(*adminReply, error) bool) {
		for range maxAdminPages {
			behind, after := request.Behind, request.After
			answer, err := a.ask(ctx, node, *request)
			if !yield(answer, err) || err != nil || !answer.More {
				return
			}
			if request.Behind == behind && request.After == after { // or it would never end
				yield(nil, fmt.Errorf("sharding: the answer to %s makes no sense", request.Command))
				return
			}
		}
		yield(nil, fmt.Errorf("sharding: the answers to %s never end", request.Command))
	}
}

func (a *Admin) ask(ctx context.Context, node string, r adminRequest) (*adminReply, error) {
	r.Service = adminService
	request, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("sharding: %s: %w", r.Command, err)
	}
	b, err := a.asker.Ask(ctx, node, request)
	if err != nil {
		return nil, fmt.Errorf("sharding: ask for %s: %w", r.Command, err)
	}
	var answer adminReply
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, fmt.Errorf("sharding: the answer to %s can't be read: %w", r.Command, err)
	}
	if answer.Error == "" {
		return &answer, nil
	}
	e := &AdminError{Command: r.Command, Text: answer.Error, is: adminReasons()[answer.Reason]}
	if answer.NoService {
		e.is = ErrNoRegion
	}
	return nil, e
}
