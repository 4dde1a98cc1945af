// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
)

// archive makes the actors of a scene keep the record of each line. Type.Apply is not set.
func archive(s *scene) {
	s.typ.Apply = nil
	s.typ.ApplyRecorded = func(a *actor, event actorEvent, r eventsourcing.Recorded) {
		e, _ := event.(line)
		a.Lines = append(a.Lines, fmt.Sprintf("%s=%d/%d/%s", e.Text, r.SequenceNr, r.Time.UnixMicro(), r.Metadata))
	}
}

// TestApplyRecorded checks that Type.ApplyRecorded receives the stored data of an event when the
// event is decided, replayed and folded.
func TestApplyRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		archive(s)
		s.cfg.Observer.Inject = func(context.Context) []byte { return []byte("trace") }
		s.open()
		s.mustAsk(addLines("1", "2"))
		time.Sleep(1500 * time.Nanosecond)
		s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorDecision {
			return ctx.Persist(line{"3"}).ThenReply(func(ctx *actorCtx) actorDecision {
				return ctx.Persist(line{"4"}).Reply("")
			})
		})
		live := s.mustAsk(recall)
		var want []string
		for e, err := range s.journal.Replay(t.Context(), "actor|1", 1, journal.MaxSequenceNr) {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprintf("%d=%d/%d/%s", e.SequenceNr, e.SequenceNr, e.Time.UnixMicro(), e.Metadata))
		}
		if got := strings.Join(want, " "); live != got || !strings.Contains(got, "/trace") {
			t.Errorf("the live state is\n%s, want the stored data\n%s", live, got)
		}
		s.reopen()
		defer s.close()
		expect(t, s.mustAsk(recall), nil, live)
		f, err := eventsourcing.Fold(t.Context(), s.rt, s.typ, "1", eventsourcing.FoldOptions[actorEvent]{Replace: func(nr uint64, e actorEvent) []actorEvent {
			if nr == 2 {
				return nil
			}
			return []actorEvent{e}
		}})
		if err != nil || f.State.text() != strings.Join(append(want[:1:1], want[2:]...), " ") {
			t.Errorf("the folded state is %+v, %v", f.State, err)
		}
	})
}

// TestRecordedTimeNeverDecreases checks that the time of events does not decrease when the clock is
// set back, that Apply receives the stored time, and that all events of a split have the same time.
func TestRecordedTimeNeverDecreases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		archive(s)
		manifest, payload, err := s.typ.Events.Encode(line{"1 2"})
		if err != nil {
			t.Fatal(err)
		}
		ahead := time.Now().UTC().Add(time.Hour)
		w := journal.Write{ID: "actor|1", Writer: "w", Events: []journal.Event{{SequenceNr: 1, Time: ahead, Manifest: manifest, Payload: payload}}}
		if errs := s.journal.Append(t.Context(), []journal.Write{w}); errs != nil {
			t.Fatal(errs)
		}
		type oldLine struct{ Text string }
		s.typ.Events = codec.Types(codec.Name[line]("line").Version(2), codec.Split("line", 1, func(old oldLine) ([]any, error) {
			var all []any
			for word := range strings.FieldsSeq(old.Text) {
				all = append(all, line{word})
			}
			return all, nil
		}))
		s.open()
		defer s.close()
		at := ahead.UnixMicro()
		expect(t, s.mustAsk(addLines("3")), nil, fmt.Sprintf("1=1/%d/ 2=1/%d/ 3=2/%d/", at, at, at))
	})
}
