// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/sharding"
)

// shardsCommand is "refold shards".
type shardsCommand struct {
	clusterFlags

	Ask  string `help:"The node that is asked who is in the cluster. Defaults to any that answers." placeholder:"NODE"`
	Type string `help:"The entity type. Needed where it matters and there are several." placeholder:"NAME"`

	List      shardsListCommand      `cmd:"" default:"withargs" help:"Show how many shards and entities each node has. That is what happens without a command, too."`
	Entities  shardsEntitiesCommand  `cmd:"" help:"Show how many entities each shard has, or which ones run in one."`
	Find      shardsFindCommand      `cmd:"" help:"Say in which shard, and on which node, an entity is."`
	Rebalance shardsRebalanceCommand `cmd:"" help:"Let the coordinator look now which shards should move."`
	Drain     shardsDrainCommand     `cmd:"" help:"Let a node give all its shards away."`
	Undrain   shardsUndrainCommand   `cmd:"" help:"Let a node that was drained take shards again."`
}

// shardNode is a member, and what it has said.
type shardNode struct {
	sharding.AdminNode

	leaves bool
}

// silent returns why the member has not said anything. That is nil if nothing is to be expected: it has no region, or it leaves, and may be
// gone already.
func (n *shardNode) silent() error {
	if n.leaves || errors.Is(n.Err, sharding.ErrNoRegion) {
		return nil
	}
	return n.Err
}

// look asks all members what they host, and returns the types that there are, sorted: the one that --type names, if it does.
func (c *shardsCommand) look(ctx context.Context, n *nodes) (all []shardNode, types []string, err error) {
	names, leaves, err := n.present(ctx, c.Ask)
	if err != nil {
		return nil, nil, err
	}
	for _, said := range n.shards.Regions(ctx, names) {
		all = append(all, shardNode{said, leaves[said.Name]})
	}
	types, err = c.typesOf(all)
	return all, types, err
}

// looked looks, and lets do go on with that.
func (c *shardsCommand) looked(ctx context.Context, do func(n *nodes, all []shardNode, types []string) error) error {
	return c.with(func(n *nodes) error {
		all, types, err := c.look(ctx, n)
		if err != nil {
			return err
		}
		return do(n, all, types)
	})
}

// typesOf returns the types that nodes have. If there is none the error says who was asked.
func (c *shardsCommand) typesOf(all []shardNode) ([]string, error) {
	found := map[string]bool{}
	var asked []string
	for i := range all {
		what := all[i].Name
		if err := all[i].silent(); err != nil {
			what += " (" + err.Error() + ")"
		}
		asked = append(asked, what)
		for j := range all[i].Regions {
			found[all[i].Regions[j].Type] = true
		}
	}
	types := slices.Sorted(maps.Keys(found))
	switch {
	case len(types) == 0:
		return nil, fmt.Errorf("no node of cluster %q has sharded entities; asked: %s", c.Cluster, strings.Join(asked, ", "))
	case c.Type == "":
		return types, nil
	case !found[c.Type]:
		return nil, fmt.Errorf("there is no entity type %q; there are: %s", c.Type, quoted(types))
	}
	return []string{c.Type}, nil
}

// one returns the only type that there is, or that --type names.
func one(types []string) (string, error) {
	if len(types) > 1 {
		return "", fmt.Errorf("there are several entity types, --type says which: %s", quoted(types))
	}
	return types[0], nil
}

// member returns the one with a name, which has answered.
func member(all []shardNode, name string) (*shardNode, error) {
	var names []string
	for i := range all {
		if all[i].Name == name {
			return &all[i], all[i].Err
		}
		names = append(names, all[i].Name)
	}
	return nil, fmt.Errorf("there is no member %q; there are: %s", name, quoted(names))
}

func quoted(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, strconv.Quote(name))
	}
	return strings.Join(all, ", ")
}

// coordinatorOf returns the node that has the coordinator of a type, by its name.
func coordinatorOf(all []shardNode, typ string) (string, *sharding.AdminCoordinator) {
	name := ""
	var state *sharding.AdminCoordinator
	for i := range all {
		if r := all[i].Region(typ); r != nil && r.CoordinatorState != nil && (state == nil || r.CoordinatorState.Term > state.Term) {
			name, state = all[i].Name, r.CoordinatorState
		}
	}
	return name, state
}

// shardsListCommand is "refold shards list".
type shardsListCommand struct {
	watchFlags

	JSON bool `name:"json" help:"Print one JSON object a line, for each entity type."`
}

// Help is the long help of the command.
func (c *shardsListCommand) Help() string {
	return `All members are asked, one answer each: while shards move, two may have one, or none. A shard has a home from the first
command for one of its entities on, so there are fewer at first than the type is divided into. The exit status is 1 if a member does not
answer, unless it leaves, if one is refused, or if a type has no coordinator.`
}

// Run shows the shards.
func (c *shardsListCommand) Run(ctx context.Context, env *operator.Env, common *shardsCommand) error {
	return common.with(func(n *nodes) error {
		return c.show(ctx, env.Stdout, c.JSON, func(w io.Writer) error { return c.list(ctx, w, common, n) })
	})
}

// list prints the types one after the other.
func (c *shardsListCommand) list(ctx context.Context, w io.Writer, common *shardsCommand, n *nodes) error {
	all, types, err := common.look(ctx, n)
	if err != nil {
		return err
	}
	well := true
	for i, typ := range types {
		s := spreadOf(all, typ)
		well = well && s.well()
		if c.JSON {
			err = json.NewEncoder(w).Encode(s)
		} else {
			if i > 0 {
				_, _ = io.WriteString(w, "\n")
			}
			err = s.print(w)
		}
		if err != nil {
			return err
		}
	}
	if !well {
		return operator.ErrProblems
	}
	return nil
}

// spread is where the shards of a type are.
type spread struct {
	Type             string                     `json:"type"`
	Total            int                        `json:"total"`
	Coordinator      string                     `json:"coordinator,omitempty"` // the name of its node
	CoordinatorState *sharding.AdminCoordinator `json:"coordinator_state,omitempty"`
	Nodes            []spreadNode               `json:"nodes"`
}

// spreadNode is a member that has a region or a proxy, leaves, or has not answered.
type spreadNode struct {
	Name string `json:"name"`
	*sharding.AdminRegion

	Leaves bool   `json:"leaves,omitempty"`
	Error  string `json:"error,omitempty"`
}

func spreadOf(all []shardNode, typ string) *spread {
	s := &spread{Type: typ}
	s.Coordinator, s.CoordinatorState = coordinatorOf(all, typ)
	for i := range all {
		n := spreadNode{Name: all[i].Name, AdminRegion: all[i].Region(typ), Leaves: all[i].leaves}
		if err := all[i].Err; err != nil && !errors.Is(err, sharding.ErrNoRegion) {
			n.Error = err.Error()
		}
		if n.AdminRegion != nil {
			s.Total = n.Total
		}
		if n.AdminRegion != nil || n.Leaves || n.Error != "" {
			s.Nodes = append(s.Nodes, n)
		}
	}
	return s
}

// well reports whether all that stay have answered and none is refused, and there is a coordinator.
func (s *spread) well() bool {
	for i := range s.Nodes {
		if n := &s.Nodes[i]; !n.Leaves && (n.Error != "" || n.AdminRegion != nil && n.Mismatch != "") {
			return false
		}
	}
	return s.CoordinatorState != nil
}

func (s *spread) print(w io.Writer) error {
	out := newLines(w, false, "NODE\tSHARDS\tENTITIES\tWAITING\tDROPPED\tNOTES\n")
	shards, entities := 0, 0
	for i := range s.Nodes {
		n := &s.Nodes[i]
		cells := []string{n.Name, "-", "-", "-", "-"}
		if r := n.AdminRegion; r != nil {
			shards, entities = shards+r.Shards, entities+r.Entities
			for i, v := range []int{r.Shards, r.Entities, r.Waiting} {
				cells[1+i] = strconv.Itoa(v)
			}
			cells[4] = strconv.FormatUint(r.Dropped, 10)
		}
		if err := out.line(nil, "%s\t%s\n", strings.Join(cells, "\t"), orNone(plain(s.notes(n)))); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	about := "there is no coordinator"
	if r := s.CoordinatorState; r != nil {
		about = fmt.Sprintf("coordinator on %s, %s, term %d", s.Coordinator, r.Phase, r.Term)
		if r.Moving > 0 {
			about += fmt.Sprintf("; %d are moving", r.Moving)
		}
	}
	_, err := fmt.Fprintf(w, "\n%s: %d of %d shards, %d entities; %s\n", plain(s.Type), shards, s.Total, entities, about)
	return err
}

// notes tells what else there is about a node.
func (s *spread) notes(n *spreadNode) string {
	switch {
	case n.AdminRegion == nil && n.Leaves:
		return "leaves"
	case n.AdminRegion == nil:
		return n.Error
	}
	var all []string
	if n.CoordinatorState != nil && n.Name == s.Coordinator {
		all = append(all, "has the coordinator")
	}
	switch {
	case n.Leaves:
		all = append(all, "leaves")
	case n.Proxy:
		all = append(all, "proxy")
	case n.Drained && n.Shards > 0:
		all = append(all, "gives its shards away")
	case n.Drained:
		all = append(all, "drained")
	}
	if n.Mismatch != "" {
		_, why, _ := strings.Cut(strings.TrimPrefix(n.Mismatch, "sharding: "), ": ")
		all = append(all, "is refused: "+why)
	}
	if n.Coordinator == "" && !n.Leaves {
		all = append(all, "knows no coordinator")
	}
	return strings.Join(all, ", ")
}
