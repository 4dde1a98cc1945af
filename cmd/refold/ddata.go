// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

type ddataCommand struct {
	clusterFlags

	Ask string `help:"The node to query. Defaults to any node with the replicator." placeholder:"NODE"`

	Keys  ddataKeysCommand  `cmd:"" help:"List the keys of a node."`
	Get   ddataGetCommand   `cmd:"" help:"Print the value of a key, as JSON."`
	Count ddataCountCommand `cmd:"" help:"Print the number of replicas, and of keys on a node."`
	Diff  ddataDiffCommand  `cmd:"" help:"Compare the data of all nodes, and list the keys that differ."`
	Disk  operator.Durable  `cmd:"" help:"Inspect the data that stopped nodes have on disk."`
}

type replicatorFlag struct {
	Replicator string `help:"The replicator. Defaults to ${default}." default:"ddata" placeholder:"NAME"`
}

// query connects and calls do with the node to query. Without --ask, if the responding node has no
// such replicator, query looks for a member that responds and has it.
func (f *replicatorFlag) query(ctx context.Context, common *ddataCommand, do func(n *nodes, at ddata.At) error) error {
	return common.with(func(n *nodes) error {
		// The queried node times out before this client, so that its reply still arrives.
		spare := max(common.Timeout/10, min(2*time.Second, common.Timeout/2))
		at := ddata.At{Node: common.Ask, Replicator: f.Replicator, Timeout: common.Timeout - spare}
		err := do(n, at)
		if at.Node != "" || !errors.Is(err, ddata.ErrNoReplicator) {
			return err
		}
		names, _, failed := n.present(ctx, common.Ask)
		if failed != nil {
			return errors.Join(err, failed)
		}
		var silent error
		for _, at.Node = range names {
			_, _, err = n.data.Stats(ctx, at)
			if err == nil {
				return do(n, at)
			}
			if !errors.Is(err, ddata.ErrNoReplicator) {
				silent = errors.Join(silent, err)
			}
		}
		return cmp.Or(silent, fmt.Errorf("no member has replicator %q: %w", f.Replicator, err))
	})
}

type ddataKeysCommand struct {
	replicatorFlag

	Prefix  string `arg:"" optional:"" help:"List keys with this prefix. Defaults to all."`
	Deleted bool   `help:"Also list deleted keys."`
	Limit   int    `help:"Maximum number of keys to print; 0 is no limit." default:"1000"`
	JSON    bool   `name:"json" help:"Print one JSON object per line."`
}

func (c *ddataKeysCommand) Run(ctx context.Context, env *operator.Env, common *ddataCommand) error {
	if c.Limit < 0 {
		return fmt.Errorf("--limit is %d, must not be negative", c.Limit)
	}
	return c.query(ctx, common, func(n *nodes, at ddata.At) error {
		out := console.NewTable(env.Stdout, c.JSON, "KEY", "TYPE", "DURABLE")
		printed := 0
		for k, err := range n.data.Keys(ctx, at, c.Prefix, c.Deleted) {
			switch {
			case err != nil && printed == 0:
				return err
			case err != nil:
				return errors.Join(err, out.Flush())
			}
			if printed++; c.Limit > 0 && printed > c.Limit {
				_, err := fmt.Fprintf(env.Stderr, "%s: more keys follow, from %q\n", env.Name, k.Key)
				return errors.Join(err, out.Flush())
			}
			kind, durable := k.Type, "no"
			if k.Deleted {
				kind = "deleted"
			}
			if k.Durable {
				durable = "yes"
			}
			if err := out.Add(func() any { return k }, func() []string { return []string{k.Key, kind, durable} }); err != nil {
				return err
			}
		}
		return out.Flush()
	})
}

type ddataGetCommand struct {
	replicatorFlag

	Key   string `arg:"" help:"The key."`
	Level string `help:"The nodes whose values are merged: ${enum}." default:"local" enum:"local,majority,all"`
	JSON  bool   `name:"json" help:"Print one JSON object, with node and type."`
}

func (c *ddataGetCommand) Help() string {
	return `With --level local it prints the value of one node; --ask selects the node. With the other levels the queried node also
stores the merged value, as it does for a read by a program.`
}

func (c *ddataGetCommand) Run(ctx context.Context, env *operator.Env, common *ddataCommand) error {
	return c.query(ctx, common, func(n *nodes, at ddata.At) error {
		v, err := n.data.Get(ctx, at, c.Key, c.Level)
		if err != nil {
			return err
		}
		var types *crdt.Types
		value, err := types.Decode(v.Data)
		text := json.RawMessage(operator.ValueJSON(value))
		if errors.Is(err, crdt.ErrUndefined) { // the node has the type, but this program does not
			if v, err = n.data.GetJSON(ctx, at, c.Key, c.Level); err == nil {
				text = v.Data
			}
		}
		if err != nil {
			return err
		}
		if !c.JSON {
			return env.PrintJSON(text)
		}
		return json.NewEncoder(env.Stdout).Encode(struct {
			Node  string          `json:"node"`
			Key   string          `json:"key"`
			Type  string          `json:"type"`
			Value json.RawMessage `json:"value"`
		}{v.Node, v.Key, v.Type, text})
	})
}

type ddataCountCommand struct {
	replicatorFlag

	JSON bool `name:"json" help:"Print one JSON object."`
}

func (c *ddataCountCommand) Run(ctx context.Context, env *operator.Env, common *ddataCommand) error {
	return c.query(ctx, common, func(n *nodes, at ddata.At) error {
		node, stats, err := n.data.Stats(ctx, at)
		if err != nil {
			return err
		}
		for i := range stats {
			s := &stats[i]
			if c.JSON {
				err = json.NewEncoder(env.Stdout).Encode(struct {
					Node string `json:"node"`
					*ddata.AdminStat
				}{node, s})
			} else {
				synced := ""
				if !s.Synced {
					synced = "; initial synchronization in progress"
				}
				_, err = fmt.Fprintf(env.Stdout, "%d replicas\n\nas %s sees it; %d keys, %d deleted; digest %s%s\n", s.Replicas, node, s.Keys, s.Deleted, s.Digest, synced)
			}
		}
		return err
	})
}
