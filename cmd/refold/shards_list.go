// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/sharding"
)

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
