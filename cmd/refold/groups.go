// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/internal/jsontext"
	"github.com/refold-io/refold/sharding"
)

type groupsCommand struct {
	clusterFlags
	watchFlags

	Ask  string `help:"The node to query for the members. Defaults to any node." placeholder:"NODE"`
	JSON bool   `name:"json" help:"Print one JSON object per line, one for each group."`
}

func (*groupsCommand) Help() string {
	return `Prints the instances of groups and the workers with their nodes. Queries the members one after another, and prints the
table of the coordinator, or the latest table if the coordinator does not respond. The exit status is 1 if a member does
not respond (unless it is leaving), or an instance has no node.`
}

func (c *groupsCommand) Run(ctx context.Context, env *operator.Env) error {
	return c.with(func(n *nodes) error {
		return c.show(ctx, env.Stdout, c.JSON, func(w io.Writer) error { return c.list(ctx, w, n) })
	})
}

// groupName identifies a group of a cluster.
type groupName struct{ role, name string }

func (c *groupsCommand) list(ctx context.Context, w io.Writer, n *nodes) error {
	names, leaves, err := n.present(ctx, c.Ask)
	if err != nil {
		return err
	}
	found, silent := map[groupName]sharding.GroupStatus{}, []string{}
	for _, name := range names {
		for g, err := range n.shards.Groups(ctx, name) {
			if err != nil {
				if !leaves[name] && !errors.Is(err, sharding.ErrNoRegion) {
					silent = append(silent, name+" ("+err.Error()+")")
				}
				break
			}
			key := groupName{g.Role, g.Name}
			if last, known := found[key]; !known || g.Revision > last.Revision || g.Revision == last.Revision && len(g.Waiting) > 0 {
				found[key] = g
			}
		}
	}
	if len(found) == 0 && len(silent) == 0 {
		return fmt.Errorf("no node of cluster %q has groups or workers; queried: %s", c.Cluster, strings.Join(names, ", "))
	}
	well := len(silent) == 0
	keys := slices.SortedFunc(maps.Keys(found), func(a, b groupName) int {
		return cmp.Or(strings.Compare(a.role, b.role), strings.Compare(a.name, b.name))
	})
	for _, key := range keys {
		g := found[key]
		well = well && len(g.Places) > 0 && !slices.ContainsFunc(g.Places, func(p sharding.GroupPlace) bool { return p.Node == "" })
		if c.JSON {
			if err := json.NewEncoder(w).Encode(g); err != nil {
				return err
			}
		} else if err := printGroup(w, &g); err != nil {
			return err
		}
	}
	for _, name := range silent {
		if _, err := fmt.Fprintf(w, "no response from %s\n", jsontext.Printable(name)); err != nil {
			return err
		}
	}
	if !well {
		return operator.ErrProblems
	}
	return nil
}

func printGroup(w io.Writer, g *sharding.GroupStatus) error {
	kind := "instances"
	if g.Workers {
		kind = "workers"
	}
	title := fmt.Sprintf("%s: %d %s", g.Name, len(g.Places), kind)
	if g.Role != "" {
		title += ", role " + g.Role
	}
	if g.Rescaled > 0 {
		title += fmt.Sprintf(", %d requested", g.Rescaled)
	}
	title += fmt.Sprintf("; coordinator on %s, revision %d", cmp.Or(g.Coordinator, "no node"), g.Revision)
	if len(g.Waiting) > 0 {
		title += ", waits for " + strings.Join(g.Waiting, ", ")
	}
	if _, err := fmt.Fprintln(w, jsontext.Printable(title)); err != nil {
		return err
	}
	out := console.NewTable(w, false, "NR", "NODE", "NEXT", "ENDS ON")
	for nr, p := range g.Places {
		if err := out.Row(strconv.Itoa(nr), orNone(p.Node), orNone(p.Next), orNone(p.Old)); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
