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

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/transport"
)

// removeCommand is "refold remove-sharding-data".
type removeCommand struct {
	clusterFlags

	Types   []string `arg:"" optional:"" name:"type" help:"The entity types. Without any, what there is of all types is shown."`
	Journal string   `help:"The journal: leveldb:DIR, or postgres://USER@HOST/DATABASE, as for the other commands." placeholder:"ADDRESS"`
	Yes     bool     `help:"Remove it. Without, what would be removed is shown."`
	Stopped bool     `name:"nodes-are-stopped" help:"Say that no node runs, where nobody can be asked."`
	JSON    bool     `name:"json" help:"Print one JSON object a line."`
}

// Help is the long help of the command.
func (c *removeCommand) Help() string {
	return `Removes what sharding keeps in a journal: where shards are, and which entities are remembered. The events and snapshots of the
entities themselves stay. It is for a state that can't be repaired, such as after two clusters have run on one journal, and for types that are gone.

All nodes must be stopped. With --cluster it is asked over NATS whether any runs, and nothing is removed if one answers. A LevelDB
journal that a node has open can't be opened. On PostgreSQL --cluster or --nodes-are-stopped is needed. What a node writes all the same is found
out, and nothing is removed then. Cut short, it goes on when it is run again.

It is shown first what there is; --yes removes it. What is in replicated data is gone when all nodes are stopped, but for what is durable: that
is in the folder of each node ("refold ddata disk").`
}

// Validate checks the flags.
func (c *removeCommand) Validate() error {
	switch {
	case c.Journal == "":
		return errors.New("--journal is missing: the journal to remove from")
	case c.Yes && len(c.Types) == 0:
		return errors.New("--yes needs the names of the entity types; without it, what there is of all types is shown")
	}
	return c.clusterFlags.Validate()
}

// Run shows what there is, or removes it.
func (c *removeCommand) Run(ctx context.Context, env *operator.Env) error {
	if c.Yes {
		if err := c.nobodyRuns(ctx); err != nil {
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
		return fmt.Errorf("there is nothing of %s; nothing is removed", quoted(missing))
	case !left:
		return c.say(env, "there is nothing to remove")
	case !c.Yes && len(c.Types) == 0:
		return c.say(env, "nothing is removed: name the entity types, and --yes")
	case !c.Yes:
		return c.say(env, "nothing is removed: --yes removes this")
	}
	return c.remove(ctx, env, found)
}

func (c *removeCommand) say(env *operator.Env, text string) error {
	_, err := fmt.Fprintf(env.Stderr, "%s: %s\n", env.Name, text)
	return err
}

// nobodyRuns returns nil if no node runs, as far as that can be known.
func (c *removeCommand) nobodyRuns(ctx context.Context) error {
	if c.Cluster == "" {
		if c.Stopped || strings.HasPrefix(c.Journal, "leveldb:") { // which only one process opens
			return nil
		}
		return errors.New("whether nodes run is not known: --cluster asks them, or --nodes-are-stopped says that none does")
	}
	var s *cluster.Summary
	err := c.with(func(n *nodes) (err error) {
		s, err = n.members.State(ctx, "")
		return err
	})
	switch {
	case err == nil:
		return fmt.Errorf("nodes of cluster %q run: %s has answered, and knows %d members", c.Cluster, s.Self, len(s.Members))
	case errors.Is(err, transport.ErrNoNode):
		return nil
	}
	return fmt.Errorf("whether nodes run is not known: %w", err)
}

// in lets f use the journal.
func (c *removeCommand) in(ctx context.Context, open func(context.Context, string) (*operator.Source, error), f func(sharding.JournalConfig) error) (err error) {
	src, err := open(ctx, c.Journal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return f(sharding.JournalState(src.Journal, src.Snapshots))
}

func (c *removeCommand) find(ctx context.Context, env *operator.Env) (found []sharding.JournalData, err error) {
	err = c.in(ctx, env.Open, func(j sharding.JournalConfig) (err error) {
		found, err = j.FindData(ctx, c.Types...)
		return err
	})
	return found, err
}

// remove removes what was found, one after the other, and stops at the first failure.
func (c *removeCommand) remove(ctx context.Context, env *operator.Env, found []sharding.JournalData) error {
	return c.in(ctx, env.OpenTarget, func(j sharding.JournalConfig) error {
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
		return c.say(env, fmt.Sprintf("the data of %d persistence IDs is removed", n))
	})
}

// removable is what is found, in JSON.
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
	if c.JSON {
		for _, d := range found {
			if err := json.NewEncoder(w).Encode(removable{d.ID, d.Type, d.Kind, d.Events, d.Snapshots, d.Last, d.Removed}); err != nil {
				return err
			}
		}
		return nil
	}
	if len(found) == 0 {
		return nil
	}
	out := newLines(w, false, "PERSISTENCE ID\tEVENTS\tSNAPSHOTS\tLAST WRITTEN\n")
	for _, d := range found {
		last := "-"
		if !d.Last.IsZero() {
			last = d.Last.Format(time.DateTime)
		}
		if d.Removed {
			last += ", removed"
		}
		if err := out.line(nil, "%s\t%d\t%d\t%s\n", plain(d.ID), d.Events, d.Snapshots, last); err != nil {
			return err
		}
	}
	return out.Flush()
}
