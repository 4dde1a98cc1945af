// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"

	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/sharding"
)

// action is a change that a user requests. A browser first gets a page that names the target, and
// then sends the form of this page.
type action struct {
	name string
	// fields are the names of the form fields that describe the target, all required. Optional ones
	// may be empty.
	fields, optional []string
	// ask is the question, effect explains the consequences, button is the text of the button.
	ask    func(f fields) string
	effect string
	button string
	// danger marks actions that stop work or lose data.
	danger bool
	// do carries out the action and returns a sentence about the result.
	do func(ctx context.Context, c *Console, f fields) (string, error)
	// page is the page to which the result leads.
	page string
}

// fields are the values of the form of an action.
type fields map[string]string

func actionTable() map[string]*action {
	all := map[string]*action{}
	for _, a := range []*action{
		{
			name: "cluster.leave", fields: []string{"node"}, page: "nodes", button: "Leave", danger: true,
			ask:    func(f fields) string { return fmt.Sprintf("Let node %s leave the cluster?", f["node"]) },
			effect: "The node hands over its shards and singletons, then leaves the cluster. Its process must be started again to return.",
			do: func(ctx context.Context, c *Console, f fields) (string, error) {
				return fmt.Sprintf("Node %s leaves the cluster.", nameOf(f["node"])), c.members.Leave(ctx, "", f["node"])
			},
		},
		{
			name: "cluster.down", fields: []string{"node"}, page: "nodes", button: "Mark as down", danger: true,
			ask: func(f fields) string { return fmt.Sprintf("Mark node %s as dead?", f["node"]) },
			effect: "Other members take over its work at once. Make sure first that its process is dead: a process that is alive and does not receive its removal " +
				"continues to host its shards and singletons.",
			do: func(ctx context.Context, c *Console, f fields) (string, error) {
				return fmt.Sprintf("Node %s is down.", nameOf(f["node"])), c.members.Down(ctx, "", f["node"])
			},
		},
		{
			name: "sharding.rebalance", fields: []string{"type"}, page: "shards", button: "Rebalance",
			ask:    func(f fields) string { return fmt.Sprintf("Rebalance the shards of type %s now?", f["type"]) },
			effect: "The allocation strategy runs once. The entities of shards that move stop and start again on their new node with the next command.",
			do: func(ctx context.Context, c *Console, f fields) (string, error) {
				node, err := c.coordinator(ctx, f["type"])
				if err != nil {
					return "", err
				}
				n, err := c.shards.Rebalance(ctx, node, f["type"])
				return fmt.Sprintf("%s of type %s %s.", count(n, "shard"), f["type"], verb(n, "moves", "move")), err
			},
		},
		{
			name: "sharding.drain", fields: []string{"node", "type"}, page: "shards", button: "Drain",
			ask:    func(f fields) string { return fmt.Sprintf("Drain node %s for type %s?", f["node"], f["type"]) },
			effect: "The node hands off all its shards of the type and accepts no others, until it is undrained or its process starts again.",
			do: func(ctx context.Context, c *Console, f fields) (string, error) {
				return fmt.Sprintf("Node %s hands off its shards of type %s.", f["node"], f["type"]), c.shards.Drain(ctx, f["node"], f["type"])
			},
		},
		{
			name: "sharding.undrain", fields: []string{"node", "type"}, page: "shards", button: "Undrain",
			ask: func(f fields) string {
				return fmt.Sprintf("Let node %s host shards of type %s again?", f["node"], f["type"])
			},
			effect: "The allocation strategy may move shards to the node.",
			do: func(ctx context.Context, c *Console, f fields) (string, error) {
				return fmt.Sprintf("Node %s may host shards of type %s.", f["node"], f["type"]), c.shards.Undrain(ctx, f["node"], f["type"])
			},
		},
		{
			name: "sharding.move", fields: []string{"type", "shard", "to"}, page: "shards", button: "Move",
			ask: func(f fields) string {
				return fmt.Sprintf("Move shard %s of type %s to node %s?", f["shard"], f["type"], f["to"])
			},
			effect: "The shard stays on the node until it is released: the allocation strategy does not move it.",
			do: func(ctx context.Context, c *Console, f fields) (string, error) {
				node, shard, err := c.coordinatorAndShard(ctx, f)
				if err != nil {
					return "", err
				}
				return fmt.Sprintf("Shard %s of type %s moves to node %s.", f["shard"], f["type"], f["to"]), c.shards.Move(ctx, node, f["type"], shard, f["to"])
			},
		},
		{
			name: "sharding.release", fields: []string{"type", "shard"}, page: "shards", button: "Release",
			ask:    func(f fields) string { return fmt.Sprintf("Release shard %s of type %s?", f["shard"], f["type"]) },
			effect: "The allocation strategy may move the shard again.",
			do: func(ctx context.Context, c *Console, f fields) (string, error) {
				node, shard, err := c.coordinatorAndShard(ctx, f)
				if err != nil {
					return "", err
				}
				return fmt.Sprintf("The strategy may move shard %s of type %s.", f["shard"], f["type"]), c.shards.Release(ctx, node, f["type"], shard)
			},
		},
		{
			name: "projection.pause", fields: []string{"projection"}, page: "projections", button: "Pause",
			ask:    func(f fields) string { return fmt.Sprintf("Pause projection %s on all nodes?", f["projection"]) },
			effect: "Its read model does not change until the projection is resumed, and its lag grows. A pause is not stored: a process that starts again is not paused.",
			do: func(ctx context.Context, c *Console, f fields) (string, error) {
				return fmt.Sprintf("Projection %s is paused.", f["projection"]), c.onProjection(ctx, f["projection"], func(*projectionNode) bool { return true }, c.inspect.PauseProjection)
			},
		},
		{
			name: "projection.resume", fields: []string{"projection"}, page: "projections", button: "Resume",
			ask:    func(f fields) string { return fmt.Sprintf("Resume projection %s on all nodes?", f["projection"]) },
			effect: "The projection continues with the first event that it has not handled.",
			do: func(ctx context.Context, c *Console, f fields) (string, error) {
				return fmt.Sprintf("Projection %s continues.", f["projection"]), c.onProjection(ctx, f["projection"], func(*projectionNode) bool { return true }, c.inspect.ResumeProjection)
			},
		},
		{
			name: "projection.rebuild", fields: []string{"projection"}, page: "projections", button: "Rebuild", danger: true,
			ask:    func(f fields) string { return fmt.Sprintf("Rebuild projection %s?", f["projection"]) },
			effect: "The read model is cleared and built again from the first event. Until the projection has caught up, readers see an incomplete model.",
			do: func(ctx context.Context, c *Console, f fields) (string, error) {
				done := false
				return fmt.Sprintf("Projection %s is rebuilt.", f["projection"]), c.onProjection(ctx, f["projection"], func(n *projectionNode) bool {
					first := n.Rebuilds && !done // the request is stored for all processes
					done = done || first
					return first
				}, c.inspect.RebuildProjection)
			},
		},
		{
			name: "journal.verify", page: "journal", button: "Verify", optional: []string{"node"},
			ask:    func(fields) string { return "Verify the journal and the snapshots now?" },
			effect: "One process reads all records and snapshots. This takes long on a large journal and loads the database. It changes nothing.",
			do: func(ctx context.Context, c *Console, f fields) (string, error) {
				_, err := c.inspect.StartVerify(ctx, f["node"])
				return "The verification has started.", err
			},
		},
		{
			name: "journal.stop", page: "journal", button: "Stop", optional: []string{"node"},
			ask:    func(fields) string { return "Stop the verification?" },
			effect: "The counts and problems up to now remain.",
			do: func(ctx context.Context, c *Console, f fields) (string, error) {
				_, err := c.inspect.StopVerify(ctx, f["node"])
				return "The verification has stopped.", err
			},
		},
	} {
		all[a.name] = a
	}
	return all
}

// onProjection carries out an action on the selected nodes that have a projection.
func (c *Console) onProjection(
	ctx context.Context, name string, selected func(*projectionNode) bool, do func(ctx context.Context, node, name string) (*inspect.Projections, error),
) error {
	p := c.poller.gather(ctx, 0, 0)
	at := slices.IndexFunc(p.Projections, func(x *projection) bool { return x.Name == name })
	if at < 0 {
		return fmt.Errorf("console: no node has the projection %q", name)
	}
	var errs []error
	chosen := 0
	for i := range p.Projections[at].Nodes {
		n := &p.Projections[at].Nodes[i]
		if !selected(n) {
			continue
		}
		chosen++
		if _, err := do(ctx, n.Node, name); err != nil {
			errs = append(errs, fmt.Errorf("node %q: %w", n.Node, err))
		}
	}
	if chosen == 0 {
		return fmt.Errorf("console: no node can do this for the projection %q", name)
	}
	return errors.Join(errs...)
}

// coordinator returns the node that runs the coordinator of a type now.
func (c *Console) coordinator(ctx context.Context, typ string) (string, error) {
	p := c.poller.gather(ctx, 0, 0)
	if t := p.typ(typ); t == nil {
		return "", fmt.Errorf("console: no node has the entity type %q", typ)
	} else if t.Coordinator != "" {
		return t.Coordinator, nil
	}
	return "", fmt.Errorf("console: type %q: %w", typ, sharding.ErrNoCoordinator)
}

func (c *Console) coordinatorAndShard(ctx context.Context, f fields) (string, sharding.Shard, error) {
	n, err := strconv.ParseUint(f["shard"], 10, 32)
	if err != nil {
		return "", 0, fmt.Errorf("console: shard %.50q: %w", f["shard"], err)
	}
	node, err := c.coordinator(ctx, f["type"])
	return node, sharding.Shard(n), err
}

type confirmData struct {
	Name, Question, Effect, Button string
	Danger                         bool
	// Back is the page to which the result leads.
	Back   string
	Fields []field
	// Done is the sentence about the result, empty before.
	Done string

	action *action
}

type field struct{ Name, Value string }

// target returns the action and the target of a request, or answers the request.
func (c *Console) target(w http.ResponseWriter, r *http.Request) (*confirmData, fields, bool) {
	a := c.actions[r.FormValue("action")]
	if a == nil {
		c.problem(w, r, http.StatusNotFound, "Unknown action", fmt.Sprintf("The console has no action %.100q.", r.FormValue("action")))
		return nil, nil, false
	}
	d, f := &confirmData{Name: a.name, Effect: a.effect, Button: a.button, Danger: a.danger, Back: a.page, action: a}, fields{}
	for _, name := range a.fields {
		f[name] = r.FormValue(name)
		if d.Fields = append(d.Fields, field{name, f[name]}); f[name] == "" {
			c.problem(w, r, http.StatusBadRequest, "Incomplete action", fmt.Sprintf("The action %s needs the field %s.", a.name, name))
			return nil, nil, false
		}
	}
	for _, name := range a.optional {
		if f[name] = r.FormValue(name); f[name] != "" {
			d.Fields = append(d.Fields, field{name, f[name]})
		}
	}
	d.Question = a.ask(f)
	return d, f, true
}

// confirm shows the target and the consequences of an action.
func (c *Console) confirm(w http.ResponseWriter, r *http.Request) {
	d, _, ok := c.target(w, r)
	if !ok {
		return
	}
	if u, ok := c.admitted(w, r, d.action.name); ok {
		c.showAction(w, r, http.StatusOK, u, d, nil)
	}
}

func (c *Console) showAction(w http.ResponseWriter, r *http.Request, status int, u user, d *confirmData, err error) {
	v := c.newView(r, u, d.Question)
	v.Nav, v.Data = c.nav(""), d
	if err != nil {
		v.Problem = err.Error()
	}
	part := "page"
	if r.Header.Get("Hx-Request") != "" {
		part = "main"
	}
	c.render(w, status, "confirm", part, v)
}

// act carries out an action that the user has confirmed.
func (c *Console) act(w http.ResponseWriter, r *http.Request) {
	d, f, ok := c.target(w, r)
	if !ok {
		return
	}
	u, ok := c.admitted(w, r, d.action.name)
	if !ok {
		return
	}
	done, err := d.action.do(r.Context(), c, f)
	attrs := []any{slog.String("user", u.name), slog.String("action", d.action.name), slog.String("remote", r.RemoteAddr)}
	for _, x := range d.Fields {
		attrs = append(attrs, slog.String("target_"+x.Name, x.Value))
	}
	if err != nil {
		c.opts.Logger.WarnContext(r.Context(), "console: action failed", append(attrs, slog.Any("error", err))...)
		c.showAction(w, r, http.StatusBadGateway, u, d, err)
		return
	}
	c.opts.Logger.InfoContext(r.Context(), "console: action", attrs...)
	d.Done = done
	c.showAction(w, r, http.StatusOK, u, d, nil)
}
