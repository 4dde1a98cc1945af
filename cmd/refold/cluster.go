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

type clusterCommand struct {
	clusterFlags

	Ask string `help:"The node to query. Defaults to any node." placeholder:"NODE"`

	Members     clusterMembersCommand     `cmd:"" help:"Show the members: status, reachability, leader, roles, versions."`
	Singletons  clusterSingletonsCommand  `cmd:"" help:"Show the singletons, and the node that runs each of them."`
	Join        clusterJoinCommand        `cmd:"" help:"Make a node that was started without seeds join the cluster, or found it."`
	Leave       clusterLeaveCommand       `cmd:"" help:"Make a member hand over its work and leave the cluster."`
	Down        clusterDownCommand        `cmd:"" help:"Mark a member as dead, so that other members take over its work."`
	Prepare     clusterPrepareCommand     `cmd:"" name:"prepare-for-shutdown" help:"Announce that the whole cluster is about to stop."`
	Permissions clusterPermissionsCommand `cmd:"" name:"nats-permissions" help:"Print the NATS permissions of a node or an operator."`
	LeaseBucket clusterLeaseBucketCommand `cmd:"" name:"lease-bucket" help:"Create the bucket of the leases, or correct its settings."`
}

type clusterDownCommand struct {
	Node string `arg:"" help:"The name of the member, or name#UID as members prints it."`
}

func (c *clusterDownCommand) Help() string {
	return `Other members take over the work of the member. A member that is alive, but does not receive its removal, continues to
host its shards and singletons. Make sure first that its process is dead. The credential of the member stays valid: a process that
has it can join again. To lock it out, revoke its NATS user first.`
}

func (c *clusterDownCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	err := common.with(func(n *nodes) error { return n.members.Down(ctx, common.Ask, c.Node) })
	if err == nil {
		_, err = fmt.Fprintf(env.Stdout, "%s is down\n", c.Node)
	}
	return err
}

type clusterPrepareCommand struct{}

func (c *clusterPrepareCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	err := common.with(func(n *nodes) error { return n.members.PrepareForShutdown(ctx, common.Ask) })
	if err == nil {
		_, err = fmt.Fprintln(env.Stdout, "the cluster admits no more nodes and moves no more shards; stop the nodes now")
	}
	return err
}

type clusterPermissionsCommand struct {
	User         string        `arg:"" enum:"node,operator" help:"${enum}"`
	Is           string        `arg:"" name:"name" help:"The name of the node or of the operator."`
	ReadOnly     bool          `help:"Allow an operator to query nodes only, not to change them."`
	Service      []string      `help:"Allow an operator to use this service only: cluster, ddata, sharding, inspect, projection, runtime, or * for all. Repeatable. Defaults to the first three; inspect shows events and states." placeholder:"NAME"`
	LeaseTimeout time.Duration `help:"Also allow a node to hold leases with this time-out, or an operator to create their bucket." placeholder:"TIME"`
}

func (c *clusterPermissionsCommand) Validate() error {
	if c.ReadOnly && (c.User == "node" || c.LeaseTimeout != 0) {
		return errors.New("--read-only is for operators without --lease-timeout")
	}
	if c.User == "node" && len(c.Service) > 0 {
		return errors.New("--service is for operators")
	}
	return nil
}

func (c *clusterPermissionsCommand) Help() string {
	return `Add the output to the block of the user in the configuration of the NATS servers. A node may receive only messages that
are addressed to it, and send only under its own name. This authenticates the sender of each message. Do not add
allow_responses, which allows a user to publish to every subject.`
}

func (c *clusterPermissionsCommand) Run(env *operator.Env, common *clusterCommand) error {
	if err := common.named(); err != nil {
		return err
	}
	right := transport.AdminAct
	if c.ReadOnly {
		right = transport.AdminRead
	}
	permissions, err := nats.OperatorPermissions(common.Cluster, c.Is, right, c.Service...)
	if c.User == "node" {
		permissions, err = nats.NodePermissions(common.Cluster, c.Is)
	}
	if err != nil {
		return err
	}
	if c.LeaseTimeout != 0 {
		leases := nats.LeaseBucketPermissions(common.Cluster, c.LeaseTimeout)
		if c.User == "node" {
			if leases, err = nats.LeasePermissions(common.Cluster, c.Is, c.LeaseTimeout); err != nil {
				return err
			}
		}
		permissions = permissions.And(leases)
	}
	_, err = fmt.Fprintln(env.Stdout, permissions)
	return err
}

type clusterLeaseBucketCommand struct {
	LeaseTimeout time.Duration `help:"LeasesConfig.Timeout of the nodes." default:"120s"`
	Replicas     int           `help:"LeasesConfig.Replicas of the nodes." default:"1"`
}

func (c *clusterLeaseBucketCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	if err := common.named(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, common.Timeout)
	defer cancel()
	cfg := nats.LeasesConfig{Access: common.access(), Cluster: common.Cluster, Name: common.Operator, Timeout: c.LeaseTimeout, Replicas: c.Replicas}
	if err := nats.CreateLeaseBucket(ctx, cfg); err != nil {
		return hint(err)
	}
	_, err := fmt.Fprintln(env.Stdout, "the nodes can open their leases")
	return err
}

type clusterLeaveCommand struct {
	waitFlags `kong:"set='until=the member is gone',set='limit=2m'"`

	Node string `arg:"" help:"The name of the member, or name#UID as members prints it."`
}

func (c *clusterLeaveCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	return common.with(func(n *nodes) error {
		peer, alone, err := c.find(ctx, common, n)
		if err == nil {
			err = n.members.Leave(ctx, common.Ask, peer)
		}
		if err == nil {
			_, err = fmt.Fprintf(env.Stdout, "%s leaves\n", c.Node)
		}
		if err != nil || !c.Wait {
			return err
		}
		if err = c.await(ctx, common, n, peer, alone); err != nil {
			return err
		}
		_, err = fmt.Fprintf(env.Stdout, "%s is gone\n", c.Node)
		return err
	})
}

// find returns the incarnation to wait for, and whether no node can respond once this incarnation
// is gone. It does not check that the member exists: the queried node checks it.
func (c *clusterLeaveCommand) find(ctx context.Context, common *clusterCommand, n *nodes) (peer string, alone bool, err error) {
	if !c.Wait {
		return c.Node, false, nil
	}
	s, err := n.members.State(ctx, common.Ask)
	if err != nil {
		return "", false, err
	}
	peer = c.Node
	for i := range s.Members {
		if m := &s.Members[i]; m.Status != cluster.Down.String() && strings.HasPrefix(m.Node, c.Node+"#") {
			peer = m.Node
		}
	}
	return peer, last(s, common, peer), nil
}

// last reports whether no node can respond once a member is gone.
func last(s *cluster.Summary, common *clusterCommand, peer string) bool {
	if name, _, _ := strings.Cut(peer, "#"); name == common.Ask {
		return true
	}
	return !slices.ContainsFunc(s.Members, func(m cluster.SummaryMember) bool {
		return m.Node != peer && m.Status != cluster.Down.String() && m.Status != cluster.Exiting.String()
	})
}

// await waits until a member is gone. If no node responds, the member is gone if it was the last
// node that could respond. After other errors, await retries until the time-out.
func (c *clusterLeaveCommand) await(ctx context.Context, common *clusterCommand, n *nodes, peer string, alone bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.WaitTimeout)
	defer cancel()
	for {
		s, err := n.members.State(ctx, common.Ask)
		switch {
		case err == nil && !slices.ContainsFunc(s.Members, func(m cluster.SummaryMember) bool { return m.Node == peer }):
			return nil
		case err == nil:
			alone = last(s, common, peer)
		case alone && errors.Is(err, transport.ErrNoNode):
			return nil
		}
		if late := rest(ctx); late != nil {
			return errors.Join(fmt.Errorf("%s has started to leave, but is not gone yet: %w", peer, late), err)
		}
	}
}
