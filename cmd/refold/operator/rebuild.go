// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/internal/jsontext"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

type rebuildCommand struct {
	journalFlag
	ID      string   `arg:"" optional:"" help:"The persistence ID, such as account|42."`
	All     bool     `help:"Rebuild all entities of the types in this program, and list those whose states differ."`
	UpTo    uint64   `help:"Print the state after this event." placeholder:"NR"`
	Without []uint64 `help:"Print the state without this event. Repeatable." placeholder:"NR"`
	JSON    bool     `name:"json" help:"Print one JSON object."`
}

// Help explains the command.
func (c *rebuildCommand) Help() string {
	return `Replays all events of an entity without snapshots and compares the result with its present state, which comes from the
newest snapshot. If the states differ, the exit status is 1: the snapshot is wrong, or the code that applies events has
changed.

With --up-to or --without it prints how the state after the selected events differs from the present state. It changes
no data.

The type of the entity must be part of the program. With --all, the command passes over the entities of other types and the
records of Refold itself.`
}

// Validate checks the arguments.
func (c *rebuildCommand) Validate() error {
	switch {
	case slices.Contains(c.Without, 0):
		return errors.New("--without 0: event numbers start at 1")
	case (c.ID == "") != c.All:
		return errors.New("expected a persistence ID or --all")
	case c.All && c.whatIf():
		return errors.New("--up-to and --without need a persistence ID")
	}
	return nil
}

// Run compares the rebuilt state with the present one.
func (c *rebuildCommand) Run(ctx context.Context, env *Env) error {
	if c.All {
		return c.all(ctx, env)
	}
	linked, err := env.linked(c.ID)
	if err != nil {
		return err
	}
	return c.with(ctx, env, func(src *Source) error {
		if err := c.exist(ctx, src); err != nil {
			return err
		}
		return runtimeOf(ctx, src, func(rt *eventsourcing.Runtime) error {
			r, err := c.rebuild(ctx, src, rt, linked, c.ID)
			if err == nil {
				err = c.print(env, r)
			}
			if err == nil && (!c.whatIf() && !r.equal || r.unused > 0) {
				err = ErrProblems
			}
			return err
		})
	})
}

// all rebuilds the entities of all types in the program and prints those with problems.
func (c *rebuildCommand) all(ctx context.Context, env *Env) error {
	if len(env.entities) == 0 {
		return errors.New("no entity type is part of this program, and replaying needs their Go code." + howToLink)
	}
	for i := range env.entities {
		if err := env.entities[i].check(); err != nil {
			return err
		}
	}
	return c.with(ctx, env, func(src *Source) error {
		return runtimeOf(ctx, src, func(rt *eventsourcing.Runtime) error {
			var sum rebuiltAll
			status := env.status()
			err := inOrder(ctx, runtime.GOMAXPROCS(0), sum.linked(env, inspect.Listed(ctx, src.Journal, "")), func(ctx context.Context, id string) (*Problem, error) {
				l, err := env.linked(id)
				if err != nil {
					return nil, err
				}
				r, err := c.rebuild(ctx, src, rt, l, id)
				switch {
				case err != nil && (inspect.Unreachable(ctx, err) || errors.Is(err, eventsourcing.ErrInvalid)):
					return nil, err
				case err != nil:
					return &Problem{ID: id, Err: err}, nil
				case !r.equal:
					return &Problem{ID: id, SequenceNr: r.present.SequenceNr, Err: fmt.Errorf("the present state differs from the rebuilt one: %s", r.differences.Fields())}, nil
				case r.unused > 0:
					return &Problem{ID: id, SequenceNr: r.unused, Err: errors.New("the snapshot is unreadable; verify shows the reason")}, nil
				}
				return nil, nil
			}, func(_ string, p *Problem) error {
				status.Show("%d", sum.Equal+sum.Skipped+sum.Problems)
				switch {
				case p == nil:
					sum.Equal++
					return nil
				case errors.Is(p.Err, errFirstDeleted):
					sum.Skipped++
					return nil
				}
				sum.Problems++
				status.Clear()
				return env.printProblems([]Problem{*p}, c.JSON)
			})
			status.Clear()
			if err == nil {
				err = sum.print(env, c.JSON)
			}
			if err == nil && sum.Problems > 0 {
				err = ErrProblems
			}
			return err
		})
	})
}

// rebuiltAll is the result of rebuild --all. It counts persistence IDs.
type rebuiltAll struct {
	Equal    int `json:"equal"`
	Problems int `json:"problems"`
	Skipped  int `json:"skipped"` // not rebuilt, because the first event is deleted
	Other    int `json:"other"`   // of types that are not part of the program
}

// linked yields the IDs of the types in the program and counts the others.
func (s *rebuiltAll) linked(env *Env, ids iter.Seq2[string, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for id, err := range ids {
			switch {
			case err != nil, linkedOf(env.entities, id) != nil:
				if !yield(id, err) {
					return
				}
			case !journal.IsReserved(id):
				s.Other++
			}
		}
	}
}

func (s *rebuiltAll) print(env *Env, asJSON bool) error {
	if asJSON {
		return jsontext.WriteJSON(env.Stdout, s)
	}
	line := fmt.Sprintf("%s with equal states, %s", count(s.Equal, "persistence ID"), count(s.Problems, "problem"))
	if s.Skipped > 0 {
		line += fmt.Sprintf("; %d not rebuilt, whose first event is deleted", s.Skipped)
	}
	if s.Other > 0 {
		line += fmt.Sprintf("; %d of types that are not part of this program", s.Other)
	}
	_, err := fmt.Fprintln(env.Stdout, line)
	return err
}

// runtimeOf calls do with a runtime on the journal.
func runtimeOf(ctx context.Context, src *Source, do func(*eventsourcing.Runtime) error) (err error) {
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(src.Journal, src.Snapshots)}) //nolint:contextcheck // it ends with Close
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(context.WithoutCancel(ctx))) }()
	return do(rt)
}

func (e *Env) linked(id string) (*Linked, error) {
	if l := linkedOf(e.entities, id); l != nil {
		return l, l.check()
	}
	name, _ := journal.SplitID(id)
	if name == "" {
		return nil, fmt.Errorf("persistence ID %q has no entity type: expected TYPE|ID", id)
	}
	return nil, fmt.Errorf("the type %q is not part of this program, and replaying needs its Go code.%s", name, howToLink)
}

const howToLink = `
Build a program with the type, with these lines in its package main:

    func main() {
        operator.Main(operator.Entity(entityType()))
    }

The package operator is github.com/refold-io/refold/cmd/refold/operator; the
function entityType returns the eventsourcing.Type that your program hosts`

// whatIf reports whether the command computes a hypothetical or earlier state.
func (c *rebuildCommand) whatIf() bool { return c.UpTo > 0 || len(c.Without) > 0 }

// name returns the label of the state that is compared with the present one.
func (c *rebuildCommand) name() string {
	if c.whatIf() {
		return "what if"
	}
	return "rebuilt"
}

// exist returns an error unless the persistence ID and the named events exist.
func (c *rebuildCommand) exist(ctx context.Context, src *Source) error {
	highest, err := requireID(ctx, src, c.ID)
	if err != nil {
		return err
	}
	if c.UpTo > highest {
		return fmt.Errorf("--up-to %d: the highest number of %q is %d", c.UpTo, c.ID, highest)
	}
	for _, nr := range c.Without {
		if c.UpTo > 0 && nr > c.UpTo {
			return fmt.Errorf("--without %d is after --up-to %d", nr, c.UpTo)
		}
		found := false
		for e, err := range src.Journal.Replay(ctx, c.ID, nr, nr) {
			if err != nil {
				return fmt.Errorf("event %d of %q: %w", nr, c.ID, err)
			}
			if found = true; e.IsFence() {
				return fmt.Errorf("--without %d: the record is a fence, which does not change the state", nr)
			}
		}
		if !found {
			return fmt.Errorf("--without %d: %q has no such event", nr, c.ID)
		}
	}
	return nil
}

var errFirstDeleted = errors.New("cannot be replayed from its first event, which is deleted; verify checks the rest")

func (c *rebuildCommand) rebuild(ctx context.Context, src *Source, rt *eventsourcing.Runtime, l *Linked, id string) (r *rebuilt, err error) {
	entityID, _ := l.typ.EntityID(id)
	present, err := l.typ.Fold(ctx, rt, entityID, inspect.Wanted{})
	if err != nil {
		return nil, fmt.Errorf("present: %w", err)
	}
	w := inspect.Wanted{UpTo: present.SequenceNr, DisableSnapshots: true}
	if c.whatIf() {
		w = inspect.Wanted{UpTo: c.UpTo, Without: c.Without, DisableSnapshots: len(c.Without) > 0}
	}
	other, err := l.typ.Fold(ctx, rt, entityID, w)
	if gap, ok := errors.AsType[*journal.GapError](err); ok && gap.Want == 1 && w.DisableSnapshots {
		return nil, fmt.Errorf("%q %w", id, errFirstDeleted)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name(), err)
	}
	r = &rebuilt{present: present, other: other}
	if r.unused, err = unused(ctx, src, l, id, &present); err != nil {
		return nil, err
	}
	if r.equal = present.Equal(&other); !r.equal {
		r.differences = inspect.Compare(&present, &other)
	}
	return r, nil
}

// unused returns the number of an unreadable snapshot that is newer than the one used, or 0. Snapshots
// of another Snapshots.Version are not used on purpose.
func unused(ctx context.Context, src *Source, l *Linked, id string, f *inspect.State) (uint64, error) {
	if src.Snapshots == nil {
		return 0, nil
	}
	entityID, _ := l.typ.EntityID(id)
	for md, err := range src.Snapshots.List(ctx, id, snapshot.UpTo(f.SequenceNr)) {
		if err != nil {
			return 0, fmt.Errorf("snapshots of %q: %w", id, err)
		}
		if md.SequenceNr <= f.SnapshotNr {
			break
		}
		s, err := src.Snapshots.Load(ctx, id, snapshot.At(md.SequenceNr))
		if err == nil {
			_, err = l.typ.Decode(entityID, s.Manifest, s.Payload)
		}
		switch {
		case errors.Is(err, eventsourcing.ErrSnapshotVersion):
		case err != nil && inspect.Unreachable(ctx, err):
			return 0, fmt.Errorf("snapshot %d of %q: %w", md.SequenceNr, id, err)
		default:
			return md.SequenceNr, nil
		}
	}
	return 0, nil
}

type rebuilt struct {
	present, other inspect.State
	equal          bool
	unused         uint64 // number of an unreadable snapshot, or 0
	differences    inspect.Changes
}

type foldLine struct {
	SequenceNr uint64 `json:"sequence_nr"`
	Time       string `json:"time"`
	SnapshotNr uint64 `json:"snapshot_nr"`
	Records    uint64 `json:"records"`
	rendered
}

func lineOfState(f *inspect.State) foldLine {
	return foldLine{f.SequenceNr, inspect.Stamp(f.Time), f.SnapshotNr, f.Records, renderLine(inspect.FormatOfState(f.Manifest, f.Payload), f.Payload)}
}

// describe returns the origin of the state.
func describe(f *inspect.State) string {
	from := ""
	if f.SnapshotNr > 0 {
		from = fmt.Sprintf("the snapshot at %d and ", f.SnapshotNr)
	}
	return fmt.Sprintf("at %d, %s, from %s%s", f.SequenceNr, inspect.Stamp(f.Time), from, count(f.Records, "record"))
}

// difference is a field in which two states differ, for --json.
type difference struct {
	Field   string          `json:"field"`
	Present json.RawMessage `json:"present,omitempty"`
	Rebuilt json.RawMessage `json:"rebuilt,omitempty"`
}

func (c *rebuildCommand) print(env *Env, r *rebuilt) error {
	if c.JSON {
		var list []difference
		for _, x := range r.differences.List {
			list = append(list, difference{x.Path, x.Before, x.After})
		}
		return jsontext.WriteJSON(env.Stdout, struct {
			ID             string       `json:"id"`
			Equal          bool         `json:"equal"`
			UnusedSnapshot uint64       `json:"unused_snapshot,omitempty"`
			Present        foldLine     `json:"present"`
			Rebuilt        foldLine     `json:"rebuilt"`
			Differences    []difference `json:"differences,omitempty"`
			Omitted        int          `json:"differences_omitted,omitempty"`
		}{c.ID, r.equal, r.unused, lineOfState(&r.present), lineOfState(&r.other), list, r.differences.Omitted})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\npresent: %s\n%s: %s\n", jsontext.Printable(c.ID), describe(&r.present), c.name(), describe(&r.other))
	if r.unused > 0 {
		fmt.Fprintf(&b, "The snapshot at %d is unreadable and was not used; verify shows the reason.\n", r.unused)
	}
	if r.equal {
		b.WriteString("The states are equal:\n")
	} else {
		printChanges(&b, &r.differences, c.name())
	}
	if _, err := fmt.Fprint(env.Stdout, b.String()); err != nil || !r.equal {
		return err
	}
	text, err := inspect.FormatOfState(r.other.Manifest, r.other.Payload).Render(r.other.Payload, inspect.StateLength)
	if err != nil {
		_, err = fmt.Fprintf(env.Stdout, "(%s: %v)\n", count(len(r.other.Payload), "byte"), err)
		return err
	}
	return printState(env, text, false)
}

func printChanges(b *strings.Builder, d *inspect.Changes, other string) {
	if len(d.List) == 0 {
		fmt.Fprintf(b, "The states differ, but the difference cannot be shown: %s.\n", d.Err)
		return
	}
	b.WriteString("The states differ:\n")
	t := console.NewTable(b, false, "FIELD", "PRESENT", strings.ToUpper(other))
	for _, x := range d.List {
		_ = t.Row(x.Path, side(x.Before), side(x.After)) // to a strings.Builder
	}
	_ = t.Flush()
	if d.Omitted > 0 {
		fmt.Fprintf(b, "(%d more)\n", d.Omitted)
	}
}

func side(value json.RawMessage) string {
	if value == nil {
		return "–"
	}
	return shorten(string(value), cellLength/2)
}
