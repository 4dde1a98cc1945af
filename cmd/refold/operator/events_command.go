// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/journal"
)

type eventsCommand struct {
	listFlags
	ID   string `arg:"" optional:"" help:"The persistence ID, such as account|42. Without one, the command lists persistence IDs."`
	From uint64 `help:"First sequence number." placeholder:"NR"`
	To   uint64 `help:"Last sequence number." placeholder:"NR"`
	All  bool   `help:"Also list persistence IDs of Refold itself; with a persistence ID: also show fences."`
}

// Validate checks the flags.
func (c *eventsCommand) Validate() error {
	switch {
	case c.ID == "" && (c.From > 0 || c.To > 0):
		return errors.New("--from and --to need a persistence ID")
	case c.To > 0 && c.To < c.From:
		return fmt.Errorf("--to %d is before --from %d", c.To, c.From)
	}
	return c.check(c.ID)
}

// Run lists persistence IDs or events.
func (c *eventsCommand) Run(ctx context.Context, env *Env) error {
	return c.with(ctx, env, func(src *Source) error {
		if c.ID == "" {
			return c.ids(ctx, env, src)
		}
		if _, err := requireID(ctx, src, c.ID); err != nil {
			return err
		}
		return c.events(ctx, env, src)
	})
}

func (c *eventsCommand) ids(ctx context.Context, env *Env, src *Source) error {
	out := console.NewTable(env.Stdout, c.JSON, "ID", "HIGHEST", "RECORDS")
	last, n := "", 0
	err := c.eachID(ctx, env, src, c.All, func(id string) (bool, error) {
		if n == c.limit() {
			env.note("more IDs follow: --after %q", last)
			return false, nil
		}
		last = id
		n++
		highest, records, err := size(ctx, src, id)
		if err != nil {
			return false, err
		}
		return true, out.Add(func() any {
			return struct {
				ID      string `json:"id"`
				Highest uint64 `json:"highest"`
				Records uint64 `json:"records"`
			}{id, highest, records}
		}, func() []string { return []string{id, decimal(highest), decimal(records)} })
	})
	return errors.Join(out.Flush(), err)
}

// size returns the highest number of an ID and the number of its remaining records.
func size(ctx context.Context, src *Source, id string) (highest, records uint64, err error) {
	if highest, err = src.Journal.HighestSequenceNr(ctx, id); err != nil {
		return 0, 0, fmt.Errorf("highest number of %q: %w", id, err)
	}
	first, err := inspect.FirstRecord(ctx, src.Journal, id, highest)
	if err != nil {
		return 0, 0, fmt.Errorf("first record of %q: %w", id, err)
	}
	if first > 0 {
		records = highest - first + 1
	}
	return highest, records, nil
}

func (c *eventsCommand) events(ctx context.Context, env *Env, src *Source) error {
	to := cmp.Or(c.To, journal.MaxSequenceNr)
	out := console.NewTable(env.Stdout, c.JSON, "NR", "TIME", "MANIFEST", "TAGS", "WRITER", "PAYLOAD")
	note, err := c.print(out, src.Journal.Replay(ctx, c.ID, c.From, to))
	if err = errors.Join(out.Flush(), err); err != nil {
		return fmt.Errorf("events of %q: %w", c.ID, err)
	}
	if note != "" {
		env.note("%s", note)
	}
	return nil
}

// print prints events, and returns a note about events that were not printed.
func (c *eventsCommand) print(out *console.Table, events func(yield func(journal.Event, error) bool)) (note string, err error) {
	shown, fences := 0, 0
	for e, err := range events {
		switch {
		case err != nil:
			return "", err
		case e.IsFence() && !c.All:
			fences++
			continue
		case shown == c.limit():
			return fmt.Sprintf("more events follow: --from %d", e.SequenceNr), nil
		}
		shown++
		if err := out.Add(func() any { return lineOf(c.ID, &e) }, func() []string { return rowOf(c.ID, &e) }); err != nil {
			return "", err
		}
	}
	if fences > 0 {
		note = count(fences, "fence") + " not shown: --all"
	}
	return note, nil
}

type eventLine struct {
	SequenceNr uint64   `json:"sequence_nr"`
	Time       string   `json:"time"`
	Writer     string   `json:"writer"`
	Fence      bool     `json:"fence,omitempty"`
	Manifest   string   `json:"manifest"`
	Tags       []string `json:"tags,omitempty"`
	Metadata   []byte   `json:"metadata,omitempty"`
	rendered
}

func lineOf(id string, e *journal.Event) eventLine {
	line := eventLine{
		SequenceNr: e.SequenceNr, Time: inspect.Stamp(e.Time), Writer: e.Writer, Fence: e.IsFence(),
		Manifest: e.Manifest, Tags: e.Tags, Metadata: e.Metadata,
	}
	if !e.IsFence() {
		line.rendered = renderLine(inspect.FormatOfRecord(id, e.Manifest), e.Payload)
	}
	return line
}

func rowOf(id string, e *journal.Event) []string {
	manifest, payload := "(fence)", "–"
	if !e.IsFence() {
		manifest, payload = e.Manifest, renderCell(inspect.FormatOfRecord(id, e.Manifest), e.Payload)
	}
	return []string{decimal(e.SequenceNr), inspect.Stamp(e.Time), manifest, strings.Join(e.Tags, ","), e.Writer, payload}
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
