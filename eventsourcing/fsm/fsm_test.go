// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fsm_test

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
	"github.com/refold-io/refold/eventsourcing/fsm"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// A lamp obeys the function in each command.
type (
	lamp struct {
		At    fsm.Position[mode]
		Texts []string

		scene *scene `refold:"-"`
	}
	lit    struct{ Text string }
	lampDo struct {
		eventsourcing.Command[lamp, string]
		f func(*lamp, *lampContext) lampMove
	}
	lampContext = fsm.Context[lamp, lit, mode, string]
	lampMove    = fsm.Transition[lamp, lit, mode, string]
	lampOver    = fsm.Context[lamp, lit, mode, eventsourcing.None]
	lampOverTo  = fsm.Transition[lamp, lit, mode, eventsourcing.None]
)

type scene struct {
	t       *testing.T
	machine fsm.Machine[lamp, lit, mode]
	journal *journaltest.Faulty
	saved   *inmem.SnapshotStore
	rt      *eventsourcing.Runtime
	lamps   *eventsourcing.Local[lamp, any]

	mu    sync.Mutex
	notes []string
}

func (s *scene) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, text)
}

// takeNotes returns the notes since the last call.
func (s *scene) takeNotes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	notes := s.notes
	s.notes = nil
	return notes
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, journal: journaltest.NewFaulty(inmem.NewJournal()), saved: inmem.NewSnapshotStore()}
	do := func(l *lamp, ctx *lampContext, c lampDo) lampMove { return c.f(l, ctx) }
	s.machine = fsm.Machine[lamp, lit, mode]{
		Type:     eventsourcing.Type[lamp, any]{Name: "lamp", New: func(string) *lamp { return &lamp{scene: s} }},
		Events:   []codec.Entry{codec.Name[lit]("lit")},
		Position: func(l *lamp) *fsm.Position[mode] { return &l.At },
		States:   []mode{closed, open, "other"},
		Apply:    func(l *lamp, e lit) { l.Texts = append(l.Texts, e.Text) },
		Handlers: []fsm.Handler[lamp, lit, mode]{fsm.On("", fsm.In(do, closed, open))},
		Timeouts: []fsm.Timeout[lamp, lit, mode]{fsm.OnTimeout(open, func(l *lamp, ctx *lampOver) lampOverTo {
			l.scene.note("timeout")
			return ctx.Goto(closed)
		})},
		OnTransition: func(l *lamp, from, to mode) {
			l.scene.note(fmt.Sprintf("%s -> %s", from, to))
		},
	}
	return s
}

func (s *scene) open() {
	s.t.Helper()
	typ, err := s.machine.Build()
	if err != nil {
		s.t.Fatal(err)
	}
	if s.rt, err = eventsourcing.Open(eventsourcing.Config{Store: store.Of(s.journal, s.saved)}); err != nil {
		s.t.Fatal(err)
	}
	if s.lamps, err = eventsourcing.Host(s.rt, typ); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) close() {
	s.t.Helper()
	if err := s.rt.Close(context.Background()); err != nil {
		s.t.Error(err)
	}
}

func (s *scene) do(f func(l *lamp, ctx *lampContext) lampMove) error {
	_, err := eventsourcing.Ask(context.Background(), s.lamps.Ref("1"), lampDo{f: f})
	return err
}

func (s *scene) must(f func(l *lamp, ctx *lampContext) lampMove) {
	s.t.Helper()
	if err := s.do(f); err != nil {
		s.t.Error(err)
	}
}

// expectStored compares the manifests of the stored events.
func (s *scene) expectStored(want ...string) {
	s.t.Helper()
	var got []string
	for e, err := range s.journal.Unwrap().Replay(context.Background(), "lamp|1", 1, journal.MaxSequenceNr) {
		if err != nil {
			s.t.Fatal(err)
		}
		name, _, _ := strings.Cut(e.Manifest, "@")
		got = append(got, name)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("the journal holds %q, want %q", got, want)
	}
}

func (s *scene) expectNotes(want ...string) {
	s.t.Helper()
	synctest.Wait()
	if notes := s.takeNotes(); !slices.Equal(notes, want) {
		s.t.Errorf("the notes are %q, want %q", notes, want)
	}
}

// expectState compares the present state, by a command that changes nothing.
func (s *scene) expectState(want mode, texts ...string) {
	s.t.Helper()
	s.must(func(l *lamp, ctx *lampContext) lampMove {
		if ctx.State() != want || !slices.Equal(l.Texts, texts) {
			s.t.Errorf("the state is %q with %q, want %q with %q", ctx.State(), l.Texts, want, texts)
		}
		return ctx.Stay()
	})
}

// TestTransitions checks which events a transition stores, that they are one unit, and which callbacks
// run, also that no callback runs in a recovery.
func TestTransitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.machine.Type.Snapshots.Every = 5
		s.open()
		s.must(func(l *lamp, ctx *lampContext) lampMove {
			return ctx.Goto(open).Applying(lit{"a"}, lit{"b"}).AndThen(func(*lamp) { s.note("then " + strings.Join(l.Texts, "")) })
		})
		s.expectStored("lit", "lit", "refold.fsm.state")
		s.expectNotes("closed -> open", "then ab")
		if n := s.journal.Writes(); n != 1 {
			t.Errorf("%d writes were made, want one unit", n)
		}
		s.must(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Stay().Applying(lit{"c"}) })
		s.expectStored("lit", "lit", "refold.fsm.state", "lit")
		s.expectNotes()
		s.must(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Goto(open) })
		s.expectStored("lit", "lit", "refold.fsm.state", "lit", "refold.fsm.state")
		s.expectNotes("open -> open")
		for md, err := range s.saved.List(t.Context(), "lamp|1", snapshot.Latest()) {
			if md.SequenceNr != 5 || err != nil {
				t.Errorf("the snapshot is %+v, %v, want one at 5", md, err)
			}
		}
		s.must(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Stop() })
		synctest.Wait()
		if n := s.lamps.Resident(); n != 0 {
			t.Errorf("%d lamps are in memory after Stop, want 0", n)
		}
		s.close()
		s.open()
		s.expectState(open, "a", "b", "c")
		s.expectNotes()
		s.close()
	})
}

// TestFailedTransition checks that a refused write changes neither data nor state, and that no callback
// runs.
func TestFailedTransition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.open()
		s.journal.Inject(journaltest.Fault{Do: journaltest.Reject})
		if err := s.do(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Goto(open).Applying(lit{"a"}) }); err == nil {
			t.Error("the command succeeded, want an error")
		}
		s.expectStored()
		s.expectNotes()
		s.expectState(closed)
		if err := s.do(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Goto("unknown") }); err == nil {
			t.Error("Goto of an unknown state succeeded")
		}
		s.must(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Goto("other") })
		if err := s.do(nil); !errors.Is(err, eventsourcing.ErrUnhandled) {
			t.Errorf("in a state without a case the reply is %v, want ErrUnhandled", err)
		}
		s.close()
	})
}

// TestTimeouts checks that the time of a state survives a restart, that Stay keeps it, and that ForMax
// and Goto replace it.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.open()
		goOpen := func(_ *lamp, ctx *lampContext) lampMove { return ctx.Goto(open).ForMax(time.Minute) }
		s.must(goOpen)
		time.Sleep(40 * time.Second)
		s.must(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Stay().Applying(lit{"a"}) })
		s.close()
		s.takeNotes()
		time.Sleep(10 * time.Second)
		s.open()
		s.expectState(open, "a")
		time.Sleep(9 * time.Second)
		s.expectNotes()
		time.Sleep(time.Second)
		s.expectNotes("timeout", "open -> closed")
		s.expectState(closed, "a")

		s.must(goOpen) // the deadline passes while the runtime is closed
		s.close()
		time.Sleep(time.Hour)
		s.takeNotes()
		s.open()
		if n, err := s.lamps.Wake(t.Context()); n != 1 || err != nil {
			t.Errorf("Wake started %d lamps, %v, want 1", n, err)
		}
		s.expectNotes("timeout", "open -> closed")

		s.must(goOpen)
		s.must(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Stay().ForMax(0) })
		s.must(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Stay() })
		time.Sleep(time.Hour)
		s.expectNotes("closed -> open")
		s.must(goOpen)
		s.must(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Goto(open) })
		time.Sleep(time.Hour)
		s.expectNotes("open -> open", "open -> open")
		s.close()
	})
}

// TestInitialTimeout checks that the time of the initial state begins with the first start, that it is
// stored and survives a restart, and that neither a later start nor a later Goto begins it again.
func TestInitialTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.machine.InitialForMax = time.Minute
		s.machine.Timeouts = append(s.machine.Timeouts, fsm.OnTimeout(closed, func(l *lamp, ctx *lampOver) lampOverTo {
			l.scene.note("timeout of closed")
			return ctx.Goto("other")
		}))
		s.open()
		if err := s.lamps.Start(t.Context(), "1"); err != nil {
			t.Error(err)
		}
		s.expectStored("refold.fsm.state")
		s.expectNotes()
		time.Sleep(20 * time.Second)
		s.must(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Stay().Applying(lit{"a"}) })
		s.close()
		time.Sleep(20 * time.Second)
		s.open()
		s.expectState(closed, "a")
		s.expectStored("refold.fsm.state", "lit")
		time.Sleep(19 * time.Second)
		s.expectNotes()
		time.Sleep(time.Second)
		s.expectNotes("timeout of closed", "closed -> other")
		s.expectStored("refold.fsm.state", "lit", "refold.fsm.state")
		s.close()

		s = newScene(t)
		s.machine.InitialForMax = time.Minute
		s.machine.Timeouts = []fsm.Timeout[lamp, lit, mode]{fsm.OnTimeout(closed, func(l *lamp, ctx *lampOver) lampOverTo {
			l.scene.note("timeout of closed")
			return ctx.Stay().ForMax(0)
		})}
		s.open()
		s.must(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Goto(open) }) // the first command
		s.must(func(_ *lamp, ctx *lampContext) lampMove { return ctx.Goto(closed) })
		s.close()
		s.open()
		s.expectState(closed)
		time.Sleep(time.Hour)
		s.expectNotes("closed -> open", "open -> closed")
		s.expectStored("refold.fsm.state", "refold.fsm.state", "refold.fsm.state")
		s.close()
	})
}

// TestInitialTimeoutOfReadOnly checks that an entity that is recovered to a time before its first event
// works, although it cannot store its deadline.
func TestInitialTimeoutOfReadOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.machine.InitialForMax = time.Minute
		s.open()
		typ, err := s.machine.Build()
		if err != nil {
			t.Fatal(err)
		}
		s.close()
		if s.rt, err = eventsourcing.Open(eventsourcing.Config{Store: store.Of(s.journal, s.saved)}); err != nil {
			t.Fatal(err)
		}
		if s.lamps, err = eventsourcing.HostWith(s.rt, typ, eventsourcing.HostOptions{Recovery: eventsourcing.Recovery{AsOf: time.Now().Add(-time.Hour)}}); err != nil {
			t.Fatal(err)
		}
		s.expectState(closed)
		s.expectState(closed)
		s.expectStored()
		s.close()
	})
}

// TestInvalidMachines checks that each mistake is reported with its field.
func TestInvalidMachines(t *testing.T) {
	t.Parallel()
	type machine = fsm.Machine[lamp, lit, mode]
	for field, spoil := range map[string]func(*machine){
		"Machine.Position":      func(m *machine) { m.Position = nil },
		"Machine.States":        func(m *machine) { m.States = []mode{closed, open, closed} },
		"Machine.Initial":       func(m *machine) { m.Initial = "unknown" },
		"Machine.Apply":         func(m *machine) { m.Apply = nil },
		"Machine.Handlers":      func(m *machine) { m.States = []mode{open} },
		"Machine.Timeouts":      func(m *machine) { m.Timeouts = append(m.Timeouts, m.Timeouts[0]) },
		"Machine.InitialForMax": func(m *machine) { m.InitialForMax = -1 },
		"Machine.Type.Deadline": func(m *machine) { m.Type.Deadline = func(*lamp) time.Time { return time.Time{} } },
	} {
		m := newScene(t).machine
		spoil(&m)
		if _, err := m.Build(); !errors.Is(err, eventsourcing.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("the error is %v, want one that names %s", err, field)
		}
	}
}
