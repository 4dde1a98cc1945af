// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

// Demo is a demonstration: a cluster of worker processes, of which one is killed and started again.
type Demo struct {
	// Worker is the command, with arguments, that runs ServeWorker.
	Worker []string
	// Nodes is the number of nodes.
	Nodes   int
	Downing downing.Settings
	// Patience is the maximum time of each step.
	Patience time.Duration
	// Stdout receives the steps, and Stderr the logs of the nodes.
	Stdout, Stderr io.Writer
	// Hint returns the command that inspects the cluster.
	Hint func(server *embedded.Server) string

	began   time.Time
	workers *workers
	names   []string
	views   map[string]*view
	shown   string
	err     error
}

const demoInterval = 50 * time.Millisecond

// Run runs the demonstration.
func (d *Demo) Run(ctx context.Context) error {
	d.began = time.Now()
	return withWorkers(ctx, d.Worker, console.Synchronized(d.Stderr), func(ctx context.Context, w *workers) error {
		d.workers = w
		for i := range d.Nodes {
			d.names = append(d.names, fmt.Sprintf("node-%c", 'a'+i))
		}
		d.printf("a NATS server listens on %s; to inspect the cluster from another terminal:", w.server.URL())
		d.printf("    %s", d.Hint(w.server))
		return errors.Join(d.run(ctx), d.err)
	})
}

func (d *Demo) run(ctx context.Context) error {
	for _, name := range d.names {
		if err := d.start(ctx, name); err != nil {
			return err
		}
	}
	started := time.Now()
	if err := d.until(ctx, "all nodes are up", d.allUp); err != nil {
		return err
	}
	allUp := time.Since(started)
	last := d.workers.all[len(d.workers.all)-1]
	victim := d.incarnation(last.name)
	if err := d.workers.stop(last, true); err != nil {
		return err
	}
	d.printf("%v is killed with SIGKILL", victim)
	killed := time.Now()
	if err := d.until(ctx, "the killed node is downed and removed", func() bool { return !d.member(victim) }); err != nil {
		return err
	}
	removed := time.Since(killed)
	d.printf("the work of %v may start on other nodes %v after its removal", victim, d.Downing.StableAfter)
	if err := d.start(ctx, last.name); err != nil {
		return err
	}
	if err := d.until(ctx, "all nodes are up", d.allUp); err != nil {
		return err
	}
	d.printf("%s has joined as another incarnation, %v", last.name, d.incarnation(last.name))
	d.printf("start to all up: %.1f s; kill to removal: %.1f s", allUp.Seconds(), removed.Seconds())
	return nil
}

// start starts a process whose node joins the others. It does not wait until the node is Up.
func (d *Demo) start(ctx context.Context, name string) error {
	one, err := d.workers.start(ctx, name)
	if err != nil {
		return err
	}
	d.printf("%s starts as process %d", name, one.cmd.Process.Pid)
	_, err = one.do(d.workers.joining(one, setup{Cluster: "demo", Downing: d.Downing, NoWait: true}, d.names...))
	return err
}

// until queries all nodes until a condition holds, and prints changes.
func (d *Demo) until(ctx context.Context, subject string, holds func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.Patience, fmt.Errorf("timed out after %v; waiting until %s", d.Patience, subject))
	defer cancel()
	for {
		results, err := each(d.workers.all, order{Do: orderView})
		if err != nil {
			return err
		}
		d.views = map[string]*view{}
		for i, one := range d.workers.all {
			d.views[one.name] = results[i].View
		}
		if d.show(); holds() {
			return nil
		}
		if err := pause(ctx, demoInterval); err != nil {
			return err
		}
	}
}

// observer returns the first node that is a member, and its view.
func (d *Demo) observer() (string, *view) {
	for _, name := range d.names {
		if v := d.views[name]; v != nil && len(v.Members) > 0 {
			return name, v
		}
	}
	return "", &view{}
}

func (d *Demo) allUp() bool {
	for _, name := range d.names {
		if v := d.views[name]; v == nil || len(v.Members) != len(d.names) || slices.ContainsFunc(v.Members, func(m viewMember) bool {
			return m.Status != cluster.Up.String() || m.Unreachable
		}) {
			return false
		}
	}
	return true
}

func (d *Demo) member(n identity.Node) bool {
	for _, v := range d.views {
		if slices.ContainsFunc(v.Members, func(m viewMember) bool { return m.Node == n }) {
			return true
		}
	}
	return false
}

func (d *Demo) incarnation(name string) identity.Node {
	_, v := d.observer()
	for _, m := range v.Members {
		if m.Node.Name == name {
			return m.Node
		}
	}
	return identity.Node{Name: name}
}

// show prints the members as the observer sees them, if they have changed.
func (d *Demo) show() {
	name, v := d.observer()
	members := slices.Clone(v.Members)
	slices.SortFunc(members, func(a, b viewMember) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
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
		d.printf("%s sees  %s", name, line)
	}
}

func (d *Demo) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(d.Stdout, "%6.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...)); err != nil {
		d.err = err
	}
}
