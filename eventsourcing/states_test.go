// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/snapshot"
)

type (
	// pageV1 and page are the forms of an actor's state in snapshots.
	pageV1 struct{ Text string }
	page   struct{ Lines []string }
)

// pages is a form of snapshots with an older version. It fails with *fails.
func pages(fails *error) *eventsourcing.StateForm[actor] {
	return eventsourcing.StateAs("page", 2, func(a *actor) (page, error) {
		if err := *fails; err != nil {
			return page{}, err
		}
		return page{a.Lines}, nil
	}, func(a *actor, p page) error {
		a.Lines = p.Lines
		return *fails
	}, codec.Upcast("page", 1, func(old pageV1) (page, error) { return page{strings.Fields(old.Text)}, nil }))
}

// storePages lets the actors store pages in snapshots.
func (s *scene) storePages(fails *error) *scene {
	s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 2, State: pages(fails)}
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

// replace replaces the contents of a stored snapshot.
func (s *scene) replace(stored snapshot.Snapshot, manifest string, payload []byte) {
	s.t.Helper()
	stored.Manifest, stored.Payload = manifest, payload
	if err := s.snapshots.Save(context.Background(), stored); err != nil {
		s.t.Fatal(err)
	}
}

// TestStateForm checks that snapshots hold a named type, and that its older forms and the state's
// struct can still be read.
func TestStateForm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fails error
		s := newScene(t).storePages(&fails).open()
		s.mustAsk(addLines("1", "2"))
		synctest.Wait()
		stored := s.load()
		if stored.Manifest != "page@2" {
			t.Errorf("the manifest is %q, want page@2", stored.Manifest)
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
			expect(t, s.mustAsk(recall), nil, "1 2") // recovered from the events
			s.close()
		}
		s.replace(stored, "page@2", stored.Payload)
		fails = errors.New("injected state error")
		s.open()
		defer s.close()
		expect(t, s.mustAsk(recall), nil, "1 2")
	})
}

// TestStateFormFails checks that no snapshot is saved if the conversion of the state fails, and
// that the entity receives the signal.
func TestStateFormFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails := errors.New("injected state error")
		s := newScene(t).storePages(&fails).open()
		defer s.close()
		expect(t, s.mustAsk(addLines("1", "2")), nil, "1 2")
		synctest.Wait()
		s.expectSaved()
		fails = nil
		expect(t, s.mustAsk(addLines("3", "4")), nil, "1 2 3 4")
		synctest.Wait()
		s.expectSaved(4)
	})
}

// TestStateFormMistakes checks that an invalid form is reported when the type is hosted.
func TestStateFormMistakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		form := func(name string) *eventsourcing.StateForm[actor] {
			return eventsourcing.StateAs(name, 0, func(*actor) (page, error) { return page{}, nil }, func(*actor, page) error { return nil })
		}
		for want, f := range map[string]*eventsourcing.StateForm[actor]{"is reserved": form("state"), "Type.Snapshots.State: codec": form("")} {
			typ := s.typ
			typ.Name, typ.Snapshots.State = "another", f
			_, err := eventsourcing.HostWith(s.rt, typ, s.opts)
			expectError(t, err, eventsourcing.ErrInvalid)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want one that contains %q", err, want)
			}
		}
	})
}

// TestStateVersion checks that snapshots of another version are skipped.
func TestStateVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, log := newScene(t), &logBuffer{}
		s.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 2}
		s.open()
		s.mustAsk(addLines("1", "2"))
		s.close()
		stored := s.load()
		if stored.Manifest != "state" {
			t.Errorf("the manifest is %q, want state", stored.Manifest)
		}
		s.replace(stored, "state", []byte("\x81\xa5Lines\x91\xa1x")) // the state of the old Apply
		s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 2, Version: 2}
		s.open()
		expect(t, s.mustAsk(addLines("3")), nil, "1 2 3")
		synctest.Wait() // for the snapshot that was due after the recovery
		s.mustAsk(addLines("4"))
		s.close()
		stored = s.load()
		if stored.Manifest != "state@2" {
			t.Errorf("the manifest is %q, want state@2", stored.Manifest)
		}
		s.replace(stored, "state@2", []byte("\x81\xa5Lines\x91\xa1y")) // the other state shows that the snapshot is used
		s.open()
		expect(t, s.mustAsk(recall), nil, "y")
		s.close()
		s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 2} // the older program again
		s.open()
		defer s.close()
		expect(t, s.mustAsk(recall), nil, "1 2 3 4")
		if n := log.count("snapshot"); n != 0 {
			t.Errorf("the log has %d lines about snapshots, want none: each raise of the version would add a line per entity", n)
		}
		for _, manifest := range []string{"state@2", "state@0", "state@x"} {
			_, err := eventsourcing.DecodeState(s.typ, "1", manifest, stored.Payload)
			expectError(t, err, codec.ErrUnknown)
			if got, want := errors.Is(err, eventsourcing.ErrSnapshotVersion), manifest == "state@2"; got != want {
				t.Errorf("the error of the manifest %s is %v: it matches ErrSnapshotVersion %t, want %t", manifest, err, got, want)
			}
		}
	})
}

// TestEncodeAndDecodeState checks EncodeState and DecodeState.
func TestEncodeAndDecodeState(t *testing.T) {
	t.Parallel()
	var fails error
	s := newScene(t).storePages(&fails)
	manifest, payload, err := eventsourcing.EncodeState(s.typ, &actor{Lines: []string{"1"}})
	if err != nil || manifest != "page@2" {
		t.Fatalf("the manifest is %q, %v, want page@2", manifest, err)
	}
	a, err := eventsourcing.DecodeState(s.typ, "1", manifest, payload)
	if err != nil || a.text() != "1" || a.scene != s {
		t.Errorf("the decoded state is %+v, %v, want line 1", a, err)
	}
	_, err = eventsourcing.DecodeState(s.typ, "1", "stranger", payload)
	expectError(t, err, codec.ErrUnknown)
	if _, _, err = eventsourcing.EncodeState(s.typ, nil); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("got the error %v, want one about the panic", err)
	}
	fails = errors.New("injected state error")
	_, err = eventsourcing.DecodeState(s.typ, "1", manifest, payload)
	expectError(t, err, fails)
	s.typ.New = func(string) *actor { return nil }
	_, err = eventsourcing.DecodeState(s.typ, "1", manifest, payload)
	expectError(t, err, eventsourcing.ErrInvalid)
}

// TestTagsThatPanic checks that a panic of Type.Tags rejects only its own write.
func TestTagsThatPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Tags = func(_ *actor, event actorEvent) []string {
			if event.(line).Text == "bad" { //nolint:errcheck,forcetypeassert // there is no other
				panic("no tags")
			}
			return nil
		}
		s.open()
		defer s.close()
		s.mustAsk(addLines("1"))
		if _, err := s.ask(addLines("bad")); err == nil || !strings.Contains(err.Error(), "panicked: no tags") {
			t.Errorf("got the error %v, want one about the panic", err)
		}
		expect(t, s.mustAsk(addLines("2")), nil, "1 2")
		s.expectStored("1", "2")
	})
}

// TestAdaptedEvents checks that an error or a panic of an adapter rejects only its own write, and
// that stored events are read through the adapter.
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
		expect(t, s.mustAsk(addLines("a-b")), nil, "a-b")
		_, err := s.ask(addLines("c", "error"))
		expectError(t, err, eventsourcing.ErrRejected, crooked)
		_, err = s.ask(addLines("panic"))
		expectError(t, err, eventsourcing.ErrRejected)
		expect(t, s.mustAsk(addLines("d")), nil, "a-b d")
		s.reopen()
		expect(t, s.mustAsk(recall), nil, "a+b d")
		s.expectStored("a+b", "d")
	})
}
