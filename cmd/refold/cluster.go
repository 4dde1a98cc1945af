// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/plugins/nats"
)

// clusterCommand is "refold cluster".
type clusterCommand struct {
	natsFlags

	Cluster  string        `help:"The name of the cluster. Required." env:"REFOLD_CLUSTER" placeholder:"NAME"`
	Operator string        `help:"The name by which the nodes know you." default:"operator" placeholder:"NAME"`
	Ask      string        `help:"The node to ask. Defaults to any that answers." placeholder:"NODE"`
	Timeout  time.Duration `help:"How long to wait for an answer." default:"10s"`

	Members     clusterMembersCommand     `cmd:"" help:"Show the members: status, reachability, leader, roles, versions."`
	Leave       clusterLeaveCommand       `cmd:"" help:"Let a member leave: it hands over what it hosts, and ends."`
	Down        clusterDownCommand        `cmd:"" help:"Say that a member is dead: what it hosted starts elsewhere."`
	Prepare     clusterPrepareCommand     `cmd:"" name:"prepare-for-shutdown" help:"Announce that the whole cluster is going to stop."`
	Permissions clusterPermissionsCommand `cmd:"" name:"nats-permissions" help:"Print what the NATS user of a node, or of an operator, has to be allowed."`
}

// natsFlags say how to get to the NATS servers.
type natsFlags struct {
	NATS           []string `name:"nats" help:"The NATS servers." default:"nats://127.0.0.1:4222" env:"REFOLD_NATS" placeholder:"URL"`
	TokenFile      string   `help:"A file that holds a token, or user:password." env:"REFOLD_NATS_TOKEN_FILE" placeholder:"FILE"`
	Credentials    string   `help:"A file of credentials, as nsc makes it." env:"REFOLD_NATS_CREDENTIALS" placeholder:"FILE"`
	NKeyFile       string   `name:"nkey-file" help:"A file that holds the seed of an nkey." placeholder:"FILE"`
	CA             string   `name:"ca" help:"The certificates of those who may have signed the server's." placeholder:"FILE"`
	Cert           string   `help:"The certificate to show." placeholder:"FILE"`
	Key            string   `help:"Its key." placeholder:"FILE"`
	ServerName     string   `help:"The name in the server's certificate. Defaults to the host of the URL." placeholder:"NAME"`
	AllowPlaintext bool     `help:"Allow connections without TLS to other machines."`
}

// access says how to connect for answers that are waited for so long.
func (f *natsFlags) access(timeout time.Duration) nats.Access {
	return nats.Access{
		ConnectTimeout: max(timeout/2, 2*time.Second),
		URLs:           f.NATS, AllowPlaintext: f.AllowPlaintext, CAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key, ServerName: f.ServerName,
		CredentialsFile: f.Credentials, NKeyFile: f.NKeyFile, TokenFile: f.TokenFile,
	}
}

// AfterApply hands the common flags to the subcommands.
func (c *clusterCommand) AfterApply(k *kong.Context) error {
	switch {
	case c.Cluster == "":
		return errors.New("--cluster is missing: the name of the cluster")
	case c.Timeout <= 0:
		return fmt.Errorf("--timeout is %v, it must be more than 0", c.Timeout)
	}
	k.Bind(c)
	return nil
}

// with asks the nodes something.
func (c *clusterCommand) with(ctx context.Context, f func(ctx context.Context, admin *cluster.Admin) error) (err error) {
	op, err := nats.ConnectOperator(nats.OperatorConfig{Access: c.access(c.Timeout), Cluster: c.Cluster, Name: c.Operator})
	if err != nil {
		return hint(err)
	}
	defer func() { err = errors.Join(err, op.Close()) }()
	return f(ctx, cluster.NewAdmin(op))
}

// hint says which flags tell who somebody is, if that is what is wrong.
func hint(err error) error {
	if strings.Contains(strings.ToLower(err.Error()), "authorization") {
		return fmt.Errorf("%w (--token-file, --credentials, --nkey-file or --cert says who you are)", err)
	}
	return err
}

// once asks one thing, and waits for the answer as long as the flags say.
func (c *clusterCommand) once(ctx context.Context, f func(ctx context.Context, admin *cluster.Admin) error) error {
	return c.with(ctx, func(ctx context.Context, admin *cluster.Admin) error {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		return f(ctx, admin)
	})
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
	err := common.once(ctx, func(ctx context.Context, admin *cluster.Admin) error { return admin.Down(ctx, common.Ask, c.Node) })
	if err == nil {
		_, err = fmt.Fprintf(env.Stdout, "%s is down\n", c.Node)
	}
	return err
}

// clusterPrepareCommand is "refold cluster prepare-for-shutdown".
type clusterPrepareCommand struct{}

// Run announces the end.
func (c *clusterPrepareCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	err := common.once(ctx, func(ctx context.Context, admin *cluster.Admin) error {
		return admin.PrepareForShutdown(ctx, common.Ask)
	})
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
