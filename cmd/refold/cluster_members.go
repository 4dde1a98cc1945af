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
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/cmd/refold/operator"
)

type clusterMembersCommand struct {
	watchFlags

	JSON bool `name:"json" help:"Print one JSON object, or one per line with --watch."`
}

func (c *clusterMembersCommand) Help() string {
	return `Prints the view of one node; --ask selects the node. The notes list the observers of an unreachable member. The exit
status is 1 if a member is unreachable, or if the members do not agree yet.`
}

func (c *clusterMembersCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	return common.with(func(n *nodes) error {
		node := common.Ask
		return c.show(ctx, env.Stdout, c.JSON, func(w io.Writer) error {
			s, err := n.members.State(ctx, node)
			if node = common.Ask; err != nil {
				return err
			}
			if node == "" {
				node, _, _ = strings.Cut(s.Self, "#") // query the same node again, because the views of one node are ordered
			}
			if err = c.print(w, s); err == nil && !healthy(s) {
				err = operator.ErrProblems
			}
			return err
		})
	})
}

func healthy(s *cluster.Summary) bool {
	ok := s.Converged && s.Connected
	for i := range s.Members {
		ok = ok && !s.Members[i].Unreachable
	}
	return ok
}

func (c *clusterMembersCommand) print(w io.Writer, s *cluster.Summary) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(s)
	}
	table := console.NewTable(w, false, "MEMBER", "STATUS", "REACHABLE", "AGE", "VERSION", "ROLES", "NOTES")
	for i := range s.Members {
		m := &s.Members[i]
		age := "-"
		if m.UpNumber > 0 {
			age = fmt.Sprint(m.UpNumber)
		}
		if err := table.Row(m.Node, m.Status, reachable(m), age, fmt.Sprint(m.Version), orNone(strings.Join(m.Roles, ",")), orNone(notes(s, m))); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	agree := "all members agree"
	if !s.Converged {
		agree = "the members do not agree yet"
	}
	if !s.Connected {
		agree += "; the node is disconnected from the others"
	}
	_, err := fmt.Fprintf(w, "\nas %s sees it; %s; downing: %s\n", s.Self, agree, s.Strategy)
	return err
}

func reachable(m *cluster.SummaryMember) string {
	switch {
	case m.Terminated:
		return "dead"
	case m.Unreachable:
		return "no"
	}
	return "yes"
}

func notes(s *cluster.Summary, m *cluster.SummaryMember) string {
	var all []string
	if m.Node == s.Leader {
		all = append(all, "leads")
	}
	if len(m.UnreachableTo) > 0 {
		all = append(all, "unreachable to "+strings.Join(m.UnreachableTo, " "))
	}
	if !m.Seen {
		all = append(all, "has not seen this state yet")
	}
	return strings.Join(all, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

type clusterSingletonsCommand struct {
	watchFlags

	JSON bool `name:"json" help:"Print one JSON object per line, one for each singleton."`
}

func (c *clusterSingletonsCommand) Help() string {
	return `Queries all members. The singletons "sharding|type" and "groups|role" are the coordinators of an entity type and of the groups
of a role. A singleton without a node is in a hand-over, or its instance has returned. The exit status is 2 if a member does not
respond; the singletons of the others are printed.`
}

func (c *clusterSingletonsCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	return common.with(func(n *nodes) error {
		return c.show(ctx, env.Stdout, c.JSON, func(w io.Writer) error {
			names, _, err := n.present(ctx, common.Ask)
			if err != nil {
				return err
			}
			all, err := n.members.Singletons(ctx, names)
			return errors.Join(c.print(w, all), err)
		})
	})
}

func (c *clusterSingletonsCommand) print(w io.Writer, all []cluster.SingletonStatus) error {
	table := console.NewTable(w, c.JSON, "SINGLETON", "ROLE", "NODE", "SINCE", "NOTES")
	for _, s := range all {
		if err := table.Add(func() any { return s }, func() []string {
			since := ""
			if !s.Since.IsZero() {
				since = s.Since.UTC().Format(time.RFC3339)
			}
			var notes []string
			for _, name := range slices.Sorted(maps.Keys(s.States)) {
				if state := s.States[name]; state != "younger" && (state != "oldest" || name != s.Node) {
					notes = append(notes, name+": "+state)
				}
			}
			return []string{s.Name, orNone(s.Role), orNone(s.Node), orNone(since), orNone(strings.Join(notes, ", "))}
		}); err != nil {
			return err
		}
	}
	return table.Flush()
}
