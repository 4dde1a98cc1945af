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
	"time"

	"github.com/alecthomas/kong"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/sharding"
)

// shardsCommand is "refold shards".
type shardsCommand struct {
	natsFlags

	Cluster  string        `help:"The name of the cluster. Required." env:"REFOLD_CLUSTER" placeholder:"NAME"`
	Operator string        `help:"The name by which the nodes know you." default:"operator" placeholder:"NAME"`
	Ask      string        `help:"The node that is asked who is in the cluster. Defaults to any that answers." placeholder:"NODE"`
	Timeout  time.Duration `help:"How long to wait for an answer." default:"10s"`
	Type     string        `help:"The entity type. Needed where it matters and there are several." placeholder:"NAME"`

	List      shardsListCommand      `cmd:"" default:"withargs" help:"Show how many shards and entities each node has. That is what happens without a command, too."`
	Entities  shardsEntitiesCommand  `cmd:"" help:"Show how many entities each shard has, or which ones run in one."`
	Find      shardsFindCommand      `cmd:"" help:"Say in which shard, and on which node, an entity is."`
	Rebalance shardsRebalanceCommand `cmd:"" help:"Let the coordinator look now which shards should move."`
	Drain     shardsDrainCommand     `cmd:"" help:"Let a node give all its shards away."`
	Undrain   shardsUndrainCommand   `cmd:"" help:"Let a node that was drained take shards again."`
}

// AfterApply hands the common flags to the subcommands.
func (c *shardsCommand) AfterApply(k *kong.Context) error {
	switch {
	case c.Cluster == "":
		return errors.New("--cluster is missing: the name of the cluster")
	case c.Timeout <= 0:
		return fmt.Errorf("--timeout is %v, it must be more than 0", c.Timeout)
	}
	k.Bind(c)
	return nil
}

// shardNodes asks nodes about shards, or about the cluster.
type shardNodes struct {
	common  *shardsCommand
	shards  *sharding.Admin
	members *cluster.Admin
}

// with asks the nodes something, and waits for each answer as long as the flags say.
func (c *shardsCommand) with(f func(n *shardNodes) error) (err error) {
	op, err := nats.ConnectOperator(nats.OperatorConfig{Access: c.access(c.Timeout), Cluster: c.Cluster, Name: c.Operator})
	if err != nil {
		return hint(err)
	}
	defer func() { err = errors.Join(err, op.Close()) }()
	asker := patient{op, c.Timeout}
	return f(&shardNodes{c, sharding.NewAdmin(asker), cluster.NewAdmin(asker)})
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

// look asks all members what they host.
func (n *shardNodes) look(ctx context.Context) ([]shardNode, error) {
	s, err := n.members.State(ctx, n.common.Ask)
	if err != nil {
		return nil, err
	}
	var names []string
	var all []shardNode
	for i := range s.Members {
		switch m := &s.Members[i]; m.Status {
		case cluster.Down.String(), cluster.Joining.String():
		default:
			name, _, _ := strings.Cut(m.Node, "#")
			names = append(names, name)
			all = append(all, shardNode{leaves: m.Status == cluster.Leaving.String() || m.Status == cluster.Exiting.String()})
		}
	}
	for i, said := range n.shards.Regions(ctx, names) {
		all[i].AdminNode = said
	}
	return all, nil
}

// typesOf returns the types that nodes have, sorted: the one that --type names, if it does. If there is none the error says who was
// asked.
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
func (c *shardsCommand) one(all []shardNode) (string, error) {
	types, err := c.typesOf(all)
	if err == nil && len(types) > 1 {
		err = fmt.Errorf("there are several entity types, --type says which: %s", quoted(types))
	}
	if err != nil {
		return "", err
	}
	return types[0], nil
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
