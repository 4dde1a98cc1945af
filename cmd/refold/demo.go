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
	Cluster demoClusterCommand `cmd:"" help:"Run the nodes of a cluster as processes, kill one, and see what the others do."`
	Serve   demoServeCommand   `cmd:"" hidden:""`
}

// demoServeCommand is one of those processes, or one of "refold bench": a node, and what it has.
type demoServeCommand struct {
	What string `arg:"" enum:"node,data,shards"`
	Log  bool   `help:"Print what the node logs."`
}

// Run does what the parent orders.
func (c *demoServeCommand) Run(ctx context.Context, env *operator.Env) error {
	log := slog.New(slog.DiscardHandler)
	if c.Log {
		log = slog.New(slog.NewTextHandler(env.Stderr, nil))
	}
	switch c.What {
	case "data":
		return bench.ServeData(ctx, os.Stdin, env.Stdout, log)
	case "shards":
		return bench.ServeShards(ctx, os.Stdin, env.Stdout, log)
	}
	return fleet.Serve(ctx, os.Stdin, env.Stdout, log)
}

// demoClusterCommand is "refold demo cluster".
type demoClusterCommand struct {
	Nodes       int           `default:"3" help:"How many nodes there are, 2 to 26."`
	Strategy    string        `default:"keep-majority" enum:"keep-majority,static-quorum,keep-oldest,down-all,lease-majority" help:"Who survives when some can't be reached: ${enum}."`
	StableAfter time.Duration `default:"5s" help:"For how long nothing may have changed before that is decided."`
	Patience    time.Duration `default:"2m" help:"How long to wait for each step before giving up."`
	Log         bool          `help:"Print what the nodes log, too."`
}

// Help is the long help of the command.
func (c *demoClusterCommand) Help() string {
	return `A NATS server runs inside this process; each node is a process of its own that connects to it. The members are printed
whenever what they are changes, as the first node that runs sees them. Once all are up the last one is killed
with SIGKILL. The others find it unreachable, and when nothing has changed for some time the strategy names who
survives. Then it is started again: the same name, another incarnation.`
}

// Validate checks the flags.
func (c *demoClusterCommand) Validate() error {
	switch {
	case c.Nodes < 2 || c.Nodes > 26:
		return fmt.Errorf("--nodes is %d, it must be 2 to 26", c.Nodes)
	case c.Strategy == string(downing.LeaseMajority):
		return errors.New("--strategy lease-majority needs a store of leases, which this demonstration has not")
	case c.Strategy == string(downing.DownAll):
		return errors.New("--strategy down-all leaves nobody to look at")
	case c.StableAfter < 2*time.Second:
		return fmt.Errorf("--stable-after is %v, it must be at least 2s", c.StableAfter)
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

// Run runs the cluster.
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
	d.say("a NATS server listens on %s; to look at the cluster from elsewhere:", server.URL())
	d.say("    %s cluster members --watch --cluster demo --nats %s --token-file %s", env.Name, server.URL(), server.TokenFile())
	return d.run(ctx)
}

// demo is a demonstration that runs.
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
	d.say("what %v hosted may start elsewhere %v after its removal", victim, d.removalMargin)
	if err := d.start(last); err != nil {
		return err
	}
	if err := d.until(ctx, "all nodes are up", d.allUp); err != nil {
		return err
	}
	d.say("%s is back as another incarnation, %v", last, d.incarnation(last))
	d.say("from start to all up it took %.1f s, from the kill to the removal %.1f s", allUp.Seconds(), removed.Seconds())
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

// until takes in reports until something holds.
func (d *demo) until(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.patience, fmt.Errorf("after %v it is not true that %s", d.patience, what))
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

// take takes in a report. A node that ends although it was not killed ends the demonstration.
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

// observer is the view of the first node that is a member, and its name.
func (d *demo) observer() (string, *fleet.View) {
	for _, name := range d.names {
		if v := d.views[name]; v != nil && len(v.Members) > 0 && slices.Contains(d.fleet.Running(), name) {
			return name, v
		}
	}
	return "", nil
}

// allUp reports whether every node that runs finds all of them up.
func (d *demo) allUp() bool {
	for _, name := range d.names {
		if v := d.views[name]; v == nil || v.Up() != len(d.names) || len(v.Members) != len(d.names) {
			return false
		}
	}
	return true
}

// member reports whether any node that runs takes another for a member.
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

// show prints the members as the observer sees them, if that is news.
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
