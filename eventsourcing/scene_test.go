// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
	"github.com/refold-io/refold/store"
)

// An actor calls the functions that its commands contain. Its state is the list of its lines.
type (
	actorCtx      = eventsourcing.Context[actor, actorEvent, string]
	actorDecision = eventsourcing.Decision[actor, actorEvent, string]
	actorStep     = eventsourcing.Effect[actor, actorEvent, string]
	signalCtx     = eventsourcing.Context[actor, actorEvent, eventsourcing.None]
	signalEffect  = eventsourcing.Effect[actor, actorEvent, eventsourcing.None]
	actorEvent    interface{ isActorEvent() }

	// act is answered with a text.
	act struct {
		eventsourcing.Command[actor, string]
		f func(ctx *actorCtx, a *actor, c act) actorDecision
	}
	line     struct{ Text string }
	unlisted struct{} // an event without a name

	actor struct {
		Lines []string
		Until time.Time `refold:"-"` // the deadline, see newTimed
		scene *scene    `refold:"-"`
	}
)

func (line) isActorEvent()     {}
func (unlisted) isActorEvent() {}

func (a *actor) act(ctx *actorCtx, c act) actorDecision { return c.f(ctx, a, c) }

func (a *actor) apply(event actorEvent) {
	if e, ok := event.(line); ok {
		if e.Text == "poison" {
			panic("poison")
		}
		a.Lines = append(a.Lines, e.Text)
	}
}

func (a *actor) text() string { return strings.Join(a.Lines, " ") }

// nothing is a callback without an effect.
func nothing(ctx *actorCtx) actorStep { return ctx.Effect }

// on registers scene.receive for signals of one type.
func on[G eventsourcing.Signal]() eventsourcing.SignalHandler[actor, actorEvent] {
	return eventsourcing.OnSignal(func(a *actor, ctx *signalCtx, signal G) signalEffect { return a.scene.receive(ctx, a, signal) })
}

// scene is a runtime with one type of actor, over stores that fail on demand.
type scene struct {
	t         testing.TB
	cfg       eventsourcing.Config
	opts      eventsourcing.HostOptions
	typ       eventsourcing.Type[actor, actorEvent]
	journal   *journaltest.Faulty
	snapshots *snapshottest.Faulty
	rt        *eventsourcing.Runtime
	actors    *eventsourcing.Local[actor, actorEvent]

	mu       sync.Mutex
	received []eventsourcing.Signal
	onSignal func(ctx *signalCtx, a *actor, signal eventsourcing.Signal) signalEffect
	notes    []string
	dropped  []eventsourcing.DroppedInfo
}

// newScene prepares a scene; open starts it.
func newScene(tb testing.TB) *scene {
	tb.Helper()
	s := &scene{
		t: tb, journal: journaltest.NewFaulty(inmem.NewJournal()),
		snapshots: snapshottest.NewFaulty(inmem.NewSnapshotStore()),
	}
	s.cfg = eventsourcing.Config{Store: store.Of(s.journal, s.snapshots)}
	s.cfg.Observer.Dropped = func(info eventsourcing.DroppedInfo) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dropped = append(s.dropped, info)
	}
	s.typ = eventsourcing.Type[actor, actorEvent]{
		Name:     "actor",
		New:      func(string) *actor { return &actor{scene: s} },
		Commands: eventsourcing.Commands(eventsourcing.On("", (*actor).act)),
		Apply:    (*actor).apply,
		Events:   codec.Types(codec.Name[line]("line")),
	}
	return s
}

// withSignals adds handlers for all signals.
func (s *scene) withSignals() *scene {
	s.typ.Signals = eventsourcing.Signals(
		on[eventsourcing.RecoveryCompleted](), on[eventsourcing.PersistFailed](), on[eventsourcing.PersistRejected](),
		on[eventsourcing.ReceiveTimeout](), on[eventsourcing.StateTimeout](), on[eventsourcing.SnapshotSaved](), on[eventsourcing.SnapshotFailed](),
		on[eventsourcing.SnapshotsDeleted](), on[eventsourcing.SnapshotsNotDeleted](), on[eventsourcing.EventsDeleted](), on[eventsourcing.EventsNotDeleted](),
	)
	return s
}

// open starts a runtime, which the test closes at its end.
func (s *scene) open() *scene {
	s.t.Helper()
	var err error
	if s.rt, err = eventsourcing.Open(s.cfg); err != nil {
		s.t.Fatal(err)
	}
	if s.actors, err = eventsourcing.HostWith(s.rt, s.typ, s.opts); err != nil {
		s.t.Fatal(err)
	}
	return s
}

// close closes the runtime and waits until its entities have stopped.
func (s *scene) close() {
	s.t.Helper()
	if err := s.rt.Close(context.Background()); err != nil {
		s.t.Errorf("close: %v", err)
	}
}

// reopen replaces the runtime.
func (s *scene) reopen() {
	s.t.Helper()
	s.close()
	s.open()
}

func (s *scene) receive(ctx *signalCtx, a *actor, signal eventsourcing.Signal) signalEffect {
	s.mu.Lock()
	s.received = append(s.received, signal)
	f := s.onSignal
	s.mu.Unlock()
	if f != nil {
		return f(ctx, a, signal)
	}
	return ctx.Effect
}

// on sets the reaction to signals.
func (s *scene) on(f func(ctx *signalCtx, a *actor, signal eventsourcing.Signal) signalEffect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onSignal = f
}

// signals returns the types of the signals since the last call, without RecoveryCompleted.
func (s *scene) signals() (names []string) {
	for _, h := range s.take() {
		if _, recovered := h.(eventsourcing.RecoveryCompleted); !recovered {
			_, name, _ := strings.Cut(fmt.Sprintf("%T", h), ".")
			names = append(names, name)
		}
	}
	return names
}

// take returns the signals that were received since the last call.
func (s *scene) take() []eventsourcing.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	received := s.received
	s.received = nil
	return received
}

// note appends a text to the notes.
func (s *scene) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

func (s *scene) expectNotes(want ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.notes, want) {
		s.t.Errorf("the notes are\n\t%q, want\n\t%q", s.notes, want)
	}
	s.notes = nil
}

// ask asks the actor "1".
func (s *scene) ask(f func(ctx *actorCtx, a *actor, c act) actorDecision) (string, error) {
	return s.askOf(context.Background(), "1", f)
}

func (s *scene) askOf(ctx context.Context, id string, f func(ctx *actorCtx, a *actor, c act) actorDecision) (string, error) {
	return eventsourcing.Ask(ctx, s.actors.Ref(id), act{f: f})
}

// mustAsk asks the actor "1" and returns the answer.
func (s *scene) mustAsk(f func(ctx *actorCtx, a *actor, c act) actorDecision) string {
	s.t.Helper()
	text, err := s.ask(f)
	if err != nil {
		s.t.Fatalf("ask: %v", err)
	}
	return text
}

// start starts the actor "1", which stays in memory without events.
func (s *scene) start() {
	s.t.Helper()
	if err := s.actors.Start(context.Background(), "1"); err != nil {
		s.t.Fatalf("start: %v", err)
	}
}

// tell sends a command to the actor "1" with Tell.
func (s *scene) tell(f func(ctx *actorCtx, a *actor, c act) actorDecision) {
	s.t.Helper()
	if err := eventsourcing.Tell(context.Background(), s.actors.Ref("1"), act{f: f}); err != nil {
		s.t.Fatalf("tell: %v", err)
	}
}

// addLines returns a command that persists lines in one unit and is answered with all lines.
func addLines(texts ...string) func(ctx *actorCtx, a *actor, c act) actorDecision {
	return func(ctx *actorCtx, a *actor, c act) actorDecision {
		return ctx.Persist(lines(texts...)...).ReplyFunc(a.text)
	}
}

func lines(texts ...string) []actorEvent {
	events := make([]actorEvent, len(texts))
	for i, text := range texts {
		events[i] = line{text}
	}
	return events
}

// recall is answered with all lines.
func recall(ctx *actorCtx, a *actor, c act) actorDecision { return ctx.Reply(a.text()) }

// stored returns the texts in the journal of the actor "1", "-" for a fence.
func (s *scene) stored() (texts []string) {
	s.t.Helper()
	for e, err := range s.journal.Unwrap().Replay(context.Background(), "actor|1", 1, journal.MaxSequenceNr) {
		if err != nil {
			s.t.Fatal(err)
		}
		if e.IsFence() {
			texts = append(texts, "-")
			continue
		}
		decoded, err := s.typ.Events.DecodeAppend(nil, e.Manifest, e.Payload)
		if err != nil {
			s.t.Fatal(err)
		}
		texts = append(texts, decoded[0].(line).Text) //nolint:errcheck,forcetypeassert // there is no other
	}
	return texts
}

func (s *scene) expectStored(want ...string) {
	s.t.Helper()
	if got := s.stored(); !slices.Equal(got, want) {
		s.t.Errorf("the journal holds %q, want %q", got, want)
	}
}

// saved lists the numbers of the snapshots of the actor "1", the newest first.
func (s *scene) saved() (numbers []uint64) {
	s.t.Helper()
	for md, err := range s.snapshots.List(context.Background(), "actor|1", snapshot.Latest()) {
		if err != nil {
			s.t.Fatal(err)
		}
		numbers = append(numbers, md.SequenceNr)
	}
	return numbers
}

func (s *scene) expectSaved(want ...uint64) {
	s.t.Helper()
	if got := s.saved(); !slices.Equal(got, want) {
		s.t.Errorf("there are snapshots at %d, want %d", got, want)
	}
}

// later runs f on a goroutine. The returned function waits for the result of f.
func later[T any](f func() (T, error)) func() (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	return func() (T, error) {
		r := <-done
		return r.value, r.err
	}
}

// expect compares an answer.
func expect(tb testing.TB, got string, err error, want string) {
	tb.Helper()
	if err != nil || got != want {
		tb.Errorf("the answer is %q, %v, want %q", got, err, want)
	}
}

// expectError requires an error that matches all of these.
func expectError(tb testing.TB, err error, wants ...error) {
	tb.Helper()
	for _, want := range wants {
		if !errors.Is(err, want) {
			tb.Errorf("the error is %v, want one that matches %v", err, want)
		}
	}
}

// pass sleeps and waits until all goroutines of the bubble are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
