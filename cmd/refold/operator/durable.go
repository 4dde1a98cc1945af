// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/internal/jsontext"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/plugins/leveldb"
)

// Durable contains the commands that inspect the durable keys of replicated data in the directories
// of stopped nodes. Use it as the Grammar of a Command, or embed it in one:
//
//	program.Commands = append(program.Commands, operator.Command{
//		Name: "ddata", Help: "Inspect replicated data on disk.", Grammar: &operator.Durable{Types: types},
//	})
type Durable struct {
	// Types are the data types of the program. Values of other types are shown as bytes. Defaults
	// to the types of package crdt.
	Types *crdt.Types `kong:"-"`

	Keys durableKeysCommand `cmd:"" help:"List the keys that nodes have on disk."`
	Get  durableGetCommand  `cmd:"" help:"Print the value of a key on disk, as JSON."`
	Stat durableStatCommand `cmd:"" help:"Read all data on disk and print the counts and sizes of each node."`
}

// AfterApply passes the types to the subcommands.
func (d *Durable) AfterApply(k *kong.Context) error {
	k.Bind(d)
	return nil
}

type durableFlags struct {
	Dir        string `help:"The directory of durable data, with a subdirectory for each node. Required." required:"" placeholder:"DIR"`
	Node       string `help:"The node. Defaults to all." placeholder:"NAME"`
	Replicator string `help:"The replicator. Defaults to all." placeholder:"NAME"`
	JSON       bool   `name:"json" help:"Print one JSON object per line."`
}

func (f *durableFlags) each(ctx context.Context, do func(id durable.ID, dir string, s durable.Store) error) error {
	d := leveldb.NewDurable(f.Dir, leveldb.DurableConfig{ReadOnly: true})
	ids, err := d.IDs()
	if err != nil {
		return err
	}
	found := false
	for _, id := range ids {
		if f.Node != "" && f.Node != id.Node || f.Replicator != "" && f.Replicator != id.Replicator {
			continue
		}
		s, err := d.Open(ctx, id)
		if errors.Is(err, os.ErrNotExist) {
			continue // an empty directory
		}
		if err != nil {
			return err
		}
		found = true
		if err := errors.Join(do(id, d.Dir(id), s), s.Close()); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no durable data in %q%s", f.Dir, f.of())
	}
	return nil
}

// of describes the selection, for error messages.
func (f *durableFlags) of() string {
	text := ""
	if f.Replicator != "" {
		text = fmt.Sprintf(" of replicator %q", f.Replicator)
	}
	if f.Node != "" {
		text += fmt.Sprintf(" of node %q", f.Node)
	}
	return text
}

type durableEntry struct {
	key    string
	size   int
	stored replication.Record
	value  crdt.Value // the zero Value if the key was deleted, or its type is unknown
}

// decode decodes a record. It returns an error if the record is damaged.
func (d *Durable) decode(r durable.Record) (e durableEntry, err error) {
	e.key, e.size = r.Key, len(r.Data)
	if e.stored, err = replication.DecodeRecord(r.Data); err == nil && !e.stored.Deleted {
		if e.value, err = d.Types.Decode(e.stored.Value); errors.Is(err, crdt.ErrUndefined) {
			err = nil
		}
	}
	if err != nil {
		return e, fmt.Errorf("key %q: %w", r.Key, err)
	}
	return e, nil
}

func (e *durableEntry) kind() string {
	switch {
	case e.stored.Deleted:
		return "deleted"
	case e.value.IsZero():
		return "unknown"
	}
	return e.value.Type()
}

func diskSize(dir string) (n int64, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, ierr := e.Info()
		if err = errors.Join(err, ierr); ierr == nil {
			n += info.Size()
		}
	}
	return n, err
}

type durableKeysCommand struct {
	durableFlags

	Prefix string `arg:"" optional:"" help:"List keys with this prefix. Defaults to all."`
	Limit  int    `help:"Maximum number of keys to print; 0 is no limit." default:"1000"`
}

type durableLine struct {
	Node       string `json:"node"`
	Replicator string `json:"replicator"`
	Key        string `json:"key"`
	Type       string `json:"type,omitempty"`
	Deleted    bool   `json:"deleted,omitempty"`
	Bytes      int    `json:"bytes"`
}

func (e *durableEntry) line(id durable.ID) durableLine {
	l := durableLine{Node: id.Node, Replicator: id.Replicator, Key: e.key, Deleted: e.stored.Deleted, Bytes: e.size}
	if !e.value.IsZero() {
		l.Type = e.value.Type()
	}
	return l
}

// Run lists the keys.
func (c *durableKeysCommand) Run(ctx context.Context, env *Env, common *Durable) error {
	if c.Limit < 0 {
		return fmt.Errorf("--limit is %d, must not be negative", c.Limit)
	}
	limit := cmp.Or(c.Limit, math.MaxInt)
	out := console.NewTable(env.Stdout, c.JSON, "NODE", "REPLICATOR", "KEY", "TYPE", "BYTES")
	n, bad := 0, false
	err := c.each(ctx, func(id durable.ID, _ string, s durable.Store) error {
		for r, err := range s.Load(ctx) {
			if err != nil {
				return err
			}
			if !strings.HasPrefix(r.Key, c.Prefix) {
				continue
			}
			if n++; n > limit {
				env.note("more keys follow, from %q of %v", r.Key, id)
				return errEnough
			}
			e, err := common.decode(r)
			if err != nil {
				bad = true
				env.note("%v: %v", id, err)
				continue
			}
			if err := out.Add(
				func() any { return e.line(id) },
				func() []string { return []string{id.Node, id.Replicator, e.key, e.kind(), strconv.Itoa(e.size)} },
			); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err = errors.Join(out.Flush(), err); err == nil && bad {
		err = ErrProblems
	}
	return err
}

type durableGetCommand struct {
	durableFlags

	Key string `arg:"" help:"The key."`
}

type durableValue struct {
	durableLine

	Nodes  []string        `json:"nodes,omitempty"`  // nodes that have changed the key
	Pruned []string        `json:"pruned,omitempty"` // removed nodes whose changes another node has taken over
	Value  json.RawMessage `json:"value,omitempty"`
}

// Run prints the value on each node.
func (c *durableGetCommand) Run(ctx context.Context, env *Env, common *Durable) error {
	found := false
	err := c.each(ctx, func(id durable.ID, _ string, s durable.Store) error {
		for r, err := range s.Load(ctx) {
			if err != nil {
				return err
			}
			if r.Key != c.Key {
				continue
			}
			found = true
			e, err := common.decode(r)
			if err != nil {
				return fmt.Errorf("%v: %w", id, err)
			}
			return c.print(env, id, &e)
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("no key %q in %q%s", c.Key, c.Dir, c.of())
	}
	return err
}

func (c *durableGetCommand) print(env *Env, id durable.ID, e *durableEntry) error {
	v := durableValue{durableLine: e.line(id)}
	switch {
	case e.stored.Deleted:
	case e.value.IsZero():
		v.Value = fmt.Appendf(nil, `{"base64":"%s"}`, base64.StdEncoding.EncodeToString(e.stored.Value))
	default:
		v.Value = ValueJSON(e.value)
		for _, n := range e.value.ModifiedBy() {
			v.Nodes = append(v.Nodes, n.String())
		}
	}
	for _, m := range e.stored.Pruning {
		v.Pruned = append(v.Pruned, m.Removed.String())
	}
	if c.JSON {
		return jsontext.WriteJSON(env.Stdout, v)
	}
	if _, err := fmt.Fprintf(env.Stdout, "# %s, %s\n", jsontext.Printable(id.String()), jsontext.Printable(e.kind())); err != nil || v.Value == nil {
		return err
	}
	return printState(env, jsontext.AppendPrintable(nil, v.Value), false)
}

type durableStatCommand struct{ durableFlags }

type durableStat struct {
	Node       string `json:"node"`
	Replicator string `json:"replicator"`
	Dir        string `json:"dir"`
	Keys       int    `json:"keys"`
	Deleted    int    `json:"deleted"`
	Unknown    int    `json:"unknown"`  // number of keys of unknown types
	Problems   int    `json:"problems"` // number of unreadable records
	Bytes      int64  `json:"bytes"`    // size of keys and records
	Disk       int64  `json:"disk"`     // size of the files
	Largest    string `json:"largest,omitempty"`
	Most       int    `json:"largest_bytes,omitempty"`
}

// Run reads and counts all records.
func (c *durableStatCommand) Run(ctx context.Context, env *Env, common *Durable) error {
	out := console.NewTable(env.Stdout, c.JSON, "NODE", "REPLICATOR", "KEYS", "DELETED", "UNKNOWN", "PROBLEMS", "BYTES", "DISK", "LARGEST", "BYTES")
	bad := false
	err := c.each(ctx, func(id durable.ID, dir string, s durable.Store) error {
		st := durableStat{Node: id.Node, Replicator: id.Replicator, Dir: dir}
		for r, err := range s.Load(ctx) {
			if err != nil {
				return err
			}
			e, err := common.decode(r)
			switch {
			case err != nil:
				bad = true
				env.note("%v: %v", id, err)
				st.Problems++
			case e.stored.Deleted:
				st.Deleted++
			default:
				st.Keys++
				if e.value.IsZero() {
					st.Unknown++
				}
			}
			st.Bytes += int64(len(r.Key) + len(r.Data))
			if len(r.Data) > st.Most {
				st.Largest, st.Most = r.Key, len(r.Data)
			}
		}
		var err error
		if st.Disk, err = diskSize(dir); err != nil {
			return err
		}
		return out.Add(func() any { return st }, func() []string {
			return []string{
				id.Node, id.Replicator, strconv.Itoa(st.Keys), strconv.Itoa(st.Deleted), strconv.Itoa(st.Unknown), strconv.Itoa(st.Problems),
				strconv.FormatInt(st.Bytes, 10), strconv.FormatInt(st.Disk, 10), st.Largest, strconv.Itoa(st.Most),
			}
		})
	})
	if err = errors.Join(out.Flush(), err); err == nil && bad {
		err = ErrProblems
	}
	return err
}
