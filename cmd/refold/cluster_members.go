// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/operator"
)

// clusterMembersCommand is "refold cluster members".
type clusterMembersCommand struct {
	Watch    bool          `help:"Show them again whenever they change, until Ctrl-C."`
	Interval time.Duration `help:"How often --watch looks." default:"1s"`
	JSON     bool          `name:"json" help:"Print one JSON object, or one a line."`
}

// Help is the long help of the command.
func (c *clusterMembersCommand) Help() string {
	return `Shows what one node knows; --ask says which. Members that can't be reached are marked, with who says so.
The exit status is 1 if there are any, or if not all members know the same yet.`
}

// Validate checks the flags.
func (c *clusterMembersCommand) Validate() error {
	if c.Interval < 10*time.Millisecond {
		return fmt.Errorf("--interval is %v, it must be at least 10ms", c.Interval)
	}
	return nil
}

// Run shows the members.
func (c *clusterMembersCommand) Run(ctx context.Context, env *operator.Env, common *clusterCommand) error {
	if c.Watch {
		return common.with(ctx, func(ctx context.Context, admin *cluster.Admin) error { return c.follow(ctx, env, common, admin) })
	}
	var s *cluster.Summary
	err := common.once(ctx, func(ctx context.Context, admin *cluster.Admin) (err error) {
		s, err = admin.State(ctx, common.Ask)
		return err
	})
	if err == nil {
		err = c.print(env.Stdout, s)
	}
	if err == nil && !healthy(s) {
		err = operator.ErrProblems
	}
	return err
}

// healthy reports whether all members can be reached and know the same.
func healthy(s *cluster.Summary) bool {
	ok := s.Converged && s.Connected
	for i := range s.Members {
		ok = ok && !s.Members[i].Unreachable
	}
	return ok
}

// follow shows the members whenever they change. A node that does not answer is no reason to end.
func (c *clusterMembersCommand) follow(ctx context.Context, env *operator.Env, common *clusterCommand, admin *cluster.Admin) error {
	var last string
	node := common.Ask
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, common.Timeout)
		s, err := admin.State(asked, node)
		cancel()
		if node = common.Ask; err == nil && node == "" {
			node, _, _ = strings.Cut(s.Self, "#") // one node sees one thing after the other
		}
		var now bytes.Buffer
		switch {
		case ctx.Err() != nil:
			return nil // that is how it ends
		case err != nil && c.JSON:
			err = json.NewEncoder(&now).Encode(map[string]string{"error": err.Error()})
		case err != nil:
			_, err = fmt.Fprintf(&now, "%v\n", err)
		default:
			err = c.print(&now, s)
		}
		if err != nil {
			return err
		}
		if shown := now.String(); shown != last {
			last = shown
			if !c.JSON {
				shown = time.Now().Format(time.TimeOnly) + "\n" + shown + "\n"
			}
			if _, err := io.WriteString(env.Stdout, shown); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *clusterMembersCommand) print(w io.Writer, s *cluster.Summary) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(s)
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "MEMBER\tSTATUS\tREACHABLE\tAGE\tVERSION\tROLES\tNOTES")
	for i := range s.Members {
		m := &s.Members[i]
		age := "-"
		if m.UpNumber > 0 {
			age = fmt.Sprint(m.UpNumber)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Node, m.Status, reachable(m), age, m.Version, orNone(strings.Join(m.Roles, ",")), orNone(notes(s, m)))
	}
	_ = table.Flush() // into memory
	agree := "all members know this"
	if !s.Converged {
		agree = "not all members know this yet"
	}
	if !s.Connected {
		agree += "; the node itself is cut off from the others"
	}
	fmt.Fprintf(&b, "\nas %s sees it; %s; downing: %s\n", s.Self, agree, s.Strategy)
	_, err := io.WriteString(w, b.String())
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

// notes tells what else there is about a member.
func notes(s *cluster.Summary, m *cluster.SummaryMember) string {
	var all []string
	if m.Node == s.Leader {
		all = append(all, "leads")
	}
	if len(m.UnreachableTo) > 0 {
		all = append(all, "unreachable to "+strings.Join(m.UnreachableTo, " "))
	}
	if !m.Seen {
		all = append(all, "does not know this yet")
	}
	return strings.Join(all, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
