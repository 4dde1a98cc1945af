// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/plugins/nats"
)

// clusterCommand is "refold cluster".
type clusterCommand struct {
	clusterFlags

	Ask string `help:"The node to ask. Defaults to any that answers." placeholder:"NODE"`

	Members     clusterMembersCommand     `cmd:"" help:"Show the members: status, reachability, leader, roles, versions."`
	Leave       clusterLeaveCommand       `cmd:"" help:"Let a member leave: it hands over what it hosts, and ends."`
	Down        clusterDownCommand        `cmd:"" help:"Say that a member is dead: what it hosted starts elsewhere."`
	Prepare     clusterPrepareCommand     `cmd:"" name:"prepare-for-shutdown" help:"Announce that the whole cluster is going to stop."`
	Permissions clusterPermissionsCommand `cmd:"" name:"nats-permissions" help:"Print what the NATS user of a node, or of an operator, has to be allowed."`
}

// clusterDownCommand is "refold cluster down".
type clusterDownCommand struct {
	Node string `arg:"" help:"The name of the member, or the name and the UID as members shows them."`
}

// Help is the long help of the command.
func (c *clusterDownCommand) Help() string {
	return `What the member hosted starts elsewhere. If it is alive and can't hear of that, it goes on hosting as well: make sure
first that its process is dead.`
}

// Run says that a member is dead.
func (c *clusterDownCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	err := common.with(func(n *nodes) error { return n.members.Down(ctx, common.Ask, c.Node) })
	if err == nil {
		_, err = fmt.Fprintf(env.Stdout, "%s is down\n", c.Node)
	}
	return err
}

// clusterPrepareCommand is "refold cluster prepare-for-shutdown".
type clusterPrepareCommand struct{}

// Run announces the end.
func (c *clusterPrepareCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	err := common.with(func(n *nodes) error { return n.members.PrepareForShutdown(ctx, common.Ask) })
	if err == nil {
		_, err = fmt.Fprintln(env.Stdout, "nobody joins any more, and nothing is handed over; now stop the nodes")
	}
	return err
}

// clusterPermissionsCommand is "refold cluster nats-permissions".
type clusterPermissionsCommand struct {
	Who          string        `arg:"" enum:"node,operator" help:"${enum}"`
	Is           string        `arg:"" name:"name" help:"The name of the node or of the operator."`
	LeaseTimeout time.Duration `help:"Allow a node leases with this time-out, too." placeholder:"TIME"`
}

// Help is the long help of the command.
func (c *clusterPermissionsCommand) Help() string {
	return `The text goes into the configuration of the NATS servers, into the user's block. A node is allowed to hear what
is for it and to speak for itself only: that is what makes certain who a message is from.`
}

// Run prints the permissions.
func (c *clusterPermissionsCommand) Run(env *operator.Env, common *clusterCommand) error {
	if err := common.named(); err != nil {
		return err
	}
	permissions, err := nats.OperatorPermissions(common.Cluster, c.Is)
	if c.Who == "node" {
		permissions, err = nats.NodePermissions(common.Cluster, c.Is)
	}
	if err != nil {
		return err
	}
	if c.LeaseTimeout != 0 {
		if c.Who != "node" {
			return errors.New("--lease-timeout is for nodes: operators hold no leases")
		}
		leases, failed := nats.LeasePermissions(common.Cluster, c.Is, c.LeaseTimeout)
		if failed != nil {
			return failed
		}
		permissions = permissions.And(leases)
	}
	_, err = fmt.Fprintln(env.Stdout, permissions)
	return err
}
