// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/transport"
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

// clusterLeaveCommand is "refold cluster leave".
type clusterLeaveCommand struct {
	waitFlags `kong:"set='until=it is gone',set='limit=2m'"`

	Node string `arg:"" help:"The name of the member, or the name and the UID as members shows them."`
}

// Run lets a member leave.
func (c *clusterLeaveCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	return common.with(func(n *nodes) error {
		who, alone, err := c.find(ctx, common, n)
		if err == nil {
			err = n.members.Leave(ctx, common.Ask, who)
		}
		if err == nil {
			_, err = fmt.Fprintf(env.Stdout, "%s leaves\n", c.Node)
		}
		if err != nil || !c.Wait {
			return err
		}
		if err = c.await(ctx, common, n, who, alone); err != nil {
			return err
		}
		_, err = fmt.Fprintf(env.Stdout, "%s is gone\n", c.Node)
		return err
	})
}

// find returns which incarnation is waited for, and whether nobody answers once that is gone. A member that is
// not found is left to the node to report.
func (c *clusterLeaveCommand) find(ctx context.Context, common *clusterCommand, n *nodes) (who string, alone bool, err error) {
	if !c.Wait {
		return c.Node, false, nil
	}
	s, err := n.members.State(ctx, common.Ask)
	if err != nil {
		return "", false, err
	}
	who = c.Node
	for i := range s.Members {
		if m := &s.Members[i]; m.Status != cluster.Down.String() && strings.HasPrefix(m.Node, c.Node+"#") {
			who = m.Node
		}
	}
	return who, last(s, common, who), nil
}

// last reports whether nobody is left to answer once a member is gone.
func last(s *cluster.Summary, common *clusterCommand, who string) bool {
	if name, _, _ := strings.Cut(who, "#"); name == common.Ask {
		return true
	}
	return !slices.ContainsFunc(s.Members, func(m cluster.SummaryMember) bool {
		return m.Node != who && m.Status != cluster.Down.String() && m.Status != cluster.Exiting.String()
	})
}

// await waits until a member is gone. That nobody answers meanwhile is no reason to give up.
func (c *clusterLeaveCommand) await(ctx context.Context, common *clusterCommand, n *nodes, who string, alone bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.WaitTimeout)
	defer cancel()
	for {
		s, err := n.members.State(ctx, common.Ask)
		switch {
		case err == nil && !slices.ContainsFunc(s.Members, func(m cluster.SummaryMember) bool { return m.Node == who }):
			return nil
		case err == nil:
			alone = last(s, common, who)
		case alone && errors.Is(err, transport.ErrNoNode):
			return nil
		}
		if late := rest(ctx); late != nil {
			return errors.Join(fmt.Errorf("%s was told to leave, and is not gone yet: %w", who, late), err)
		}
	}
}
