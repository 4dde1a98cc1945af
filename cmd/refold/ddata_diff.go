// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/ddata"
)

type ddataDiffCommand struct {
	replicatorFlag

	Limit int           `help:"Maximum number of keys to print." default:"100"`
	Wait  time.Duration `help:"Repeat until all nodes have equal data, for at most this time." default:"0s"`
	JSON  bool          `name:"json" help:"Print one JSON object."`
}

func (c *ddataDiffCommand) Help() string {
	return `Queries the nodes one after another. A key that changes during the comparison may differ temporarily; --wait repeats the
comparison. For each key that differs, it prints the start of the digest of each node. The exit status is 1 if keys differ
or a member does not respond.`
}

func (c *ddataDiffCommand) Validate() error {
	switch {
	case c.Limit < 1:
		return fmt.Errorf("--limit is %d, must be at least 1", c.Limit)
	case c.Wait < 0:
		return fmt.Errorf("--wait is %v, must not be negative", c.Wait)
	}
	return nil
}

func (c *ddataDiffCommand) Run(ctx context.Context, env *operator.Env, common *ddataCommand) error {
	return common.with(func(n *nodes) error {
		deadline := time.Now().Add(c.Wait)
		for {
			names, _, err := n.present(ctx, common.Ask)
			if err != nil {
				return err
			}
			d, err := n.data.Diff(ctx, c.Replicator, names, c.Limit)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(d.Nodes, func(n ddata.DiffNode) bool { return !errors.Is(n.Err, ddata.ErrNoReplicator) }) {
				return fmt.Errorf("no member has replicator %q: %w", c.Replicator, ddata.ErrNoReplicator)
			}
			if d.Same() || !time.Now().Before(deadline) {
				return c.print(env.Stdout, d)
			}
			if err = rest(ctx); err != nil {
				return err
			}
		}
	})
}

// diffNode is a node in JSON, and diffKey a key with its digests.
type diffNode struct {
	Name   string `json:"name"`
	Node   string `json:"node,omitempty"`
	Digest string `json:"digest,omitempty"`
	Absent bool   `json:"absent,omitempty"` // the node has no such replicator
	Error  string `json:"error,omitempty"`
}

type diffKey struct {
	Key  string            `json:"key"`
	Held map[string]string `json:"held"`
}

func (c *ddataDiffCommand) print(w io.Writer, d *ddata.Diff) error {
	var all []diffNode
	for i := range d.Nodes {
		n := &d.Nodes[i]
		out := diffNode{Name: n.Name, Node: n.Node, Digest: n.Digest, Absent: errors.Is(n.Err, ddata.ErrNoReplicator)}
		if n.Err != nil && !out.Absent {
			out.Error = n.Err.Error()
		}
		all = append(all, out)
	}
	err := c.show(w, d, all)
	if err == nil && !d.Same() {
		err = operator.ErrProblems
	}
	return err
}

func (c *ddataDiffCommand) show(w io.Writer, d *ddata.Diff, all []diffNode) error {
	if c.JSON {
		keys := make([]diffKey, len(d.Keys))
		for i, k := range d.Keys {
			keys[i] = diffKey{k.Key, map[string]string{}}
			for j, held := range k.Held {
				if d.Nodes[j].Err == nil {
					keys[i].Held[d.Nodes[j].Name] = held
				}
			}
		}
		return json.NewEncoder(w).Encode(struct {
			Same  bool       `json:"same"`
			Nodes []diffNode `json:"nodes"`
			Keys  []diffKey  `json:"keys"`
			More  bool       `json:"more,omitempty"`
		}{d.Same(), all, keys, d.More})
	}
	out := console.NewTable(w, false, "NODE", "DIGEST")
	compared := []int{}
	for i, n := range all {
		text := n.Digest
		switch {
		case n.Absent:
			text = "no such replicator"
		case n.Error != "":
			text = n.Error
		default:
			compared = append(compared, i)
		}
		if err := out.Row(n.Name, text); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if len(d.Keys) == 0 {
		_, err := fmt.Fprintf(w, "\nall keys are equal on these %d nodes\n", len(compared))
		return err
	}
	head := []string{"KEY"}
	for _, i := range compared {
		head = append(head, strings.ToUpper(all[i].Name))
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	out = console.NewTable(w, false, head...)
	for _, k := range d.Keys {
		cells := []string{k.Key}
		for _, i := range compared {
			cells = append(cells, short(k.Held[i]))
		}
		if err := out.Row(cells...); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil || !d.More {
		return err
	}
	_, err := fmt.Fprintln(w, "more keys differ")
	return err
}

func short(digest string) string {
	if digest == ddata.DiffDeleted {
		return digest
	}
	return orNone(digest[:min(len(digest), 8)])
}
