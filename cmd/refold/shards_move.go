// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/internal/jsontext"
	"github.com/refold-io/refold/sharding"
)

type shardsMoveCommand struct {
	waitFlags `kong:"set='until=the node hosts the shard',set='limit=2m'"`

	Shard uint32 `arg:"" help:"The number of the shard."`
	Node  string `arg:"" help:"The name of the node."`
}

func (c *shardsMoveCommand) Help() string {
	return `The shard moves without loss and stays on the node until "refold shards release": the allocation strategy does not move it.
While the node is gone, drained or leaving, the strategy chooses another node, and the shard returns later. "refold
shards" lists the shards that were moved.`
}

func (c *shardsMoveCommand) Run(ctx context.Context, env *operator.Env, common *shardsCommand) error {
	return common.withRegions(ctx, func(n *nodes, all []shardNode, types []string) error {
		typ, name, err := coordinated(all, types)
		if err != nil {
			return err
		}
		if err = n.shards.Move(ctx, name, typ, sharding.Shard(c.Shard), c.Node); err != nil {
			return err
		}
		if !c.Wait {
			_, err = fmt.Fprintf(env.Stdout, "shard %d of %s moves to %s and stays there until it is released\n", c.Shard, jsontext.Printable(typ), c.Node)
			return err
		}
		if err = c.await(ctx, n, typ); err != nil {
			return err
		}
		_, err = fmt.Fprintf(env.Stdout, "shard %d of %s is on %s and stays there until it is released\n", c.Shard, jsontext.Printable(typ), c.Node)
		return err
	})
}

// await waits until the node hosts the shard.
func (c *shardsMoveCommand) await(ctx context.Context, n *nodes, typ string) error {
	ctx, cancel := context.WithTimeout(ctx, c.WaitTimeout)
	defer cancel()
	for {
		for at, err := range n.shards.Shards(ctx, c.Node, typ) {
			if err != nil {
				return err
			}
			if at.Shard == sharding.Shard(c.Shard) {
				return nil
			}
		}
		if err := rest(ctx); err != nil {
			return fmt.Errorf("shard %d of %s is not on %s yet; a shard without commands moves with its next command: %w", c.Shard, typ, c.Node, err)
		}
	}
}

type shardsReleaseCommand struct {
	Shard uint32 `arg:"" help:"The number of the shard."`
}

func (c *shardsReleaseCommand) Help() string {
	return `Undoes "refold shards move". The shard stays where it is until the allocation strategy moves it.`
}

func (c *shardsReleaseCommand) Run(ctx context.Context, env *operator.Env, common *shardsCommand) error {
	return common.withRegions(ctx, func(n *nodes, all []shardNode, types []string) error {
		typ, name, err := coordinated(all, types)
		if err != nil {
			return err
		}
		if err = n.shards.Release(ctx, name, typ, sharding.Shard(c.Shard)); err != nil {
			return err
		}
		_, err = fmt.Fprintf(env.Stdout, "the allocation strategy may move shard %d of %s\n", c.Shard, jsontext.Printable(typ))
		return err
	})
}

// coordinated returns the selected type and the name of the node that runs its coordinator.
func coordinated(all []shardNode, types []string) (typ, node string, err error) {
	if typ, err = one(types); err != nil {
		return "", "", err
	}
	node, state := coordinatorOf(all, typ)
	if state == nil {
		return "", "", fmt.Errorf("no responding node runs the coordinator of %q", typ)
	}
	return typ, node, nil
}
