// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"errors"
	"testing"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// The releases of a program, whose event and state have a field that is renamed: the third one writes
// the new name, the second one already reads it.
type (
	titled1 struct{ Name string }
	titled2 struct {
		Title string `msgpack:"Name,alias:Title"`
	}
	titled3 struct {
		Title string `msgpack:"Title,alias:Name"`
	}
	book1 struct{ Name string }
	book2 struct {
		Title string `msgpack:"Name,alias:Title"`
	}
	book3 struct {
		Title string `msgpack:"Title,alias:Name"`
	}

	// entitle sets the title if To is not empty, and is answered with the title.
	entitle[S any] struct {
		eventsourcing.Command[S, string]
		To string
	}
)

// bookType returns the type of a release. The field function returns the title in a state.
func bookType[S, E any](entry codec.Entry, event func(title string) E, title func(E) string, field func(*S) *string, more ...codec.Entry) eventsourcing.Type[S, E] {
	return eventsourcing.Type[S, E]{
		Name: "book",
		Commands: eventsourcing.Commands(eventsourcing.On("", func(s *S, ctx *eventsourcing.Context[S, E, string], c entitle[S]) eventsourcing.Decision[S, E, string] {
			e := ctx.Effect
			if c.To != "" {
				e = e.Persist(event(c.To))
			}
			return e.ReplyFunc(func() string { return *field(s) })
		})),
		Apply:     func(s *S, e E) { *field(s) = title(e) },
		Events:    codec.Types(append(more, entry)...),
		Snapshots: eventsourcing.Snapshots[S, E]{Every: 1},
	}
}

func release1(more ...codec.Entry) eventsourcing.Type[book1, titled1] {
	return bookType(codec.Name[titled1]("titled"), func(t string) titled1 { return titled1{t} }, func(e titled1) string { return e.Name },
		func(b *book1) *string { return &b.Name }, more...)
}

func release2() eventsourcing.Type[book2, titled2] {
	return bookType(codec.Name[titled2]("titled"), func(t string) titled2 { return titled2{t} }, func(e titled2) string { return e.Title },
		func(b *book2) *string { return &b.Title })
}

func release3(entry codec.Entry, more ...codec.Entry) eventsourcing.Type[book3, titled3] {
	return bookType(entry, func(t string) titled3 { return titled3{t} }, func(e titled3) string { return e.Title },
		func(b *book3) *string { return &b.Title }, more...)
}

// shelf is the store that all releases share.
type shelf struct {
	t  *testing.T
	db store.DB
}

func newShelf(t *testing.T) shelf {
	t.Helper()
	db, err := inmem.Open()
	if err != nil {
		t.Fatal(err)
	}
	return shelf{t, db}
}

// expectTitle runs a release that reads a title, and then stores another one.
func expectTitle[S, E any](s shelf, typ eventsourcing.Type[S, E], want, next string) {
	s.t.Helper()
	for _, c := range []struct{ to, want string }{{"", want}, {next, next}} {
		if got, err := askTitle(s, typ, c.to); err != nil || got != c.want {
			s.t.Fatalf("the title is %q, error %v, want %q", got, err, c.want)
		}
	}
}

func askTitle[S, E any](s shelf, typ eventsourcing.Type[S, E], to string) (string, error) {
	s.t.Helper()
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: s.db})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() {
		if failed := rt.Close(s.t.Context()); failed != nil {
			s.t.Error(failed)
		}
	}()
	books, err := eventsourcing.Host(rt, typ)
	if err != nil {
		s.t.Fatal(err)
	}
	return eventsourcing.Ask(s.t.Context(), books.Ref("1"), entitle[S]{To: to})
}

// TestRenameInTwoReleases checks that two successive releases read each other's events and snapshots, in
// both directions: in a rolling restart, and after a rollback.
func TestRenameInTwoReleases(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	third := release3(codec.Name[titled3]("titled"))
	expectTitle(s, release1(), "", "a")
	expectTitle(s, release2(), "a", "b")
	expectTitle(s, release1(), "b", "c")
	expectTitle(s, release2(), "c", "d")
	expectTitle(s, third, "d", "e")
	expectTitle(s, release2(), "e", "f")
	expectTitle(s, third, "f", "g")
}

// TestVersionInTwoReleases checks that a release reads the next version of an event, and that a release
// that does not read it fails: it neither loses data nor saves a snapshot.
func TestVersionInTwoReleases(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	up := codec.Upcast("titled", 1, func(old titled1) (titled3, error) { return titled3{old.Name}, nil })
	third := release3(codec.Name[titled3]("titled").Version(2), up)
	third.Snapshots.Version = 2
	reading := release1(codec.Upcast("titled", 2, func(next titled3) (titled1, error) { return titled1{next.Title}, nil }))
	expectTitle(s, release1(), "", "a")
	expectTitle(s, reading, "a", "b")
	expectTitle(s, third, "b", "c")
	_, err := askTitle(s, release1(), "")
	if status := eventsourcing.StatusOf(err); !errors.Is(err, eventsourcing.ErrRecovery) || !errors.Is(err, codec.ErrUnknown) || status.Outcome != eventsourcing.DoneNot {
		t.Errorf("a release that does not read the version: error %v, want ErrRecovery and codec.ErrUnknown", err)
	}
	expectTitle(s, reading, "c", "d")
	expectTitle(s, third, "d", "e")
}
