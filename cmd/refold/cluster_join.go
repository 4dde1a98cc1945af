// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/operator"
)

type clusterJoinCommand struct {
	waitFlags `kong:"set='until=the node is a member',set='limit=2m'"`

	Node  string `arg:"" help:"The name of the node, which runs without seeds."`
	Seed  string `arg:"" optional:"" help:"The name of a member through which the node joins."`
	Found bool   `help:"Let the node found the cluster. No other node of the cluster may run."`
}

func (c *clusterJoinCommand) Help() string {
	return `The command checks that SEED is a member, then sends the request to NODE. A node with seeds joins by itself and needs no
command. With --found, the first node of a new cluster starts without a seed. If another node of the same cluster runs, --found
creates a second cluster, and both may host the same shards.`
}

func (c *clusterJoinCommand) Validate() error {
	switch {
	case c.Found == (c.Seed != ""):
		return errors.New("expected either SEED or --found")
	case c.Seed == c.Node:
		return errors.New("a node cannot join through itself: use --found for the first node of a cluster")
	}
	return c.waitFlags.Validate()
}

func (c *clusterJoinCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	seed, how := c.Seed, "joins through "+c.Seed
	if c.Found {
		seed, how = c.Node, "founds the cluster"
	}
	return common.with(func(n *nodes) error {
		if !c.Found {
			if err := c.checkSeed(ctx, common, n); err != nil {
				return err
			}
		}
		err := n.members.Join(ctx, c.Node, seed)
		if err == nil {
			_, err = fmt.Fprintf(env.Stdout, "%s %s\n", c.Node, how)
		}
		if err != nil || !c.Wait {
			return err
		}
		if err = c.await(ctx, n); err != nil {
			return err
		}
		_, err = fmt.Fprintf(env.Stdout, "%s is a member\n", c.Node)
		return err
	})
}

// checkSeed returns an error if the seed is not a member: the node would wait for it.
func (c *clusterJoinCommand) checkSeed(ctx context.Context, common *clusterCommand, n *nodes) error {
	s, err := n.members.State(ctx, common.Ask)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(s.Members, func(m cluster.SummaryMember) bool { return strings.HasPrefix(m.Node, c.Seed+"#") }) {
		return fmt.Errorf("%w: %s", cluster.ErrNotMember, c.Seed)
	}
	return nil
}

// await waits until the node reports itself as a member.
func (c *clusterJoinCommand) await(ctx context.Context, n *nodes) error {
	ctx, cancel := context.WithTimeout(ctx, c.WaitTimeout)
	defer cancel()
	for {
		s, err := n.members.State(ctx, c.Node)
		if err == nil && slices.ContainsFunc(s.Members, func(m cluster.SummaryMember) bool { return m.Node == s.Self }) {
			return nil
		}
		if late := rest(ctx); late != nil {
			return errors.Join(fmt.Errorf("%s has started to join, but is not a member yet: %w", c.Node, late), err)
		}
	}
}
