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
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/transport"
)

// ddataCommand is "refold ddata".
type ddataCommand struct {
	natsFlags

	Cluster  string        `help:"The name of the cluster. Required, but for disk." env:"REFOLD_CLUSTER" placeholder:"NAME"`
	Operator string        `help:"The name by which the nodes know you. Defaults to ${default}." default:"operator" placeholder:"NAME"`
	Ask      string        `help:"The node to ask. Defaults to any that answers and has the replicator." placeholder:"NODE"`
	Timeout  time.Duration `help:"How long to wait for an answer, and for what a node reads from others. Defaults to ${default}." default:"10s"`

	Keys  ddataKeysCommand  `cmd:"" help:"List the keys that a node has."`
	Get   ddataGetCommand   `cmd:"" help:"Print the value of a key, as JSON."`
	Count ddataCountCommand `cmd:"" help:"Say how many replicas there are, and how much a node holds."`
	Diff  ddataDiffCommand  `cmd:"" help:"Compare what all nodes hold, and list the keys that differ."`
	Disk  operator.Durable  `cmd:"" help:"Look at what nodes that are not running have on disk."`
}

// AfterApply hands the common flags to the subcommands.
func (c *ddataCommand) AfterApply(k *kong.Context) error {
	if c.Timeout <= 0 {
		return fmt.Errorf("--timeout is %v, it must be more than 0", c.Timeout)
	}
	k.Bind(c)
	return nil
}

// nodes asks nodes, about replicated data or about the cluster.
type nodes struct {
	data    *ddata.Admin
	members *cluster.Admin
}

// names returns the members that may hold data.
func (n *nodes) names(ctx context.Context, common *ddataCommand) (names []string, err error) {
	s, err := n.members.State(ctx, common.Ask)
	if err != nil {
		return nil, err
	}
	for i := range s.Members {
		switch m := &s.Members[i]; m.Status {
		case cluster.Down.String(), cluster.Joining.String():
		default:
			name, _, _ := strings.Cut(m.Node, "#")
			names = append(names, name)
		}
	}
	return names, nil
}

// with asks the nodes something, and waits for each answer as long as the flags say.
func (c *ddataCommand) with(f func(n *nodes) error) (err error) {
	if c.Cluster == "" {
		return errors.New("--cluster is missing: the name of the cluster")
	}
	op, err := nats.ConnectOperator(nats.OperatorConfig{Access: c.access(c.Timeout), Cluster: c.Cluster, Name: c.Operator})
	if err != nil {
		return hint(err)
	}
	defer func() { err = errors.Join(err, op.Close()) }()
	asker := patient{op, c.Timeout}
	return f(&nodes{ddata.NewAdmin(asker), cluster.NewAdmin(asker)})
}

// replicatorFlag says which replicator it is about.
type replicatorFlag struct {
	Replicator string `help:"The replicator. Defaults to ${default}." default:"ddata" placeholder:"NAME"`
}

// at is who is asked. Some of the time is left for the answer to arrive.
func (f *replicatorFlag) at(common *ddataCommand) ddata.At {
	spare := max(common.Timeout/10, min(2*time.Second, common.Timeout/2))
	return ddata.At{Node: common.Ask, Replicator: f.Replicator, Timeout: common.Timeout - spare}
}

// find calls f with who is asked. If that is anybody, and whoever has answered has no such replicator, it goes on with the members.
func (f *replicatorFlag) find(ctx context.Context, common *ddataCommand, n *nodes, do func(at ddata.At) error) error {
	at := f.at(common)
	err := do(at)
	if at.Node != "" || !errors.Is(err, ddata.ErrNoReplicator) {
		return err
	}
	names, failed := n.names(ctx, common)
	if failed != nil {
		return errors.Join(err, failed)
	}
	for _, at.Node = range names {
		if err = do(at); !errors.Is(err, ddata.ErrNoReplicator) {
			return err
		}
	}
	return fmt.Errorf("no member has replicator %q: %w", f.Replicator, err)
}

// patient waits for each answer for a time.
type patient struct {
	transport.Asker

	timeout time.Duration
}

// Ask implements transport.Asker.
func (p patient) Ask(ctx context.Context, node string, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.Asker.Ask(ctx, node, request)
}
