// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

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
	return common.with(func(n *shardNodes) error {
		all, err := n.look(ctx)
		if err != nil {
			return err
		}
		if _, err = common.typesOf(all); err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(n shardNode) bool { return n.Name == c.Node })
		if i < 0 {
			return fmt.Errorf("there is no member %q", c.Node)
		}
		if err := all[i].Err; err != nil {
			return err
		}
		found := false
		for j := range all[i].Regions {
			r := &all[i].Regions[j]
			if !r.Drained || common.Type != "" && common.Type != r.Type {
				continue
			}
			found = true
			if err := n.shards.Undrain(ctx, c.Node, r.Type); err != nil {
				return err
			}
			if _, err := fmt.Fprintf(env.Stdout, "%s takes shards of %s again\n", c.Node, plain(r.Type)); err != nil {
				return err
			}
		}
		if !found {
			return fmt.Errorf("%s was not drained of that", c.Node)
		}
		return nil
	})
}
