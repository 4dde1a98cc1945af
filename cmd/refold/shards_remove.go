// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/transport"
)

type removeCommand struct {
	clusterFlags

	Types   []string `arg:"" optional:"" name:"type" help:"The entity types. Without any, the command lists the data of all types."`
	Journal string   `help:"The journal: leveldb:DIR, or postgres://USER@HOST/DATABASE." env:"REFOLD_JOURNAL" placeholder:"ADDRESS"`
	Yes     bool     `help:"Remove the data. Without it, the command only lists the data."`
	Stopped bool     `name:"nodes-are-stopped" help:"Confirm that no node runs, if the nodes cannot be queried."`
	JSON    bool     `name:"json" help:"Print one JSON object per line."`
}

func (c *removeCommand) Help() string {
	return `Removes the data of sharding from a journal: the allocation of shards, and the remembered entities. The events and snapshots
of the entities stay. Use it if the data cannot be repaired, for example after two clusters used one journal, and for types
that no longer exist.

All nodes must be stopped. With --cluster the command queries the nodes over NATS, and removes nothing if one responds. A
LevelDB journal that a node has open cannot be opened. PostgreSQL needs --cluster or --nodes-are-stopped. If a node writes
during the removal, the command detects the write and stops. An interrupted removal continues when the command is run again.

Without --yes the command lists the data. Data of sharding that is stored as replicated data is lost when the last node
stops, except for durable data, which is in the directory of each node ("refold ddata disk").`
}

func (c *removeCommand) Validate() error {
	switch {
	case c.Journal == "":
		return errors.New("--journal is missing")
	case c.Yes && len(c.Types) == 0:
		return errors.New("--yes needs the names of the entity types; without --yes, the command lists the data of all types")
	}
	return c.clusterFlags.Validate()
}

func (c *removeCommand) Run(ctx context.Context, env *operator.Env) error {
	if c.Yes {
		if err := c.requireStopped(ctx); err != nil {
			return fmt.Errorf("%w; nothing is removed", err)
		}
	}
	found, err := c.find(ctx, env)
	if err != nil {
		return err
	}
	if err := c.print(env.Stdout, found); err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(c.Types), func(typ string) bool {
		return slices.ContainsFunc(found, func(d sharding.JournalData) bool { return d.Type == typ })
	})
	switch left := slices.ContainsFunc(found, func(d sharding.JournalData) bool { return !d.Removed }); {
	case len(missing) > 0:
		return fmt.Errorf("no data of %s; nothing is removed", quoted(missing))
	case !left:
		return c.message(env, "no data to remove")
	case !c.Yes && len(c.Types) == 0:
		return c.message(env, "nothing is removed: name the entity types, and add --yes")
	case !c.Yes:
		return c.message(env, "nothing is removed: add --yes to remove this data")
	}
	return c.remove(ctx, env, found)
}

func (c *removeCommand) message(env *operator.Env, text string) error {
	_, err := fmt.Fprintf(env.Stderr, "%s: %s\n", env.Name, text)
	return err
}

// requireStopped returns an error if a node runs, or if the command cannot determine that no node runs.
func (c *removeCommand) requireStopped(ctx context.Context) error {
	if c.Cluster == "" {
		if c.Stopped || strings.HasPrefix(c.Journal, "leveldb:") { // only one process can open a LevelDB directory
			return nil
		}
		return errors.New("cannot determine whether nodes run: use --cluster to query them, or --nodes-are-stopped to confirm that none runs")
	}
	var s *cluster.Summary
	err := c.with(func(n *nodes) (err error) {
		s, err = n.members.State(ctx, "")
		return err
	})
	switch {
	case err == nil:
		return fmt.Errorf("nodes of cluster %q run: %s has responded, with %d members", c.Cluster, s.Self, len(s.Members))
	case errors.Is(err, transport.ErrNoNode):
		return nil
	}
	return fmt.Errorf("cannot determine whether nodes run: %w", err)
}

func (c *removeCommand) in(ctx context.Context, open func(context.Context, string) (*operator.Source, error), f func(sharding.JournalStores) error) (err error) {
	src, err := open(ctx, c.Journal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return f(sharding.JournalStores{Journal: src.Journal, Snapshots: src.Snapshots})
}

func (c *removeCommand) find(ctx context.Context, env *operator.Env) (found []sharding.JournalData, err error) {
	err = c.in(ctx, env.Open, func(j sharding.JournalStores) (err error) {
		found, err = j.FindData(ctx, c.Types...)
		return err
	})
	return found, err
}

// remove removes the data, and stops at the first failure.
func (c *removeCommand) remove(ctx context.Context, env *operator.Env, found []sharding.JournalData) error {
	return c.in(ctx, env.OpenTarget, func(j sharding.JournalStores) error {
		n := 0
		for _, d := range found {
			if d.Removed {
				continue
			}
			if err := j.RemoveData(ctx, d); err != nil {
				return fmt.Errorf("%w; %d of %d are removed", err, n, len(found))
			}
			n++
		}
		return c.message(env, fmt.Sprintf("the data of %d persistence IDs is removed", n))
	})
}

type removable struct {
	ID        string    `json:"id"`
	Type      string    `json:"type"`
	What      string    `json:"what"`
	Events    int       `json:"events"`
	Snapshots int       `json:"snapshots"`
	Last      time.Time `json:"last,omitzero"`
	Removed   bool      `json:"removed,omitempty"`
}

func (c *removeCommand) print(w io.Writer, found []sharding.JournalData) error {
	if len(found) == 0 {
		return nil
	}
	out := console.NewTable(w, c.JSON, "PERSISTENCE ID", "EVENTS", "SNAPSHOTS", "LAST WRITTEN")
	for _, d := range found {
		last := "-"
		if !d.Last.IsZero() {
			last = d.Last.Format(time.DateTime)
		}
		if d.Removed {
			last += ", removed"
		}
		if err := out.Add(
			func() any { return removable{d.ID, d.Type, d.Kind, d.Events, d.Snapshots, d.Last, d.Removed} },
			func() []string { return []string{d.ID, fmt.Sprint(d.Events), fmt.Sprint(d.Snapshots), last} },
		); err != nil {
			return err
		}
	}
	return out.Flush()
}
