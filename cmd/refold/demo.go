// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/cmd/refold/internal/bench"
	"github.com/refold-io/refold/cmd/refold/internal/fleet"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

// demoCommand is "refold demo".
type demoCommand struct {
	Cluster demoClusterCommand `cmd:"" help:"Run a cluster of processes, kill one, and print the reaction of the others."`
	Serve   demoServeCommand   `cmd:"" hidden:""`
}

// demoServeCommand runs a node as a child process of the demonstration or of a benchmark.
type demoServeCommand struct {
	Kind string `arg:"" enum:"node,worker"`
	Log  bool   `help:"Print the log of the node."`
}

// Run serves until the parent ends.
func (c *demoServeCommand) Run(ctx context.Context, env *operator.Env) error {
	log := slog.New(slog.DiscardHandler)
	if c.Log {
		log = slog.New(slog.NewTextHandler(env.Stderr, nil))
	}
	if c.Kind == "worker" {
		return bench.ServeWorker(ctx, os.Stdin, env.Stdout, log)
	}
	return fleet.Serve(ctx, os.Stdin, env.Stdout, log, fleet.Extension{})
}

// demoClusterCommand is "refold demo cluster".
type demoClusterCommand struct {
	Nodes       int           `default:"3" help:"Number of nodes, 2 to 26."`
	Strategy    string        `default:"keep-majority" enum:"keep-majority,static-quorum,keep-oldest,down-all,lease-majority" help:"The downing strategy: ${enum}."`
	StableAfter time.Duration `default:"5s" help:"Decide after the membership was stable for this time."`
	Patience    time.Duration `default:"2m" help:"Maximum time for each step."`
	Log         bool          `help:"Also print the logs of the nodes."`
}

// Help returns the detailed help of the command.
func (c *demoClusterCommand) Help() string {
	return `Starts a NATS server in this process, and each node in a process of its own. It prints the members whenever they change,
as the first running node sees them. When all nodes are up, it kills the last one with SIGKILL. The others find it
unreachable, and after a stable period the downing strategy removes it. Then the node starts again, with the same name and
another incarnation.`
}

// Validate checks the flags.
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

func (c *demoClusterCommand) settings() downing.Settings {
	s := downing.Settings{Strategy: downing.Strategy(c.Strategy), StableAfter: c.StableAfter}
	if s.Strategy == downing.StaticQuorum {
		s.QuorumSize = c.Nodes/2 + 1
	}
	return s
}

// Run runs the demonstration.
func (c *demoClusterCommand) Run(ctx context.Context, env *operator.Env) (err error) {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	server, err := embedded.Start(embedded.Config{}) //nolint:contextcheck // the server lives until Close
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	command := []string{program, "demo", "serve", "node"}
	if c.Log {
		command = append(command, "--log")
	}
	d := &demo{
		out: env.Stdout, began: time.Now(), patience: c.Patience, removalMargin: c.StableAfter,
		fleet: fleet.New(command, env.Stderr), node: fleet.Node{Cluster: "demo", Access: server.Access(), Downing: c.settings()},
		views: map[string]*fleet.View{},
	}
	for i := range c.Nodes {
		d.names = append(d.names, fmt.Sprintf("node-%c", 'a'+i))
	}
	d.node.Seeds = d.names
	defer d.fleet.Close()
	d.say("a NATS server listens on %s; to inspect the cluster from another terminal:", server.URL())
	d.say("    %s cluster members --watch --cluster demo --nats %s --token-file %s", env.Name, server.URL(), server.TokenFile())
	return d.run(ctx)
}

// demo is a running demonstration.
type demo struct {
	out           io.Writer
	began         time.Time
	patience      time.Duration
	removalMargin time.Duration
	fleet         *fleet.Fleet
	node          fleet.Node // without a name
	names         []string
	views         map[string]*fleet.View
	shown         string
	err           error
}

func (d *demo) run(ctx context.Context) error {
	for _, name := range d.names {
		if err := d.start(name); err != nil {
			return err
		}
	}
	started := time.Now()
	if err := d.until(ctx, "all nodes are up", d.allUp); err != nil {
		return err
	}
	allUp := time.Since(started)
	last := d.names[len(d.names)-1]
	victim := d.incarnation(last)
	if err := d.fleet.Kill(last); err != nil {
		return err
	}
	d.say("%v is killed with SIGKILL", victim)
	killed := time.Now()
	if err := d.until(ctx, "the killed node is downed and removed", func() bool { return !d.member(victim) }); err != nil {
		return err
	}
	removed := time.Since(killed)
	d.say("other nodes may host what %v hosted %v after its removal", victim, d.removalMargin)
	if err := d.start(last); err != nil {
		return err
	}
	if err := d.until(ctx, "all nodes are up", d.allUp); err != nil {
		return err
	}
	d.say("%s has joined as another incarnation, %v", last, d.incarnation(last))
	d.say("start to all up: %.1f s; kill to removal: %.1f s", allUp.Seconds(), removed.Seconds())
	return d.err
}

func (d *demo) start(name string) error {
	n := d.node
	n.Name = name
	delete(d.views, name)
	pid, err := d.fleet.Start(n)
	if err != nil {
		return err
	}
	d.say("%s starts as process %d", name, pid)
	return nil
}

// until processes reports until a condition holds.
func (d *demo) until(ctx context.Context, subject string, holds func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.patience, fmt.Errorf("timed out after %v; waiting until %s", d.patience, subject))
	defer cancel()
	for !holds() {
		r, err := d.fleet.Next(ctx)
		if err != nil {
			return err
		}
		if err := d.take(r); err != nil {
			return err
		}
	}
	return nil
}

// take processes a report. The unexpected end of a node ends the demonstration.
func (d *demo) take(r fleet.Report) error {
	switch {
	case r.View != nil:
		d.views[r.Node.Name] = r.View
		d.show()
	case r.Ended != "":
		return fmt.Errorf("%v has ended: %s", r.Node, r.Ended)
	case r.Exit != "":
		delete(d.views, r.Node.Name)
		if r.Exit != "signal: killed" {
			return fmt.Errorf("the process of %v is gone: %s", r.Node, r.Exit)
		}
	}
	return d.err
}

// observer returns the name and the view of the first node that is a member.
func (d *demo) observer() (string, *fleet.View) {
	for _, name := range d.names {
		if v := d.views[name]; v != nil && len(v.Members) > 0 && slices.Contains(d.fleet.Running(), name) {
			return name, v
		}
	}
	return "", nil
}

// allUp reports whether all running nodes agree that all of them are up.
func (d *demo) allUp() bool {
	for _, name := range d.names {
		if v := d.views[name]; v == nil || v.Up() != len(d.names) || len(v.Members) != len(d.names) {
			return false
		}
	}
	return true
}

// member reports whether any running node sees n as a member.
func (d *demo) member(n identity.Node) bool {
	for _, v := range d.views {
		if v.Has(n) {
			return true
		}
	}
	return false
}

func (d *demo) incarnation(name string) identity.Node {
	_, v := d.observer()
	for _, m := range v.Members {
		if m.Node.Name == name {
			return m.Node
		}
	}
	return identity.Node{Name: name}
}

// show prints the members as the observer sees them, if they have changed.
func (d *demo) show() {
	name, v := d.observer()
	if v == nil {
		return
	}
	members := slices.Clone(v.Members)
	slices.SortFunc(members, func(a, b fleet.Member) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	cells := make([]string, len(members))
	for i, m := range members {
		cells[i] = m.Node.Name + " " + m.Status
		if m.Unreachable {
			cells[i] += ", unreachable"
		}
		if m.Node == v.Leader {
			cells[i] += ", leads"
		}
	}
	if line := strings.Join(cells, " | "); line != d.shown {
		d.shown = line
		d.say("%s sees  %s", name, line)
	}
}

func (d *demo) say(format string, args ...any) {
	if _, err := fmt.Fprintf(d.out, "%6.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...)); err != nil {
		d.err = err
	}
}
