// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/plugins/leveldb"
)

// Durable holds the commands that look at the durable keys of replicated data in the
// directories of nodes that are not running. It is the Grammar of a Command, or embedded in
// one:
//
//	program.Commands = append(program.Commands, operator.Command{
//		Name: "ddata", Help: "Look at replicated data on disk.", Grammar: &operator.Durable{Types: types},
//	})
type Durable struct {
	// Types are the data types of the program. Without them, values of its own types are shown
	// as bytes. Defaults to those of package crdt.
	Types *crdt.Types `kong:"-"`

	Keys durableKeysCommand `cmd:"" help:"List the keys that nodes have on disk."`
	Get  durableGetCommand  `cmd:"" help:"Print the value of a key on disk, as JSON."`
	Stat durableStatCommand `cmd:"" help:"Say how much each node has on disk, and read all of it."`
}

// AfterApply hands the types to the subcommands.
func (d *Durable) AfterApply(k *kong.Context) error {
	k.Bind(d)
	return nil
}

// durableFlags say whose data it is about.
type durableFlags struct {
	Dir        string `help:"The directory that the nodes keep durable data in: the one with a directory for each of them. Required." required:"" placeholder:"DIR"`
	Node       string `help:"The node. Defaults to all." placeholder:"NAME"`
	Replicator string `help:"The replicator. Defaults to all." placeholder:"NAME"`
	JSON       bool   `name:"json" help:"Print one JSON object a line."`
}

// each calls do with the stores, one after the other.
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
		return fmt.Errorf("there is no durable data in %q%s", f.Dir, f.of())
	}
	return nil
}

// of names what the flags ask for.
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

// durableEntry is a record, decoded.
type durableEntry struct {
	key    string
	size   int
	stored replication.Record
	value  crdt.Value // the zero Value if it was deleted, or if nobody here knows its type
}

// decode returns what a record holds. The error says that it is not as it should be.
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

// kind is what the key holds, in a word.
func (e *durableEntry) kind() string {
	switch {
	case e.stored.Deleted:
		return "deleted"
	case e.value.IsZero():
		return "unknown"
	}
	return e.value.Type()
}

// diskSize returns how many bytes the files in a directory have.
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
