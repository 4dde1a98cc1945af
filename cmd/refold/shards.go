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
	"time"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/internal/jsontext"
	"github.com/refold-io/refold/sharding"
)

type shardsCommand struct {
	clusterFlags

	Ask  string `help:"The node to query for the members. Defaults to any node." placeholder:"NODE"`
	Type string `help:"The entity type. Required by some commands if there are several." placeholder:"NAME"`

	List      shardsListCommand      `cmd:"" default:"withargs" help:"Print the shards and entities of each node. This is the default command."`
	Entities  shardsEntitiesCommand  `cmd:"" help:"Print the number of entities of each shard, or the entities of one shard."`
	Find      shardsFindCommand      `cmd:"" help:"Print the shard and the node of an entity."`
	Rebalance shardsRebalanceCommand `cmd:"" help:"Start a rebalance now."`
	Move      shardsMoveCommand      `cmd:"" help:"Move a shard to a node and keep it there."`
	Release   shardsReleaseCommand   `cmd:"" help:"Allow the allocation strategy to move a shard again."`
	Drain     shardsDrainCommand     `cmd:"" help:"Move all shards of a node to other nodes."`
	Undrain   shardsUndrainCommand   `cmd:"" help:"Allow a drained node to host shards again."`
}

type shardNode struct {
	sharding.AdminNode

	leaves bool
}

// silent returns the reason why a member has not responded. It returns nil if the member need not
// respond, because it has no region or is leaving.
func (n *shardNode) silent() error {
	if n.leaves || errors.Is(n.Err, sharding.ErrNoRegion) {
		return nil
	}
	return n.Err
}

// regions queries all members, and returns the sorted entity types, or the type that --type names.
func (c *shardsCommand) regions(ctx context.Context, n *nodes) (all []shardNode, types []string, err error) {
	names, leaves, err := n.present(ctx, c.Ask)
	if err != nil {
		return nil, nil, err
	}
	for _, answer := range n.shards.Regions(ctx, names) {
		all = append(all, shardNode{answer, leaves[answer.Name]})
	}
	types, err = c.typesOf(all)
	return all, types, err
}

func (c *shardsCommand) withRegions(ctx context.Context, do func(n *nodes, all []shardNode, types []string) error) error {
	return c.with(func(n *nodes) error {
		all, types, err := c.regions(ctx, n)
		if err != nil {
			return err
		}
		return do(n, all, types)
	})
}

// typesOf returns the entity types of the nodes. If there are none, the error names the queried
// nodes.
func (c *shardsCommand) typesOf(all []shardNode) ([]string, error) {
	found := map[string]bool{}
	var asked []string
	for i := range all {
		subject := all[i].Name
		if err := all[i].silent(); err != nil {
			subject += " (" + err.Error() + ")"
		}
		asked = append(asked, subject)
		for j := range all[i].Regions {
			found[all[i].Regions[j].Type] = true
		}
	}
	types := slices.Sorted(maps.Keys(found))
	switch {
	case len(types) == 0:
		return nil, fmt.Errorf("no node of cluster %q has sharded entities; queried: %s", c.Cluster, strings.Join(asked, ", "))
	case c.Type == "":
		return types, nil
	case !found[c.Type]:
		return nil, fmt.Errorf("no entity type %q; the types are: %s", c.Type, quoted(types))
	}
	return []string{c.Type}, nil
}

// one returns the only type, or the type that --type names.
func one(types []string) (string, error) {
	if len(types) > 1 {
		return "", fmt.Errorf("several entity types exist, select one with --type: %s", quoted(types))
	}
	return types[0], nil
}

func member(all []shardNode, name string) (*shardNode, error) {
	var names []string
	for i := range all {
		if all[i].Name == name {
			return &all[i], all[i].Err
		}
		names = append(names, all[i].Name)
	}
	return nil, fmt.Errorf("no member %q; the members are: %s", name, quoted(names))
}

func quoted(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, strconv.Quote(name))
	}
	return strings.Join(all, ", ")
}

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

type shardsListCommand struct {
	watchFlags

	JSON bool `name:"json" help:"Print one JSON object per line, one for each entity type."`
}

func (c *shardsListCommand) Help() string {
	return `Queries the members one after another. While a shard moves, two nodes may list it, or none. The first command for an
entity allocates its shard, so a type may have fewer allocated shards than shards. A shard in motion is listed with the node
that it leaves, and the next one as soon as the strategy has chosen it. The exit status is 1 if a member does
not respond (unless it is leaving), a region is refused, or a type has no coordinator.`
}

func (c *shardsListCommand) Run(ctx context.Context, env *operator.Env, common *shardsCommand) error {
	return common.with(func(n *nodes) error {
		return c.show(ctx, env.Stdout, c.JSON, func(w io.Writer) error { return c.list(ctx, w, common, n) })
	})
}

func (c *shardsListCommand) list(ctx context.Context, w io.Writer, common *shardsCommand, n *nodes) error {
	all, types, err := common.regions(ctx, n)
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

type spread struct {
	Type             string                     `json:"type"`
	Total            int                        `json:"total"`
	Coordinator      string                     `json:"coordinator,omitempty"` // the name of its node
	CoordinatorState *sharding.AdminCoordinator `json:"coordinator_state,omitempty"`
	Nodes            []spreadNode               `json:"nodes"`
}

// spreadNode is a member that has a region or a proxy, is leaving, or has not responded.
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

// well reports whether all remaining members have responded, none is refused, and a coordinator
// runs.
func (s *spread) well() bool {
	for i := range s.Nodes {
		if n := &s.Nodes[i]; !n.Leaves && (n.Error != "" || n.AdminRegion != nil && n.Mismatch != "") {
			return false
		}
	}
	return s.CoordinatorState != nil
}

func (s *spread) print(w io.Writer) error {
	out := console.NewTable(w, false, "NODE", "SHARDS", "ENTITIES", "WAITING", "DROPPED", "NOTES")
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
		if err := out.Row(append(cells, orNone(s.notes(n)))...); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	about := "no coordinator"
	if r := s.CoordinatorState; r != nil {
		about = fmt.Sprintf("coordinator on %s, %s, term %d", s.Coordinator, r.Phase, r.Term)
		if r.Moving > 0 {
			about += fmt.Sprintf("; %d are moving", r.Moving)
		}
	}
	_, err := fmt.Fprintf(w, "\n%s: %d of %d shards, %d entities; %s\n", jsontext.Printable(s.Type), shards, s.Total, entities, about)
	if err != nil || s.CoordinatorState == nil {
		return err
	}
	if moves := s.CoordinatorState.Moves; len(moves) > 0 {
		_, _ = io.WriteString(w, "\n")
		out = console.NewTable(w, false, "SHARD IN MOTION", "FROM", "TO", "STEP", "SINCE")
		for _, m := range moves {
			if err = out.Row(strconv.FormatUint(uint64(m.Shard), 10), orNone(m.From), orNone(m.To), m.Step, m.Since.UTC().Format(time.RFC3339)); err != nil {
				return err
			}
		}
		if err = out.Flush(); err != nil {
			return err
		}
	}
	if len(s.CoordinatorState.Pins) == 0 {
		return nil
	}
	_, _ = io.WriteString(w, "\n")
	out = console.NewTable(w, false, "MOVED SHARD", "TO", "NOW ON")
	for _, p := range s.CoordinatorState.Pins {
		if err = out.Row(strconv.FormatUint(uint64(p.Shard), 10), p.Node, orNone(p.Home)); err != nil {
			return err
		}
	}
	return out.Flush()
}

func (s *spread) notes(n *spreadNode) string {
	switch {
	case n.AdminRegion == nil && n.Leaves:
		return "leaves"
	case n.AdminRegion == nil:
		return n.Error
	}
	var all []string
	if n.CoordinatorState != nil && n.Name == s.Coordinator {
		all = append(all, "runs the coordinator")
	}
	switch {
	case n.Leaves:
		all = append(all, "leaves")
	case n.Proxy:
		all = append(all, "proxy")
	case n.Drained && n.Shards > 0:
		all = append(all, "draining")
	case n.Drained:
		all = append(all, "drained")
	}
	if n.Mismatch != "" {
		_, why, _ := strings.Cut(strings.TrimPrefix(n.Mismatch, "sharding: "), ": ")
		all = append(all, "refused: "+why)
	}
	if n.Coordinator == "" && !n.Leaves {
		all = append(all, "not registered with a coordinator")
	}
	return strings.Join(all, ", ")
}
