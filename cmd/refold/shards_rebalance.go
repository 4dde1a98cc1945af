// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/internal/jsontext"
	"github.com/refold-io/refold/sharding"
)

type shardsRebalanceCommand struct {
	waitFlags `kong:"set='until=no shard moves, and repeat the rebalance until then',set='limit=10m'"`
}

func (c *shardsRebalanceCommand) Help() string {
	return `The coordinator rebalances periodically; this command starts a rebalance now. The allocation strategy bounds the number of
shards that move at once. No shard moves while members are unreachable, joining, or of different versions.`
}

func (c *shardsRebalanceCommand) Run(ctx context.Context, env *operator.Env, common *shardsCommand) error {
	return common.withRegions(ctx, func(n *nodes, all []shardNode, types []string) error {
		typ, err := one(types)
		if err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, c.WaitTimeout)
		defer cancel()
		moved := 0
		for {
			moving, open, err := n.rebalance(limited, all, typ)
			if err != nil {
				return err
			}
			if moved += moving; !c.Wait {
				_, err = fmt.Fprintf(env.Stdout, "%d shards of %s move%s\n", moved, jsontext.Printable(typ), reasonForNone(moved))
				return err
			}
			if moving == 0 && open == 0 {
				_, err = fmt.Fprintf(env.Stdout, "%d shards of %s have moved\n", moved, jsontext.Printable(typ))
				return err
			}
			if err = rest(limited); err != nil {
				return fmt.Errorf("%d shards of %s have moved so far: %w", moved, typ, err)
			}
			if all, _, err = common.regions(limited, n); err != nil {
				return err
			}
		}
	})
}

// rebalance returns how many shards start to move, and how many are already moving.
func (n *nodes) rebalance(ctx context.Context, all []shardNode, typ string) (moving, open int, err error) {
	name, state := coordinatorOf(all, typ)
	if state == nil {
		return 0, 0, fmt.Errorf("no responding node runs the coordinator of %q", typ)
	}
	moving, err = n.shards.Rebalance(ctx, name, typ)
	return moving, state.Moving, err
}

func reasonForNone(moved int) string {
	if moved > 0 {
		return ""
	}
	return ": they are balanced, or members are unreachable, joining or of different versions"
}

type shardsDrainCommand struct {
	waitFlags `kong:"set='until=the node hosts no shards',set='limit=2m'"`

	Node string `required:"" help:"The name of the node." placeholder:"NODE"`
}

func (c *shardsDrainCommand) Help() string {
	return `The shards of all types, or of --type, move to other nodes without loss. The node remains a member and can reach all
entities, but hosts none until it restarts or is undrained. "refold cluster leave" includes a drain.`
}

func (c *shardsDrainCommand) Run(ctx context.Context, env *operator.Env, common *shardsCommand) error {
	return common.withRegions(ctx, func(n *nodes, all []shardNode, types []string) error {
		types, err := c.types(all, types)
		if err != nil {
			return err
		}
		for _, typ := range types {
			if err = n.shards.Drain(ctx, c.Node, typ); err != nil {
				return err
			}
			if _, err = fmt.Fprintf(env.Stdout, "%s is draining shards of %s\n", c.Node, jsontext.Printable(typ)); err != nil {
				return err
			}
		}
		if !c.Wait {
			return nil
		}
		if err = c.await(ctx, n, types); err != nil {
			return err
		}
		for _, typ := range types {
			if _, err = fmt.Fprintf(env.Stdout, "%s hosts no more shards of %s\n", c.Node, jsontext.Printable(typ)); err != nil {
				return err
			}
		}
		return nil
	})
}

// types returns the types to drain. For each, another node must be able to host the shards.
func (c *shardsDrainCommand) types(all []shardNode, among []string) ([]string, error) {
	from, err := member(all, c.Node)
	if err != nil {
		return nil, err
	}
	var types []string
	for _, typ := range among {
		r := from.Region(typ)
		if r == nil || r.Proxy {
			continue
		}
		if !slices.ContainsFunc(all, func(n shardNode) bool {
			other := n.Region(r.Type)
			return n.Name != c.Node && other != nil && !other.Proxy && !other.Drained && other.Mismatch == "" && !n.leaves
		}) {
			return nil, fmt.Errorf("no other responding node can host shards of %q: the others are drained, leaving, refused or proxies; commands for its %d shards would wait", r.Type, r.Shards)
		}
		types = append(types, r.Type)
	}
	if len(types) == 0 {
		return nil, fmt.Errorf("%s hosts no shards of %s: it has no region, or only a proxy", c.Node, quoted(among))
	}
	return types, nil
}

func (c *shardsDrainCommand) await(ctx context.Context, n *nodes, types []string) error {
	ctx, cancel := context.WithTimeout(ctx, c.WaitTimeout)
	defer cancel()
	for {
		at := n.shards.Regions(ctx, []string{c.Node})[0]
		left := 0
		for _, typ := range types {
			if r := at.Region(typ); r != nil {
				left += r.Shards
			}
		}
		switch {
		case at.Err == nil && left == 0:
			return nil
		case errors.Is(at.Err, sharding.ErrNoRegion):
			return at.Err
		}
		if err := rest(ctx); err != nil {
			return errors.Join(fmt.Errorf("%s is draining, %d shards are left: %w", c.Node, left, err), at.Err)
		}
	}
}

type shardsUndrainCommand struct {
	Node string `required:"" help:"The name of the node." placeholder:"NODE"`
}

func (c *shardsUndrainCommand) Help() string {
	return `The node may host shards of all types, or of --type, again. It receives new shards immediately, and others with the next
rebalance. Shards that have not moved yet stay.`
}

func (c *shardsUndrainCommand) Run(ctx context.Context, env *operator.Env, common *shardsCommand) error {
	return common.withRegions(ctx, func(n *nodes, all []shardNode, types []string) error { return c.undrain(ctx, env, n, all, types) })
}

func (c *shardsUndrainCommand) undrain(ctx context.Context, env *operator.Env, n *nodes, all []shardNode, types []string) error {
	at, err := member(all, c.Node)
	if err != nil {
		return err
	}
	if at.leaves {
		return fmt.Errorf("%s is leaving the cluster and cannot host shards", c.Node)
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
		if _, err := fmt.Fprintf(env.Stdout, "%s can host shards of %s again\n", c.Node, jsontext.Printable(typ)); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%s was not drained of %s", c.Node, quoted(types))
	}
	return nil
}
