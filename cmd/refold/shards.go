// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/refold-io/refold/sharding"
)

// shardsCommand is "refold shards".
type shardsCommand struct {
	clusterFlags

	Ask  string `help:"The node that is asked who is in the cluster. Defaults to any that answers." placeholder:"NODE"`
	Type string `help:"The entity type. Needed where it matters and there are several." placeholder:"NAME"`

	List      shardsListCommand      `cmd:"" default:"withargs" help:"Show how many shards and entities each node has. That is what happens without a command, too."`
	Entities  shardsEntitiesCommand  `cmd:"" help:"Show how many entities each shard has, or which ones run in one."`
	Find      shardsFindCommand      `cmd:"" help:"Say in which shard, and on which node, an entity is."`
	Rebalance shardsRebalanceCommand `cmd:"" help:"Let the coordinator look now which shards should move."`
	Drain     shardsDrainCommand     `cmd:"" help:"Let a node give all its shards away."`
	Undrain   shardsUndrainCommand   `cmd:"" help:"Let a node that was drained take shards again."`
}

// shardNode is a member, and what it has said.
type shardNode struct {
	sharding.AdminNode

	leaves bool
}

// silent returns why the member has not said anything. That is nil if nothing is to be expected: it has no region, or it leaves, and may be
// gone already.
func (n *shardNode) silent() error {
	if n.leaves || errors.Is(n.Err, sharding.ErrNoRegion) {
		return nil
	}
	return n.Err
}

// look asks all members what they host, and returns the types that there are, sorted: the one that --type names, if it does.
func (c *shardsCommand) look(ctx context.Context, n *nodes) (all []shardNode, types []string, err error) {
	names, leaves, err := n.present(ctx, c.Ask)
	if err != nil {
		return nil, nil, err
	}
	for _, said := range n.shards.Regions(ctx, names) {
		all = append(all, shardNode{said, leaves[said.Name]})
	}
	types, err = c.typesOf(all)
	return all, types, err
}

// looked looks, and lets do go on with that.
func (c *shardsCommand) looked(ctx context.Context, do func(n *nodes, all []shardNode, types []string) error) error {
	return c.with(func(n *nodes) error {
		all, types, err := c.look(ctx, n)
		if err != nil {
			return err
		}
		return do(n, all, types)
	})
}

// typesOf returns the types that nodes have. If there is none the error says who was asked.
func (c *shardsCommand) typesOf(all []shardNode) ([]string, error) {
	found := map[string]bool{}
	var asked []string
	for i := range all {
		what := all[i].Name
		if err := all[i].silent(); err != nil {
			what += " (" + err.Error() + ")"
		}
		asked = append(asked, what)
		for j := range all[i].Regions {
			found[all[i].Regions[j].Type] = true
		}
	}
	types := slices.Sorted(maps.Keys(found))
	switch {
	case len(types) == 0:
		return nil, fmt.Errorf("no node of cluster %q has sharded entities; asked: %s", c.Cluster, strings.Join(asked, ", "))
	case c.Type == "":
		return types, nil
	case !found[c.Type]:
		return nil, fmt.Errorf("there is no entity type %q; there are: %s", c.Type, quoted(types))
	}
	return []string{c.Type}, nil
}

// one returns the only type that there is, or that --type names.
func one(types []string) (string, error) {
	if len(types) > 1 {
		return "", fmt.Errorf("there are several entity types, --type says which: %s", quoted(types))
	}
	return types[0], nil
}

// member returns the one with a name, which has answered.
func member(all []shardNode, name string) (*shardNode, error) {
	var names []string
	for i := range all {
		if all[i].Name == name {
			return &all[i], all[i].Err
		}
		names = append(names, all[i].Name)
	}
	return nil, fmt.Errorf("there is no member %q; there are: %s", name, quoted(names))
}

func quoted(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, strconv.Quote(name))
	}
	return strings.Join(all, ", ")
}

// coordinatorOf returns the node that has the coordinator of a type, by its name.
func coordinatorOf(all []shardNode, typ string) (string, *sharding.AdminCoordinator) {
	name := ""
	var state *sharding.AdminCoordinator
	for i := range all {
		if r := all[i].Region(typ); r != nil && r.CoordinatorState != nil && (state == nil || r.CoordinatorState.Term > state.Term) {
			name, state = all[i].Name, r.CoordinatorState
		}
	}
	return name, state
}
