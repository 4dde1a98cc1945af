// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/internal/jsontext"
	"github.com/refold-io/refold/sharding"
)

type shardsEntitiesCommand struct {
	Shard *uint32 `arg:"" optional:"" help:"The number of a shard whose entities to print. Defaults to the counts of all shards."`
	Node  string  `help:"Print only the shards and entities of this node." placeholder:"NODE"`
	Limit int     `help:"Maximum number of lines to print; 0 is no limit." default:"1000"`
	JSON  bool    `name:"json" help:"Print one JSON object per line."`
}

func (c *shardsEntitiesCommand) Help() string {
	return `A count includes running entities and those about to start, such as remembered ones. The list of a shard contains only
running entities. The rate of commands is unknown unless the allocation strategy reads the load, as allocation.ByLoad does.
The exit status is 1 if a member does not respond (unless it is leaving).`
}

func (c *shardsEntitiesCommand) Validate() error {
	if c.Limit < 0 {
		return fmt.Errorf("--limit is %d, must not be negative", c.Limit)
	}
	return nil
}

// errEnough ends a list at its limit.
var errEnough = errors.New("limit reached")

func (c *shardsEntitiesCommand) Run(ctx context.Context, env *operator.Env, common *shardsCommand) error {
	return common.withRegions(ctx, func(n *nodes, all []shardNode, types []string) error { return c.list(ctx, env, n, all, types) })
}

func (c *shardsEntitiesCommand) list(ctx context.Context, env *operator.Env, n *nodes, all []shardNode, types []string) error {
	typ, err := one(types)
	if err != nil {
		return err
	}
	if c.Node != "" {
		only, unknown := member(all, c.Node)
		if unknown != nil {
			return unknown
		}
		all = []shardNode{*only}
	}
	show := c.counts
	if c.Shard != nil {
		show = c.entities
	}
	err = show(ctx, env, n, typ, all)
	if errors.Is(err, errEnough) {
		_, err = fmt.Fprintf(env.Stderr, "%s: more lines follow; see --limit\n", env.Name)
	}
	for i := range all {
		if failed := all[i].silent(); err == nil && failed != nil {
			_, err = fmt.Fprintf(env.Stderr, "%s: %s: %v\n", env.Name, all[i].Name, failed)
			err = cmp.Or(err, operator.ErrProblems)
		}
	}
	return err
}

type shardCount struct {
	Type     string         `json:"type"`
	Shard    sharding.Shard `json:"shard"`
	Node     string         `json:"node"`
	Entities int            `json:"entities"`
	// PerSecond is nil if the rate of commands is unknown.
	PerSecond *float64 `json:"per_second,omitempty"`
}

func (c *shardsEntitiesCommand) counts(ctx context.Context, env *operator.Env, n *nodes, typ string, all []shardNode) (err error) {
	var found []shardCount
	for i := range all {
		if r := all[i].Region(typ); r == nil || r.Shards == 0 {
			continue
		}
		for s, err := range n.shards.Shards(ctx, all[i].Name, typ) {
			if err != nil {
				return err
			}
			found = append(found, shardCount{typ, s.Shard, all[i].Name, s.Entities, s.PerSecond})
		}
	}
	slices.SortFunc(found, func(a, b shardCount) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), strings.Compare(a.Node, b.Node))
	})
	out := console.NewTable(env.Stdout, c.JSON, "SHARD", "NODE", "ENTITIES", "COMMANDS/S")
	defer func() { err = errors.Join(out.Flush(), err) }()
	for i, s := range found {
		if c.Limit > 0 && i == c.Limit {
			return errEnough
		}
		if err := out.Add(func() any { return s }, func() []string {
			return []string{fmt.Sprint(s.Shard), s.Node, fmt.Sprint(s.Entities), rateOf(s.PerSecond)}
		}); err != nil {
			return err
		}
	}
	return nil
}

func rateOf(perSecond *float64) string {
	if perSecond == nil {
		return "unknown"
	}
	return strconv.FormatFloat(*perSecond, 'f', 1, 64)
}

type shardEntity struct {
	Type  string `json:"type"`
	ID    string `json:"id"`
	Shard uint32 `json:"shard"`
	Node  string `json:"node"`
}

func (c *shardsEntitiesCommand) entities(ctx context.Context, env *operator.Env, n *nodes, typ string, all []shardNode) (err error) {
	for i := range all {
		if r := all[i].Region(typ); r != nil && int64(*c.Shard) >= int64(r.Total) {
			return fmt.Errorf("no shard %d: %q has %d, numbered from 0", *c.Shard, typ, r.Total)
		}
	}
	out := console.NewTable(env.Stdout, c.JSON, "ENTITY", "NODE")
	homed, printed := false, 0
	defer func() {
		if err == nil && !homed && !c.JSON {
			why := "is not allocated"
			if c.Node != "" {
				why = "is not on " + c.Node
			}
			_, err = fmt.Fprintf(env.Stdout, "shard %d %s\n", *c.Shard, why)
			return
		}
		err = errors.Join(out.Flush(), err)
	}()
	for i := range all {
		if r := all[i].Region(typ); r == nil || r.Shards == 0 {
			continue
		}
		for id, err := range n.shards.Entities(ctx, all[i].Name, typ, sharding.Shard(*c.Shard)) {
			if err != nil {
				return err
			}
			homed = true
			if printed++; c.Limit > 0 && printed > c.Limit {
				return errEnough
			}
			if err := out.Add(
				func() any { return shardEntity{typ, id, *c.Shard, all[i].Name} },
				func() []string { return []string{id, all[i].Name} },
			); err != nil {
				return err
			}
		}
		if !homed {
			if homed, err = n.hosts(ctx, all[i].Name, typ, sharding.Shard(*c.Shard)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *nodes) hosts(ctx context.Context, node, typ string, shard sharding.Shard) (bool, error) {
	for s, err := range n.shards.Shards(ctx, node, typ) {
		if err != nil || s.Shard >= shard {
			return s.Shard == shard && err == nil, err
		}
	}
	return false, nil
}

type shardsFindCommand struct {
	ID   string `arg:"" name:"id" help:"The ID of the entity."`
	JSON bool   `name:"json" help:"Print one JSON object."`
}

func (c *shardsFindCommand) Validate() error {
	if c.ID == "" {
		return errors.New("the ID is empty; it is required, as in: shards find --type account 42")
	}
	return nil
}

func (c *shardsFindCommand) Run(ctx context.Context, env *operator.Env, common *shardsCommand) error {
	return common.withRegions(ctx, func(n *nodes, all []shardNode, types []string) error {
		typ, err := one(types)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(n shardNode) bool { return n.Region(typ) != nil })
		found, err := n.shards.Find(ctx, all[i].Name, typ, c.ID)
		if err != nil {
			return err
		}
		home, _, _ := strings.Cut(found.Home, "#")
		if c.JSON {
			return json.NewEncoder(env.Stdout).Encode(struct {
				Type    string         `json:"type"`
				ID      string         `json:"id"`
				Shard   sharding.Shard `json:"shard"`
				Node    string         `json:"node,omitempty"`
				Running bool           `json:"running"`
			}{typ, c.ID, found.Shard, home, found.Running})
		}
		where := "which is not allocated: it is unused so far, or it is moving"
		if home != "" && found.Running {
			where = "on " + home + ", running"
		} else if home != "" {
			where = "on " + home + ", not running"
		}
		_, err = fmt.Fprintf(env.Stdout, "%s %s is in shard %d, %s\n", jsontext.Printable(typ), jsontext.Printable(c.ID), found.Shard, where)
		return err
	})
}
