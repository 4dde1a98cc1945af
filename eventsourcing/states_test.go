// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

type (
	// pageV1 and page are what the snapshots of a scribe hold.
	pageV1 struct{ Text string }
	page   struct{ Lines []string }

	// scribe has a state that can't be stored as it is.
	scribe struct {
		actor
		Index map[string]chan int `refold:"-"`
		fails *error              `refold:"-"`
	}
)

func (w *scribe) ToSnapshot() (any, error) {
	if err := *w.fails; err != nil {
		return nil, err
	}
	return page{w.Lines}, nil
}

func (w *scribe) FromSnapshot(state any) error {
	p, ok := state.(page)
	if !ok {
		return errors.New("not a page")
	}
	w.Lines = p.Lines
	return *w.fails
}

func pages() *codec.Registry {
	return codec.Types(
		codec.Name[page]("page").Version(2),
		codec.Upcast("page", 1, func(old pageV1) (page, error) { return page{strings.Fields(old.Text)}, nil }),
	)
}

// scribes has the actors keep snapshots of another type; they fail with *fails.
func (s *scene) scribes(fails *error) *scene {
	s.typ.New = func(string) eventsourcing.Aggregate[actorCommand, actorEvent] {
		return &scribe{actor: actor{scene: s}, fails: fails}
	}
	s.typ.States = pages()
	s.typ.Snapshots = eventsourcing.SnapshotEvery(2)
	return s
}

// load returns the newest snapshot of the actor "1".
func (s *scene) load() snapshot.Snapshot {
	s.t.Helper()
	stored, err := s.snapshots.Load(context.Background(), "actor|1", snapshot.Latest())
	if err != nil {
		s.t.Fatal(err)
	}
	return stored
}

// replace puts another snapshot into the place of one.
func (s *scene) replace(stored snapshot.Snapshot, manifest string, payload []byte) {
	s.t.Helper()
	stored.Manifest, stored.Payload = manifest, payload
	if err := s.snapshots.Save(context.Background(), stored); err != nil {
		s.t.Fatal(err)
	}
}

// TestSnapshotAdapter: snapshots hold a named type, and old forms of it are read,
// among them that of the aggregate itself, before it had an adapter.
func TestSnapshotAdapter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fails error
		s := newScene(t).scribes(&fails).open()
		s.mustAsk(say("1", "2"))
		synctest.Wait()
		stored := s.load()
		if stored.Manifest != "page@2" {
			t.Errorf("the manifest is %q", stored.Manifest)
		}
		for manifest, payload := range map[string]string{
			"page@2": string(stored.Payload),
			"page":   "\x81\xa4Text\xa33 4",
			"state":  "\x81\xa5Lines\x92\xa15\xa16",
		} {
			s.close()
			s.replace(stored, manifest, []byte(payload))
			s.open()
			want := map[string]string{"page@2": "1 2", "page": "3 4", "state": "5 6"}[manifest]
			expect(t, s.mustAsk(recall), nil, want)
		}
		s.close()
		for _, broken := range []string{"page@3", "self", "page"} {
			s.replace(stored, broken, []byte("\xc1"))
			s.open()
			expect(t, s.mustAsk(recall), nil, "1 2") // from the events
			s.close()
		}
		s.replace(stored, "page@2", stored.Payload)
		fails = errors.New("the ink has run out")
		s.open()
		defer s.close()
		expect(t, s.mustAsk(recall), nil, "1 2")
	})
}

// TestSnapshotAdapterFails: then there is no snapshot, and the entity hears of it.
func TestSnapshotAdapterFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails := errors.New("the ink has run out")
		s := newScene(t).scribes(&fails).open()
		defer s.close()
		expect(t, s.mustAsk(say("1", "2")), nil, "1 2")
		synctest.Wait()
		s.expectSaved()
		fails = nil
		expect(t, s.mustAsk(say("3", "4")), nil, "1 2 3 4")
		synctest.Wait()
		s.expectSaved(4)
	})
}

// both encodes itself in two ways.
type both struct{ scribe }

func (*both) MarshalSnapshot() ([]byte, error) { return nil, nil }
func (*both) UnmarshalSnapshot([]byte) error   { return nil }

func TestSnapshotAdapterMistakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		adapts := func(string) eventsourcing.Aggregate[actorCommand, actorEvent] { return &scribe{} }
		for want, change := range map[string]func(*eventsourcing.Type[actorCommand, actorEvent]){
			"one of them": func(typ *eventsourcing.Type[actorCommand, actorEvent]) {
				typ.New = func(string) eventsourcing.Aggregate[actorCommand, actorEvent] { return &both{} }
				typ.States = pages()
			},
			"*eventsourcing_test.scribe has to be": func(typ *eventsourcing.Type[actorCommand, actorEvent]) { typ.New = adapts },
			"*eventsourcing_test.actor has to be":  func(typ *eventsourcing.Type[actorCommand, actorEvent]) { typ.States = pages() },
			"is reserved": func(typ *eventsourcing.Type[actorCommand, actorEvent]) {
				typ.New, typ.States = adapts, codec.Types(codec.Name[page]("state"))
			},
			"Type.States: codec": func(typ *eventsourcing.Type[actorCommand, actorEvent]) {
				typ.New, typ.States = adapts, codec.Types(codec.Name[page](""))
			},
			"Version needs at least 1": func(typ *eventsourcing.Type[actorCommand, actorEvent]) {
				typ.Snapshots = eventsourcing.SnapshotEvery(1).Version(0)
			},
		} {
			typ := s.typ
			typ.Name = "another"
			change(&typ)
			_, err := eventsourcing.Host(s.rt, typ, s.opts)
			expectError(t, err, eventsourcing.ErrInvalid)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want one that says %q", err, want)
			}
		}
	})
}

// TestStateVersion: snapshots of another version are passed over.
func TestStateVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Snapshots = eventsourcing.SnapshotEvery(2)
		s.open()
		s.mustAsk(say("1", "2"))
		s.close()
		stored := s.load()
		if stored.Manifest != "state" {
			t.Errorf("the manifest is %q", stored.Manifest)
		}
		s.replace(stored, "state", []byte("\x81\xa5Lines\x91\xa1x")) // what the old ApplyEvent made of it
		s.typ.Snapshots = eventsourcing.SnapshotEvery(2).Version(2)
		s.open()
		expect(t, s.mustAsk(say("3")), nil, "1 2 3")
		synctest.Wait() // for the snapshot that was due after the recovery
		s.mustAsk(say("4"))
		s.close()
		stored = s.load()
		if stored.Manifest != "state@2" {
			t.Errorf("the manifest is %q", stored.Manifest)
		}
		s.replace(stored, "state@2", []byte("\x81\xa5Lines\x91\xa1y")) // to see that it is used
		s.open()
		expect(t, s.mustAsk(recall), nil, "y")
		s.close()
		s.typ.Snapshots = eventsourcing.SnapshotEvery(2) // the older program again
		s.open()
		defer s.close()
		expect(t, s.mustAsk(recall), nil, "1 2 3 4")
	})
}

// TestStatesByHand: what tools do with states.
func TestStatesByHand(t *testing.T) {
	t.Parallel()
	var fails error
	s := newScene(t).scribes(&fails)
	manifest, payload, err := eventsourcing.EncodeState(s.typ, &scribe{actor: actor{Lines: []string{"1"}}, fails: &fails})
	if err != nil || manifest != "page@2" {
		t.Fatalf("%q, %v", manifest, err)
	}
	state, err := eventsourcing.DecodeState(s.typ, "1", manifest, payload)
	if w, ok := state.(*scribe); err != nil || !ok || w.text() != "1" || w.scene != s {
		t.Errorf("%+v, %v", state, err)
	}
	_, err = eventsourcing.DecodeState(s.typ, "1", "stranger", payload)
	expectError(t, err, codec.ErrUnknown)
	if _, _, err = eventsourcing.EncodeState(s.typ, &scribe{}); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("a panic became %v", err)
	}
	fails = errors.New("the ink has run out")
	_, err = eventsourcing.DecodeState(s.typ, "1", manifest, payload)
	expectError(t, err, fails)
	_, _, err = eventsourcing.EncodeState(s.typ, &both{})
	expectError(t, err, eventsourcing.ErrInvalid)
	for _, nothing := range []func(string) eventsourcing.Aggregate[actorCommand, actorEvent]{
		nil, func(string) eventsourcing.Aggregate[actorCommand, actorEvent] { return nil },
	} {
		s.typ.New = nothing
		_, err = eventsourcing.DecodeState(s.typ, "1", manifest, payload)
		expectError(t, err, eventsourcing.ErrInvalid)
	}
}

// TestTagsOfTheType come before those of a Tagger, each once.
func TestTagsOfTheType(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.New = func(string) eventsourcing.Aggregate[actorCommand, actorEvent] { return &tagging{actor{scene: s}} }
		always := []string{"line", "b", "spare"}[:2] // with room behind, which must not be used
		s.typ.Tags = func(event actorEvent) []string {
			if event.(line).Text == "none" { //nolint:errcheck,forcetypeassert // there is no other
				return nil
			}
			return always
		}
		s.open()
		defer s.close()
		s.mustAsk(say("none", "a", "#b", "#c"))
		var tags []string
		for e, err := range s.journal.Replay(t.Context(), "actor|1", 1, journal.MaxSequenceNr) {
			if err != nil {
				t.Fatal(err)
			}
			tags = append(tags, strings.Join(e.Tags, "/"))
		}
		if got := strings.Join(tags, ", "); got != ", line/b, line/b/none a #b, line/b/c/none a #b #c" {
			t.Errorf("the tags are %q", got)
		}
		if always[:3][2] != "spare" {
			t.Error("the slice of the type was written to")
		}
	})
}

// TestTagsThatPanic reject nothing but their own write.
func TestTagsThatPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Tags = func(event actorEvent) []string {
			if event.(line).Text == "bad" { //nolint:errcheck,forcetypeassert // there is no other
				panic("no tags")
			}
			return nil
		}
		s.open()
		defer s.close()
		s.mustAsk(say("1"))
		if _, err := s.ask(say("bad")); err == nil || !strings.Contains(err.Error(), "panicked: no tags") {
			t.Errorf("a panic became %v", err)
		}
		expect(t, s.mustAsk(say("2")), nil, "1 2")
		s.expectStored("1", "2")
	})
}

// TestAdaptedEvents: an error or a panic of an adapter rejects its own write and
// changes nothing else; what is stored is read through the adapter.
func TestAdaptedEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type row struct{ Words []string }
		crooked := errors.New("crooked")
		s := newScene(t)
		s.typ.Events = codec.Types(codec.Adapt("line",
			func(e line) (row, error) {
				switch e.Text {
				case "error":
					return row{}, crooked
				case "panic":
					panic("adapter")
				}
				return row{strings.Split(e.Text, "-")}, nil
			},
			func(r row) (line, error) { return line{strings.Join(r.Words, "+")}, nil }))
		s.open()
		defer s.close()
		expect(t, s.mustAsk(say("a-b")), nil, "a-b")
		_, err := s.ask(say("c", "error"))
		expectError(t, err, eventsourcing.ErrRejected, crooked)
		_, err = s.ask(say("panic"))
		expectError(t, err, eventsourcing.ErrRejected)
		expect(t, s.mustAsk(say("d")), nil, "a-b d")
		s.reopen()
		expect(t, s.mustAsk(recall), nil, "a+b d")
		s.expectStored("a+b", "d")
	})
}
