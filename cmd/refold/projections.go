// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/internal/jsontext"
)

type projectionsCommand struct {
	clusterFlags

	Ask string `help:"The node to query for the members. Defaults to any node." placeholder:"NODE"`

	List    projectionsListCommand    `cmd:"" default:"withargs" help:"Print the state, the lag and the failure of the projections of each node. This is the default command."`
	Pause   projectionsPauseCommand   `cmd:"" help:"Pause a projection on all nodes."`
	Resume  projectionsResumeCommand  `cmd:"" help:"Resume a paused projection on all nodes."`
	Rebuild projectionsRebuildCommand `cmd:"" help:"Clear the read model of a projection and build it again."`
}

func (*projectionsCommand) Help() string {
	return `The nodes reply if their programs have an agent (console.NewAgent) with these projections.`
}

// process is a member of a cluster with the description of its process.
type process struct {
	name        string
	runtime     *inspect.RuntimeView // nil without an agent or a reply
	projections []inspect.ProjectionView
	// silent is the reason why the member has not responded. It is nil if the program has no agent, or
	// if the member is leaving.
	silent error
}

// processes queries members for their processes, concurrently.
func (n *nodes) processes(ctx context.Context, names []string, leaves map[string]bool) []process {
	found := make([]process, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		p := &found[i]
		p.name = name
		all.Go(func() {
			r, err := n.inspect.Runtime(ctx, name)
			if err == nil {
				p.runtime = r
				var list *inspect.Projections
				if list, err = n.inspect.Projections(ctx, name); err == nil {
					p.projections = list.Projections
				}
			}
			if !leaves[name] && !errors.Is(err, inspect.ErrNoService) {
				p.silent = err
			}
		})
	}
	all.Wait()
	return found
}

// projectionOnNode is a projection of one process.
type projectionOnNode struct {
	Node string `json:"node"`
	inspect.ProjectionView
}

func (p *projectionOnNode) state() string {
	if p.Paused {
		return "paused"
	}
	return p.State
}

func (p *projectionOnNode) failure() string {
	if f := p.FirstFailure(); f != nil {
		return f.Text
	}
	return ""
}

// lagOf returns the lag of a projection in words.
func lagOf(p *inspect.ProjectionView) string {
	switch {
	case len(p.Workers) == 0:
		return "-"
	case !p.LagUnknownSince.IsZero():
		return "unknown"
	}
	return durationText(p.Lag)
}

// durationText returns a duration with about three digits.
func durationText(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// named returns the projections of all members, or those with a name, sorted by name and node. The
// second result lists the members that have not responded.
func (c *projectionsCommand) named(ctx context.Context, n *nodes, name string) (found []projectionOnNode, silent []string, err error) {
	names, leaves, err := n.present(ctx, c.Ask)
	if err != nil {
		return nil, nil, err
	}
	agents, others := 0, map[string]bool{}
	for _, p := range n.processes(ctx, names, leaves) {
		if p.silent != nil {
			silent = append(silent, p.name+" ("+p.silent.Error()+")")
		}
		if p.runtime != nil {
			agents++
		}
		for i := range p.projections {
			if others[p.projections[i].Name] = true; name == "" || p.projections[i].Name == name {
				found = append(found, projectionOnNode{p.name, p.projections[i]})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b projectionOnNode) int { return strings.Compare(a.Name, b.Name) })
	switch {
	case len(found) > 0 || len(silent) > 0 && name == "":
		return found, silent, nil
	case agents == 0:
		return nil, nil, fmt.Errorf("no node of cluster %q has an agent (console.NewAgent); queried: %s", c.Cluster, strings.Join(append(names, silent...), ", "))
	case name == "":
		return nil, nil, fmt.Errorf("no node of cluster %q has projections; queried: %s", c.Cluster, strings.Join(names, ", "))
	}
	return nil, nil, fmt.Errorf("no responding node has the projection %q; the projections are: %s", name, orNone(quoted(slices.Sorted(maps.Keys(others)))))
}

func printProjections(w io.Writer, asJSON bool, all []projectionOnNode) error {
	out := console.NewTable(w, asJSON, "PROJECTION", "NODE", "STATE", "LAG", "HANDLED", "SKIPPED", "FAILURE")
	for i := range all {
		p := &all[i]
		if err := out.Add(func() any { return p }, func() []string {
			return []string{p.Name, p.Node, p.state(), lagOf(&p.ProjectionView), strconv.FormatUint(p.Handled, 10), strconv.FormatUint(p.Skipped, 10), orNone(p.failure())}
		}); err != nil {
			return err
		}
	}
	return out.Flush()
}

type projectionsListCommand struct {
	watchFlags

	JSON bool `name:"json" help:"Print one JSON object per line, one for each projection of each node. Durations are in nanoseconds."`
}

func (*projectionsListCommand) Help() string {
	return `The counts start with the process. The lag is the age of the oldest event that is not handled. The exit status is 1 if
a projection has failed, or if a member does not respond (unless it is leaving).`
}

func (c *projectionsListCommand) Run(ctx context.Context, env *operator.Env, common *projectionsCommand) error {
	return common.with(func(n *nodes) error {
		return c.show(ctx, env.Stdout, c.JSON, func(w io.Writer) error { return c.list(ctx, w, common, n) })
	})
}

func (c *projectionsListCommand) list(ctx context.Context, w io.Writer, common *projectionsCommand, n *nodes) error {
	found, silent, err := common.named(ctx, n, "")
	if err != nil {
		return err
	}
	if err = printProjections(w, c.JSON, found); err != nil {
		return err
	}
	if len(silent) > 0 && !c.JSON {
		if _, err = fmt.Fprintf(w, "\nno reply from %s\n", jsontext.Printable(strings.Join(silent, ", "))); err != nil {
			return err
		}
	}
	if len(silent) > 0 || slices.ContainsFunc(found, func(p projectionOnNode) bool { return p.FirstFailure() != nil }) {
		return operator.ErrProblems
	}
	return nil
}

// projectionTarget has the arguments of the commands that change a projection.
type projectionTarget struct {
	Name string `arg:"" help:"The name of the projection."`
	Yes  bool   `help:"Change the projection. Without it, the command only prints the projection."`
}

type projectionAction func(ctx context.Context, node, name string) (*inspect.Projections, error)

// act carries out an action on all nodes that have the projection, or on the first one that can rebuild
// it. The result is a format for its name.
func (c *projectionTarget) act(
	ctx context.Context, env *operator.Env, common *projectionsCommand, action, result string, all bool, do func(*nodes) projectionAction,
) error {
	return common.with(func(n *nodes) error {
		found, _, err := common.named(ctx, n, c.Name)
		if err != nil {
			return err
		}
		if !c.Yes {
			if err = printProjections(env.Stdout, false, found); err == nil {
				_, err = fmt.Fprintf(env.Stderr, "%s: nothing is changed: add --yes to %s projection %q\n", env.Name, action, c.Name)
			}
			return err
		}
		if !all {
			found = slices.DeleteFunc(found, func(p projectionOnNode) bool { return !p.Rebuilds })
			found = found[:min(len(found), 1)] // the request is stored for all processes
		}
		if len(found) == 0 {
			return fmt.Errorf("cannot %s projection %q: its handler has no Clear", action, c.Name)
		}
		var errs []error
		for i := range found {
			if _, err = do(n)(ctx, found[i].Node, c.Name); err != nil {
				errs = append(errs, fmt.Errorf("node %q: %w", found[i].Node, err))
				continue
			}
			if _, err = fmt.Fprintf(env.Stdout, "%s: "+result+"\n", found[i].Node, c.Name); err != nil {
				return err
			}
		}
		return errors.Join(errs...)
	})
}

type projectionsPauseCommand struct{ projectionTarget }

func (*projectionsPauseCommand) Help() string {
	return `The read model does not change until the projection is resumed, and its lag grows. A pause is not stored: a process that
starts again is not paused.`
}

func (c *projectionsPauseCommand) Run(ctx context.Context, env *operator.Env, common *projectionsCommand) error {
	return c.act(ctx, env, common, "pause", "projection %q is paused", true, func(n *nodes) projectionAction { return n.inspect.PauseProjection })
}

type projectionsResumeCommand struct{ projectionTarget }

func (*projectionsResumeCommand) Help() string {
	return `The projection continues with the first event that it has not handled.`
}

func (c *projectionsResumeCommand) Run(ctx context.Context, env *operator.Env, common *projectionsCommand) error {
	return c.act(ctx, env, common, "resume", "projection %q continues", true, func(n *nodes) projectionAction { return n.inspect.ResumeProjection })
}

type projectionsRebuildCommand struct{ projectionTarget }

func (*projectionsRebuildCommand) Help() string {
	return `The read model is cleared and built again from the first event. Until the projection has caught up, readers see an
incomplete model. One node stores the request, and all processes of the projection follow it.`
}

func (c *projectionsRebuildCommand) Run(ctx context.Context, env *operator.Env, common *projectionsCommand) error {
	return c.act(ctx, env, common, "rebuild", "the rebuild of projection %q is requested", false, func(n *nodes) projectionAction { return n.inspect.RebuildProjection })
}
