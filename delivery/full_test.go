// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

type (
	// Push persists events without a look at Outbox.Room. Its reply is the number of unconfirmed
	// deliveries.
	Push struct {
		eventsourcing.Command[sender, int]
		Events []Event
		// Later are persisted by a callback after Events.
		Later []Event
	}
	pushEffect = eventsourcing.Effect[sender, Event, int]
)

func (s *sender) push(ctx *eventsourcing.Context[sender, Event, int], c Push) eventsourcing.Decision[sender, Event, int] {
	effect := ctx.Persist(c.Events...)
	if len(c.Later) > 0 {
		effect = effect.Then(func(ctx *eventsourcing.Context[sender, Event, int]) pushEffect { return ctx.Persist(c.Later...) })
	}
	return effect.ReplyFunc(s.Out.Unconfirmed)
}

// fullScene is a runtime with a sender whose outbox holds a few deliveries.
type fullScene struct {
	t        *testing.T
	journal  *journaltest.Faulty
	rt       *eventsourcing.Runtime
	senders  *eventsourcing.Local[sender, Event]
	failures atomic.Int64
	events   atomic.Int64 // of commands, as observed
}

func openFull(t *testing.T, limit int) *fullScene {
	t.Helper()
	s := &fullScene{t: t, journal: journaltest.NewFaulty(inmem.NewJournal())}
	s.open(limit)
	return s
}

func (s *fullScene) open(limit int) {
	s.t.Helper()
	var err error
	s.rt, err = eventsourcing.Open(eventsourcing.Config{Store: store.Of(s.journal, nil), Observer: eventsourcing.Observer{
		Failure: func(string, error) { s.failures.Add(1) },
		Command: func(i eventsourcing.CommandInfo) { s.events.Add(int64(i.Events)) },
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	typ := senderType(&probe{options: delivery.Options{MaxUnconfirmed: limit}})
	typ.Commands = append(typ.Commands, eventsourcing.On("", (*sender).push))
	if s.senders, err = eventsourcing.Host(s.rt, typ); err != nil {
		s.t.Fatal(err)
	}
}

func (s *fullScene) close() {
	s.t.Helper()
	if err := s.rt.Close(context.Background()); err != nil {
		s.t.Error(err)
	}
}

// push returns the reply to a Push.
func (s *fullScene) push(events ...Event) (int, error) {
	return eventsourcing.Ask(context.Background(), s.senders.Ref("a"), Push{Events: events})
}

func (s *fullScene) accepts(want int, events ...Event) {
	s.t.Helper()
	if n, err := s.push(events...); n != want || err != nil {
		s.t.Errorf("%v: the reply is %d, %v, want %d unconfirmed deliveries", events, n, err, want)
	}
}

func (s *fullScene) refuses(events ...Event) {
	s.t.Helper()
	_, err := s.push(events...)
	if !errors.Is(err, delivery.ErrFull) || !eventsourcing.NotDone(err) || eventsourcing.StatusOf(err).Retry != eventsourcing.RetryLater {
		s.t.Errorf("%v: the reply is %v, want ErrFull with the status of a command that was not done", events, err)
	}
}

func (s *fullScene) expectStored(want uint64) {
	s.t.Helper()
	if n, err := s.journal.HighestSequenceNr(context.Background(), "sender|a"); n != want || err != nil {
		s.t.Errorf("%d events are stored, %v, want %d", n, err, want)
	}
}

// TestFullOutboxRefusesTheCommand checks that the command that would exceed Options.MaxUnconfirmed is
// refused, whatever it persists, and that the state is as before.
func TestFullOutboxRefusesTheCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openFull(t, 2)
		s.accepts(2, Posted{2})
		for range 10 { // a refusal does not count as a panic, which leads to a back-off
			s.refuses(Posted{1})
			s.refuses(Dropped{1}, Posted{2})
		}
		s.expectStored(1)
		s.accepts(2)
		if n := s.failures.Load(); n != 0 {
			t.Errorf("%d failures were observed, want 0", n)
		}
		if n := s.events.Load(); n != 1 {
			t.Errorf("%d events of commands were observed, want 1", n)
		}
		s.accepts(2, Dropped{1}, Posted{1})
		s.accepts(1, Dropped{2})
		s.accepts(2, Posted{1})
		s.expectStored(5)
		s.close()
	})
}

// TestConfirmOfUnassignedNumber checks that a command is refused if it confirms a delivery that no event
// has requested, and that a recovery fails on such a history: other deliveries would get the numbers of
// those that are missing, and a receiver would drop them.
func TestConfirmOfUnassignedNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openFull(t, 2)
		s.accepts(1, Posted{1})
		if _, err := s.push(Dropped{2}); !errors.Is(err, eventsourcing.ErrInvalid) || !eventsourcing.NotDone(err) {
			t.Errorf("Confirm of delivery 2 of 1: the reply is %v, want ErrInvalid with the status of a command that was not done", err)
		}
		s.expectStored(1)
		s.accepts(0, Dropped{1})
		s.accepts(1, Posted{1})
		s.accepts(0, Dropped{2})
		s.close()

		typ := senderType(&probe{})
		typ.Events = codec.Types(codec.Removed("posted"), codec.Name[Dropped]("dropped"))
		b := openBank(t, eventsourcing.Config{Store: store.Of(s.journal, nil)}, typ, eventsourcing.HostOptions{})
		defer b.close(t)
		_, err := eventsourcing.Ask(t.Context(), b.Ref("a"), Post{N: 1})
		if want := `replay event 2 of "sender|a"`; !errors.Is(err, eventsourcing.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Ask of a sender without its deliveries returned %v, want an error with %s", err, want)
		}
		without := func(_ uint64, e Event) []Event {
			if _, posted := e.(Posted); posted {
				return nil
			}
			return []Event{e}
		}
		if _, err = eventsourcing.Fold(t.Context(), b.runtime, senderType(&probe{}), "a", eventsourcing.FoldOptions[Event]{Replace: without}); err != nil {
			t.Errorf("Fold without the deliveries returned %v, want nil", err)
		}
	})
}

// TestReplayIsNotRefused checks that a lower limit neither prevents a recovery nor refuses commands
// that add no delivery.
func TestReplayIsNotRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openFull(t, 4)
		s.accepts(4, Posted{4})
		s.close()
		s.open(2)
		s.accepts(4)
		s.accepts(4, Posted{0})
		s.refuses(Posted{1})
		s.accepts(3, Dropped{1})
		s.accepts(3, Dropped{2}, Posted{1})
		s.refuses(Posted{1})
		s.close()
	})
}

// TestEarlierWritesOfARefusedCommand checks that a refusal waits for the writes in flight: their
// commands are answered. If they fail, the command is decided again.
func TestEarlierWritesOfARefusedCommand(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]bool{"stored": true, "failed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := openFull(t, 2)
				s.accepts(1, Posted{1})
				// The write of another sender holds back all writes that follow.
				stall := s.journal.Inject(journaltest.Fault{ID: "sender|b", Do: journaltest.Stall})
				if err := eventsourcing.Tell(t.Context(), s.senders.Ref("b"), Push{Events: []Event{Posted{0}}}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if !stored {
					s.journal.Inject(journaltest.Fault{ID: "sender|a", Do: journaltest.Reject})
				}
				type reply struct {
					n   int
					err error
				}
				first, second := make(chan reply, 1), make(chan reply, 1)
				ask := func(to chan reply) {
					n, err := s.push(Posted{1})
					to <- reply{n, err}
				}
				go ask(first)
				synctest.Wait()
				go ask(second)
				synctest.Wait()
				select {
				case r := <-second:
					t.Errorf("the second command was answered %+v before the first write ended", r)
				default:
				}
				stall.Release()
				if r := <-first; (r.err == nil) != stored {
					t.Errorf("the first command was answered %+v", r)
				}
				r := <-second
				if stored && !errors.Is(r.err, delivery.ErrFull) || !stored && (r.err != nil || r.n != 2) {
					t.Errorf("the second command was answered %+v", r)
				}
				s.expectStored(2)
				s.close()
			})
		})
	}
}

// TestCallbackOfAFullOutbox checks that a callback can't exceed the limit either. The events before
// the callback are stored.
func TestCallbackOfAFullOutbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openFull(t, 2)
		_, err := eventsourcing.Ask(t.Context(), s.senders.Ref("a"), Push{Events: []Event{Posted{1}}, Later: []Event{Posted{2}}})
		if !errors.Is(err, delivery.ErrFull) || !errors.Is(err, eventsourcing.ErrPartlyStored) || !strings.Contains(err.Error(), "sender|a#Out") {
			t.Errorf("the reply is %v, want ErrFull and ErrPartlyStored", err)
		}
		s.expectStored(1)
		s.accepts(1)
		s.accepts(2, Posted{1})
		s.close()
	})
}
