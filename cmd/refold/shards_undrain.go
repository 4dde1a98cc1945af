// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/cmd/refold/operator"
)

// shardsUndrainCommand is "refold shards undrain".
type shardsUndrainCommand struct {
	Node string `arg:"" help:"The name of the node."`
}

// Help is the long help of the command.
func (c *shardsUndrainCommand) Help() string {
	return `The node may host shards of all types, or of --type, again. It gets new ones, and its part of the others with the next rebalance; what
has not moved yet stays.`
}

// Run lets a node take shards.
func (c *shardsUndrainCommand) Run(ctx context.Context, env *operator.Env, common *shardsCommand) error {
	return common.looked(ctx, func(n *nodes, all []shardNode, types []string) error { return c.undrain(ctx, env, n, all, types) })
}

func (c *shardsUndrainCommand) undrain(ctx context.Context, env *operator.Env, n *nodes, all []shardNode, types []string) error {
	at, err := member(all, c.Node)
	if err != nil {
		return err
	}
	if at.leaves {
		return fmt.Errorf("%s leaves the cluster, it takes no shards any more", c.Node)
	}
	found := false
	for _, typ := range types {
		if r := at.Region(typ); r == nil || !r.Drained {
			continue
		}
		found = true
		if err := n.shards.Undrain(ctx, c.Node, typ); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(env.Stdout, "%s takes shards of %s again\n", c.Node, plain(typ)); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%s was not drained of %s", c.Node, quoted(types))
	}
	return nil
}
