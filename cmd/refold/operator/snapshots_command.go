// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/internal/jsontext"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

type snapshotsCommand struct {
	listFlags
	ID   string `arg:"" optional:"" help:"The persistence ID, such as account|42. Defaults to all."`
	All  bool   `help:"Also list the snapshots of Refold itself."`
	Show uint64 `help:"Print the state in the snapshot with this number, as JSON." placeholder:"NR"`
}

// Validate checks the flags.
func (c *snapshotsCommand) Validate() error {
	switch {
	case c.ID == "" && c.Show > 0:
		return errors.New("--show needs a persistence ID")
	case c.ID != "" && c.All:
		return errors.New("--all cannot be combined with a persistence ID")
	}
	return c.check(c.ID)
}

var errNoSnapshots = errors.New("the journal has no snapshot store")

// Run lists snapshots or prints one.
func (c *snapshotsCommand) Run(ctx context.Context, env *Env) error {
	return c.with(ctx, env, func(src *Source) error {
		switch {
		case src.Snapshots == nil:
			return errNoSnapshots
		case c.Show > 0:
			return c.show(ctx, env, src)
		}
		return c.list(ctx, env, src)
	})
}

func (c *snapshotsCommand) list(ctx context.Context, env *Env, src *Source) error {
	out := console.NewTable(env.Stdout, c.JSON, "ID", "NR", "TIME")
	n := 0
	one := func(id string) (bool, error) {
		for md, err := range src.Snapshots.List(ctx, id, snapshot.Latest()) {
			if err != nil {
				return false, fmt.Errorf("snapshots of %q: %w", id, err)
			}
			if n == c.limit() {
				env.note("more snapshots follow, from %q at %d", id, md.SequenceNr)
				return false, nil
			}
			n++
			if err := out.Add(func() any {
				return struct {
					ID         string `json:"id"`
					SequenceNr uint64 `json:"sequence_nr"`
					Time       string `json:"time"`
				}{id, md.SequenceNr, inspect.Stamp(md.Time)}
			}, func() []string { return []string{id, decimal(md.SequenceNr), inspect.Stamp(md.Time)} }); err != nil {
				return false, err
			}
		}
		return true, nil
	}
	var err error
	if c.ID == "" {
		err = c.eachID(ctx, env, src, c.All, one)
	} else if _, err = requireID(ctx, src, c.ID); err == nil {
		_, err = one(c.ID)
	}
	return errors.Join(out.Flush(), err)
}

func (c *snapshotsCommand) show(ctx context.Context, env *Env, src *Source) error {
	s, err := src.Snapshots.Load(ctx, c.ID, snapshot.At(c.Show))
	if err != nil {
		return fmt.Errorf("snapshot %d of %q: %w", c.Show, c.ID, err)
	}
	f := inspect.FormatOfState(s.Manifest, s.Payload)
	if journal.IsReserved(c.ID) {
		f = inspect.Own
	}
	text, err := f.Render(s.Payload, inspect.StateLength)
	if err != nil {
		return fmt.Errorf("snapshot %d of %q has %s: %w", c.Show, c.ID, count(len(s.Payload), "byte"), err)
	}
	return printState(env, text, c.JSON)
}

// printState prints compact JSON unchanged or indented.
func printState(env *Env, text []byte, compact bool) error {
	var b bytes.Buffer
	if compact {
		b.Write(text)
	} else if err := json.Indent(&b, text, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := env.Stdout.Write(b.Bytes())
	return err
}

// ValueJSON returns a value of replicated data as compact JSON. It includes elements that a
// registry has encoded.
func ValueJSON(v crdt.Value) []byte {
	named := func(manifest string, payload []byte) ([]byte, bool) {
		text, err := inspect.FormatOf(manifest).Render(payload, inspect.StateLength)
		return text, err == nil
	}
	return crdt.JSON{Named: named}.Append(nil, v)
}

// PrintJSON prints compact JSON for people: indented, with all characters escaped that are not
// printable.
func (e *Env) PrintJSON(compact []byte) error {
	return printState(e, jsontext.AppendPrintable(make([]byte, 0, len(compact)), compact), false)
}
