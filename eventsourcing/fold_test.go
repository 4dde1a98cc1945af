// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
)

// TestFold computes the latest state, an earlier state, and a state of replaced events.
func TestFold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, times := chronicle(t, 6, 4)
		s.open()
		defer s.close()
		type options = eventsourcing.FoldOptions[actorEvent]
		for name, c := range map[string]struct {
			opts     options
			want     string
			nr       uint64
			snapshot uint64
			records  uint64
		}{
			"latest":            {options{}, "1 2 3 4 5 6", 6, 4, 2},
			"without snapshots": {options{DisableSnapshots: true}, "1 2 3 4 5 6", 6, 0, 6},
			"up to":             {options{UpTo: 5}, "1 2 3 4 5", 5, 4, 1},
			"up to a snapshot":  {options{UpTo: 4}, "1 2 3 4", 4, 4, 0},
			"below it":          {options{UpTo: 3}, "1 2 3", 3, 0, 3},
			"beyond":            {options{UpTo: 60}, "1 2 3 4 5 6", 6, 4, 2},
			"as of":             {options{AsOf: times[5].Add(time.Millisecond)}, "1 2 3 4 5", 5, 4, 1},
			"as of, exactly":    {options{AsOf: times[4]}, "1 2 3 4", 4, 4, 0},
			"before the first":  {options{AsOf: times[1].Add(-1)}, "", 0, 0, 0},
			"replaced": {options{Replace: func(nr uint64, e actorEvent) []actorEvent {
				switch nr {
				case 2:
					return nil
				case 5:
					return lines("five", "more")
				}
				return []actorEvent{e}
			}}, "1 3 4 five more 6", 6, 0, 6},
		} {
			got, err := eventsourcing.Fold(t.Context(), s.rt, s.typ, "1", c.opts)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			state := got.State
			if state.text() != c.want || got.SequenceNr != c.nr || got.SnapshotNr != c.snapshot || got.Records != c.records {
				t.Errorf("%s: %q at %d, from %d with %d records; want %q at %d, from %d with %d", name,
					state.text(), got.SequenceNr, got.SnapshotNr, got.Records, c.want, c.nr, c.snapshot, c.records)
			}
			if !got.Time.Equal(times[c.nr]) {
				t.Errorf("%s: the time is %v, want %v", name, got.Time, times[c.nr])
			}
		}
		if n := s.actors.Resident(); n != 0 {
			t.Errorf("Fold started %d entities", n)
		}
		s.mustAsk(recall) // Fold does not change the entity itself
		got, err := eventsourcing.Fold(t.Context(), s.rt, s.typ, "1", options{})
		if err != nil {
			t.Fatal(err)
		}
		got.State.apply(line{"mine"})
		expect(t, s.mustAsk(recall), nil, "1 2 3 4 5 6")

		got, err = eventsourcing.Fold(t.Context(), s.rt, s.typ, "nobody", options{})
		if err != nil || got.SequenceNr != 0 || len(got.State.Lines) != 0 {
			t.Errorf("the state of an entity without events is %+v, %v, want the empty state", got, err)
		}
		_, err = eventsourcing.Fold(t.Context(), s.rt, s.typ, "", options{})
		expectError(t, err, eventsourcing.ErrInvalid)
		bad := s.typ
		bad.Apply = nil
		_, err = eventsourcing.Fold(t.Context(), s.rt, bad, "1", options{})
		expectError(t, err, eventsourcing.ErrInvalid)
		s.journal.Inject(journaltest.Fault{Op: journaltest.OpReplay, AfterEvents: 1})
		_, err = eventsourcing.Fold(t.Context(), s.rt, s.typ, "1", options{DisableSnapshots: true})
		expectError(t, err, journaltest.ErrInjected)
		if err = s.journal.DeleteTo(t.Context(), "actor|1", 2); err != nil {
			t.Fatal(err)
		}
		_, err = eventsourcing.Fold(t.Context(), s.rt, s.typ, "1", options{DisableSnapshots: true})
		expectError(t, err, journal.ErrHistoryGap)
	})
}

// TestFences checks that a fence has a sequence number and no other effect: a recovery counts it,
// an entity does not see it, and the state at its number is the state before it.
func TestFences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		s.mustAsk(addLines("1"))
		s.journal.Inject(journaltest.Fault{})
		_, err := s.ask(addLines("lost"))
		expectError(t, err, eventsourcing.ErrNotStored)
		s.mustAsk(addLines("3"))
		s.expectStored("1", "-", "3")
		s.reopen()
		defer s.close()
		expect(t, s.mustAsk(func(ctx *actorCtx, a *actor, c act) actorDecision {
			if ctx.SequenceNr() != 3 {
				t.Errorf("the sequence number is %d, want 3", ctx.SequenceNr())
			}
			return recall(ctx, a, c)
		}), nil, "1 3")
		var replaced []uint64
		for upTo, want := range map[uint64]string{1: "1", 2: "1", 3: "1 3"} {
			got, failed := eventsourcing.Fold(t.Context(), s.rt, s.typ, "1", eventsourcing.FoldOptions[actorEvent]{UpTo: upTo})
			if failed != nil || got.State.text() != want || got.SequenceNr != upTo {
				t.Errorf("up to %d: the state is %+v, %v, want %q", upTo, got, failed, want)
			}
		}
		_, err = eventsourcing.Fold(t.Context(), s.rt, s.typ, "1", eventsourcing.FoldOptions[actorEvent]{Replace: func(nr uint64, e actorEvent) []actorEvent {
			replaced = append(replaced, nr)
			return []actorEvent{e}
		}})
		if err != nil || len(replaced) != 2 || replaced[0] != 1 || replaced[1] != 3 {
			t.Errorf("Replace was called for %d, error %v, want 1 and 3", replaced, err)
		}
	})
}

// tagsOf returns the topic of a line and the state after it.
func tagsOf(a *actor, event actorEvent) []string {
	if e, ok := event.(line); ok && strings.HasPrefix(e.Text, "#") {
		return []string{e.Text[1:], a.text()}
	}
	return nil
}

func TestTags(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Tags = tagsOf
		s.open()
		defer s.close()
		s.mustAsk(addLines("a", "#b", "#c"))
		var tags []string
		for e, err := range s.journal.Replay(t.Context(), "actor|1", 1, journal.MaxSequenceNr) {
			if err != nil {
				t.Fatal(err)
			}
			tags = append(tags, strings.Join(e.Tags, "/"))
		}
		if got := strings.Join(tags, ", "); got != ", b/a #b, c/a #b #c" {
			t.Errorf("the tags are %q, want no tags, b/a and #b, c/a, #b and #c", got)
		}
	})
}

// TestUpcasts checks that an old event may become another event, several events or none.
func TestUpcasts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		s.mustAsk(addLines("a b", "gone", "c"))
		s.close()
		type oldLine struct{ Text string }
		s.typ.Events = codec.Types(
			codec.Name[line]("line/2"),
			codec.Split("line", 1, func(old oldLine) ([]any, error) {
				if old.Text == "gone" {
					return nil, nil
				}
				var all []any
				for word := range strings.FieldsSeq(old.Text) {
					all = append(all, line{word})
				}
				return all, nil
			}),
		)
		if err := s.typ.Events.Err(); err != nil {
			t.Fatal(err)
		}
		s.open()
		defer s.close()
		expect(t, s.mustAsk(addLines("d")), nil, "a b c d")
	})
}
