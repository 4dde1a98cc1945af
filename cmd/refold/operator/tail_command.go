// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/journal"
)

type tailCommand struct {
	journalFlag
	Types     []string   `name:"type" sep:"none" help:"Only entities of this type. Repeatable." placeholder:"NAME"`
	Tag       string     `help:"Only events with this tag." placeholder:"TAG"`
	Slices    sliceRange `help:"Only entities in this range of the 1,024 slices, such as 0-255." placeholder:"FIRST-LAST"`
	ID        string     `name:"id" help:"Only this persistence ID." placeholder:"ID"`
	After     string     `help:"Start after this offset, which an earlier run has printed." placeholder:"OFFSET"`
	FromStart bool       `help:"Start with the first stored event. Defaults to the next event."`
	NoFollow  bool       `help:"Print the stored events, from the first one or from --after, and exit."`
	JSON      bool       `name:"json" help:"Print one JSON object per line."`
}

// Help explains the command.
func (c *tailCommand) Help() string {
	return `Prints events as they are stored, of all entities or a selection, in the order of the journal. Ctrl-C ends the
command. It prints the offset with which the next run continues, without repeated or lost events.

A LevelDB journal accepts no events while it is open for reading, so on LevelDB the command prints the stored events and
exits.`
}

// Validate checks the flags.
func (c *tailCommand) Validate() error {
	switch {
	case c.After != "" && c.FromStart:
		return errors.New("--after and --from-start exclude each other")
	case c.ID != "" && (len(c.Types) > 0 || c.Slices.Count > 0):
		return errors.New("--id selects one entity: --type and --slices cannot be combined with it")
	case c.ID != "":
		return journal.CheckID(c.ID)
	}
	return c.query().Check()
}

// query returns the criteria of the query. An ID selects its slice; page filters the rest.
func (c *tailCommand) query() journal.Criteria {
	q := journal.Criteria{Types: c.Types, Tag: c.Tag, Slices: journal.Slices(c.Slices)}
	if c.ID != "" {
		if name, _ := journal.SplitID(c.ID); name != "" {
			q.Types = []string{name}
		}
		q.Slices = journal.Slices{First: journal.SliceOf(c.ID), Count: 1}
	}
	return q
}

type sliceRange journal.Slices

// UnmarshalText reads "0-255" or "7".
func (s *sliceRange) UnmarshalText(text []byte) error {
	from, to, found := strings.Cut(string(text), "-")
	if !found {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)
	if errors.Join(err1, err2) != nil || last < first || last >= journal.SliceCount {
		return fmt.Errorf("%.20q is not a range of slices within 0-%d", text, journal.SliceCount-1)
	}
	*s = sliceRange{First: int(first), Count: int(last-first) + 1}
	return nil
}

// Run prints events until it is interrupted.
func (c *tailCommand) Run(ctx context.Context, env *Env) error {
	return c.with(ctx, env, func(src *Source) error {
		querier, ok := journal.As[journal.Querier](src.Journal)
		if !ok {
			return journal.ErrNoQueries
		}
		last, err := querier.End(ctx)
		if err != nil {
			return err
		}
		t := &tail{command: c, querier: querier, env: env, at: journal.Offset(c.After)}
		var end *journal.Offset // nil if the command does not end
		if c.NoFollow || src.NoWriters {
			end = &last
		} else if c.After == "" && !c.FromStart {
			t.at = last
		}
		err = t.run(ctx, end)
		refused := t.at == journal.Offset(c.After) && errors.Is(err, journal.ErrOffset)
		if t.at != "" && !refused {
			env.note("to continue, use --after %s", t.at)
		}
		if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
			return nil // an interrupt is the normal end
		}
		return err
	})
}

type tail struct {
	command *tailCommand
	querier journal.Querier
	out     *console.Table // nil before the first event
	env     *Env
	at      journal.Offset
}

// run prints events up to an offset, or until ctx ends.
func (t *tail) run(ctx context.Context, end *journal.Offset) error {
	pause := firstPause
	for seen := false; ; {
		more, err := t.page(ctx)
		switch {
		case err == nil:
			seen, pause = true, firstPause
		case seen && errors.Is(err, journal.ErrUnavailable):
			if pause == firstPause {
				t.env.note("%v; retrying", err)
			}
			if err = wait(ctx, pause); err != nil {
				return err
			}
			pause = min(2*pause, lastPause)
			continue
		default:
			return err
		}
		switch {
		case end != nil && (!more || t.at.Compare(*end) >= 0):
			return nil
		case more:
			continue
		}
		if err := t.querier.Await(ctx, t.at); err != nil && !errors.Is(err, journal.ErrUnavailable) {
			return err // the next query reports an unavailable journal
		}
	}
}

// The pauses between retries while the journal is unavailable.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *tail) page(ctx context.Context) (more bool, err error) {
	page, err := t.querier.Query(ctx, t.command.query(), t.at)
	if err != nil {
		return false, err
	}
	for i := range page.Events {
		e := &page.Events[i]
		if t.command.ID != "" && t.command.ID != e.ID {
			continue
		}
		if t.out == nil {
			t.out = console.NewTable(t.env.Stdout, t.command.JSON, "OFFSET", "TIME", "ID", "NR", "MANIFEST", "TAGS", "PAYLOAD")
			t.out.MaxWidth = 40
		}
		if err := t.out.Add(func() any {
			return struct {
				Offset journal.Offset `json:"offset"`
				ID     string         `json:"id"`
				eventLine
			}{e.Offset, e.ID, lineOf(e.ID, &e.Event)}
		}, func() []string {
			return []string{
				string(e.Offset), inspect.Stamp(e.Time), e.ID, decimal(e.SequenceNr), e.Manifest, strings.Join(e.Tags, ","),
				renderCell(inspect.FormatOfRecord(e.ID, e.Manifest), e.Payload),
			}
		}); err != nil {
			return false, err
		}
	}
	if t.out != nil {
		if err := t.out.Flush(); err != nil {
			return false, err
		}
	}
	t.at = page.Next
	return page.More, nil
}
