// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/cmd/refold/internal/bench"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

type demoCommand struct {
	Cluster demoClusterCommand `cmd:"" help:"Run a cluster of processes, kill one, and print the reaction of the others."`
	Serve   demoServeCommand   `cmd:"" hidden:""`
}

// demoServeCommand runs a worker process of the demonstration or of a benchmark.
type demoServeCommand struct {
	Log bool `help:"Print the log of the node."`
}

func (c *demoServeCommand) Run(ctx context.Context, env *operator.Env) error {
	log := slog.New(slog.DiscardHandler)
	if c.Log {
		log = slog.New(slog.NewTextHandler(env.Stderr, nil))
	}
	return bench.ServeWorker(ctx, os.Stdin, env.Stdout, log)
}

type demoClusterCommand struct {
	Nodes       int           `default:"3" help:"Number of nodes, 2 to 26."`
	Strategy    string        `default:"keep-majority" enum:"keep-majority,static-quorum,keep-oldest,down-all,lease-majority" help:"The downing strategy: ${enum}."`
	StableAfter time.Duration `default:"5s" help:"Time without a change of the membership before the downing strategy decides."`
	Patience    time.Duration `default:"2m" help:"Maximum time for each step."`
	Log         bool          `help:"Also print the logs of the nodes."`
}

func (c *demoClusterCommand) Help() string {
	return `Starts a NATS server in this process, and one process for each node. It prints the members whenever they change, in the
view of the first running node. When all nodes are up, it kills the last one with SIGKILL. The others observe it as
unreachable, and after a stable period the downing strategy removes it. Then the node starts again, with the same name and
another incarnation.`
}

func (c *demoClusterCommand) Validate() error {
	switch {
	case c.Nodes < 2 || c.Nodes > 26:
		return fmt.Errorf("--nodes is %d, must be 2 to 26", c.Nodes)
	case c.Strategy == string(downing.LeaseMajority):
		return errors.New("--strategy lease-majority needs a lease store, which the demonstration does not have")
	case c.Strategy == string(downing.DownAll):
		return errors.New("--strategy down-all leaves no node to observe")
	case c.StableAfter < 2*time.Second:
		return fmt.Errorf("--stable-after is %v, must be at least 2s", c.StableAfter)
	}
	return nil
}

func (c *demoClusterCommand) Run(ctx context.Context, env *operator.Env) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	settings := downing.Settings{Strategy: downing.Strategy(c.Strategy), StableAfter: c.StableAfter}
	if settings.Strategy == downing.StaticQuorum {
		settings.QuorumSize = c.Nodes/2 + 1
	}
	d := bench.Demo{
		Worker: []string{program, "demo", "serve"}, Nodes: c.Nodes, Downing: settings, Patience: c.Patience, Stdout: env.Stdout, Stderr: env.Stderr,
		Hint: func(s *embedded.Server) string {
			return fmt.Sprintf("%s cluster members --watch --cluster demo --nats %s --token-file %s", env.Name, s.URL(), s.TokenFile())
		},
	}
	if c.Log {
		d.Worker = append(d.Worker, "--log")
	}
	return d.Run(ctx)
}
