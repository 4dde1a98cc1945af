// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/eventsourcing/eventsourcingtest"
)

type (
	goldenState struct{ Names []string }

	named struct {
		Name string
		At   time.Time
	}
	tallied struct {
		Counts map[string]int
		Deep   [][]string
		Raw    []byte
		None   *named
	}
	number int
	left   struct{ Name string }
)

// goldenTest is a type with its samples, as they are in one release.
type goldenTest struct {
	dir     string
	entries []codec.Entry
	events  []any
	states  []*goldenState
	typ     eventsourcing.Type[goldenState, any]
	json    bool
	dropped []string
}

func firstRelease(t *testing.T) *goldenTest {
	t.Helper()
	return &goldenTest{
		dir:     t.TempDir(),
		entries: []codec.Entry{codec.Name[named]("named"), codec.Name[tallied]("tallied"), codec.Name[number]("num/ber")},
		events: []any{
			named{"ann", time.Unix(1_700_000_000, 0).UTC()},
			tallied{map[string]int{"b": 2, "a": 1}, [][]string{{"x"}, {}}, []byte{1, 255}, nil},
			number(7),
		},
		states: []*goldenState{{Names: []string{"ann"}}},
		typ: eventsourcing.Type[goldenState, any]{
			Name: "golden", Apply: func(*goldenState, any) {},
		},
	}
}

// run returns the failures.
func (g *goldenTest) run(t *testing.T, update bool) string {
	t.Helper()
	typ := g.typ
	if typ.Events = codec.Types(g.entries...); g.json {
		typ.Events = typ.Events.Using(codec.JSON())
	}
	return strings.Join(record(t, func(tb testing.TB) {
		eventsourcingtest.Golden(tb, typ, eventsourcingtest.GoldenConfig[goldenState, any]{
			Dir: g.dir, Update: update, Events: g.events, States: g.states, Dropped: g.dropped,
		})
	}), "\n")
}

// files returns the contents of the directory.
func (g *goldenTest) files(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(g.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(g.dir, path)
		files[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// passes checks that a run reports no error and changes no stored file.
func (g *goldenTest) passes(t *testing.T, update bool) {
	t.Helper()
	before := g.files(t)
	if failures := g.run(t, update); failures != "" {
		t.Fatalf("a run with update %t reports %s, want no failure", update, failures)
	}
	for name, was := range before {
		if now := g.files(t)[name]; now != was && (!update || strings.HasSuffix(name, ".stored")) {
			t.Errorf("%s was changed to\n%s", name, now)
		}
	}
}

// fails requires that a run without Update fails with each of these texts, and writes nothing.
func (g *goldenTest) fails(t *testing.T, wants ...string) {
	t.Helper()
	before := len(g.files(t))
	failures := g.run(t, false)
	for _, want := range wants {
		if !strings.Contains(failures, want) {
			t.Errorf("the failures are\n%s\nwant %q", failures, want)
		}
	}
	if n := len(g.files(t)); n != before {
		t.Errorf("the number of files changed from %d to %d", before, n)
	}
}

func TestGoldenFiles(t *testing.T) {
	t.Parallel()
	g := firstRelease(t)
	g.fails(t, "stored form that no file contains: named\n", "num%2Fber.stored")
	g.passes(t, true)
	g.passes(t, false)
	files := g.files(t)
	for name, want := range map[string]string{
		"events/named.stored":        "named\n82a44e616d65a3616e6ea24174d6ff6553f100\n",
		"events/named.decoded":       "named\n  At: 2023-11-14T22:13:20Z\n  Name: \"ann\"\n",
		"events/tallied.decoded":     "tallied\n  Counts:\n    a: 1\n    b: 2\n  Deep:\n    -\n      - \"x\"\n    - []\n  None: nil\n  Raw: 0x01ff\n",
		"events/num%2Fber.decoded":   "num/ber\n  7\n",
		"states/state.decoded":       "state\n  Names:\n    - \"ann\"\n",
		"states/state.stored":        "state\n81a54e616d657391a3616e6e\n",
		"events/deposited.not-there": "",
	} {
		if files[name] != want {
			t.Errorf("%s holds\n%s\nwant\n%s", name, files[name], want)
		}
	}
}

func TestGoldenNeedsSamples(t *testing.T) {
	t.Parallel()
	g := firstRelease(t)
	g.events, g.states = g.events[:1], nil
	g.fails(t, `the event "tallied" has no sample`, `the event "num/ber" has no sample`)
	g.events = append(g.events, left{})
	g.fails(t, "encode the sample")
	g.entries = append(g.entries, codec.Name[left]("named"))
	g.fails(t, "Type.Events: codec:")
}

// TestGoldenEvolution changes a type as releases do: stored samples remain, and a change that loses
// data is reported.
func TestGoldenEvolution(t *testing.T) {
	t.Parallel()
	g := firstRelease(t)
	g.passes(t, true)

	type retagged struct { // the stored names stay
		Title string `msgpack:"Name"`
		At    time.Time
	}
	g.entries[0], g.events[0] = codec.Name[retagged]("named"), retagged{"ann", time.Unix(1_700_000_000, 0).UTC()}
	g.passes(t, false)

	type extended struct {
		Name, Nick string
		At         time.Time
	}
	g.entries[0], g.events[0] = codec.Name[extended]("named"), extended{"ann", "a", time.Time{}}
	g.fails(t, "decodes to other values", "Nick: \"\"", "named.2.stored")
	g.passes(t, true)
	g.passes(t, false)

	g.entries[0] = codec.Removed("named")
	g.events = g.events[1:]
	g.fails(t, "other values than before:\nnothing\nwas\n")
	g.passes(t, true)

	g.entries = slices.Delete(g.entries, 0, 1)
	g.fails(t, "named.2.stored: codec: unknown manifest")
}

type (
	renamed struct {
		Title string
		At    time.Time
	}
	aliased struct {
		Title string `msgpack:"Title,alias:Name"`
		At    time.Time
	}
	nameless struct{ At time.Time }
	outer    struct{ In []named }
	outerNew struct{ In []aliased }
	sparse   struct {
		Name string    `msgpack:",omitempty"`
		At   time.Time `msgpack:",omitempty"`
	}
)

// TestGoldenDroppedFields checks that a stored name of a field cannot disappear unless the test lists
// it: a program of the previous release would read zero.
func TestGoldenDroppedFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after codec.Entry
		old, now      any
		json          bool
		wants         []string
		dropped       string
	}{
		"renamed": {
			before: codec.Name[named]("named"), old: named{Name: "ann"}, after: codec.Name[renamed]("named"), now: renamed{Title: "ann"},
			wants: []string{`named.stored: this release does not write the stored field "Name"`, `the tag msgpack:"Name"`, "docs/evolution.md", `"named.Name"`}, dropped: "named.Name",
		},
		"renamed, reads both names": {
			before: codec.Name[named]("named"), old: named{Name: "ann"}, after: codec.Name[aliased]("named"), now: aliased{Title: "ann"},
			wants: []string{"  Name: \"ann\"\nthis release writes it as", "  Title: \"ann\"\n"}, dropped: "named.Name",
		},
		"renamed, empty in the sample": {
			before: codec.Name[named]("named"), old: named{}, after: codec.Name[aliased]("named"), now: aliased{}, dropped: "named.Name",
		},
		"renamed in a list": {
			before: codec.Name[outer]("outer"), old: outer{[]named{{Name: "ann"}, {Name: "bob"}}}, after: codec.Name[outerNew]("outer"), now: outerNew{},
			wants: []string{`"In.Name"`, `the tag msgpack:"Name"`}, dropped: "outer.In.Name",
		},
		"removed": {
			before: codec.Name[named]("named"), old: named{Name: "ann"}, after: codec.Name[nameless]("named"), now: nameless{}, dropped: "named.Name",
		},
		"JSON": {
			json: true, before: codec.Name[named]("named"), old: named{Name: "ann"}, after: codec.Name[renamed]("named"), now: renamed{Title: "ann"},
			wants: []string{`the tag json:"Name"`}, dropped: "named+json.Name",
		},
		"empty fields left out":     {before: codec.Name[named]("named"), old: named{}, after: codec.Name[sparse]("named"), now: sparse{}},
		"fields with data left out": {before: codec.Name[named]("named"), old: named{Name: "ann"}, after: codec.Name[sparse]("named"), now: sparse{}},
		"another manifest": {
			before: codec.Name[named]("named"), old: named{Name: "ann"}, after: codec.Name[renamed]("titled").Was("named"), now: renamed{Title: "ann"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := firstRelease(t)
			g.json, g.states = c.json, nil
			g.entries, g.events = []codec.Entry{c.before}, []any{c.old}
			g.passes(t, true)
			g.entries, g.events = []codec.Entry{c.after}, []any{c.now}
			if c.dropped == "" {
				g.passes(t, true)
				return
			}
			g.fails(t, append(c.wants, "GoldenConfig.Dropped")...)
			before := g.files(t)
			if failures := g.run(t, true); !strings.Contains(failures, "GoldenConfig.Dropped") || !maps.Equal(g.files(t), before) {
				t.Errorf("with Update the failures are %q and the files %q, want the failure and unchanged files", failures, g.files(t))
			}
			g.dropped = []string{c.dropped}
			g.passes(t, true)
			g.passes(t, false)
		})
	}
}

// TestGoldenVersions checks that an older version needs a sample too.
func TestGoldenVersions(t *testing.T) {
	t.Parallel()
	g := firstRelease(t)
	g.entries = []codec.Entry{
		codec.Name[left]("named").Version(2),
		codec.Split("named", 1, func(old named) ([]any, error) { return []any{left{old.Name}, left{old.Name + "!"}}, nil }),
	}
	g.events = []any{left{"bob"}}
	g.states = nil
	if failures := g.run(t, true); !strings.Contains(failures, `the event "named" has no sample`) || !strings.Contains(failures, filepath.Join("events", "named.stored")) {
		t.Errorf("the failures are %s", failures)
	}
	path := filepath.Join(g.dir, "events", "named.stored")
	if err := os.WriteFile(path, []byte("named\n82a44e61 6d65a3616e6e\na24174d6ff6553f100\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.passes(t, true)
	g.passes(t, false)
	if got, want := g.files(t)["events/named.decoded"], "named@2\n  Name: \"ann\"\nnamed@2\n  Name: \"ann!\"\n"; got != want {
		t.Errorf("decoded %q, want %q", got, want)
	}
	if err := os.Remove(filepath.Join(g.dir, "events", "named.decoded")); err != nil {
		t.Fatal(err)
	}
	g.fails(t, "named.decoded is missing")
	for _, bad := range []string{"", "named\nxy\n", "\n82"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		g.fails(t, "is not a sample")
	}
}

// TestGoldenFormats checks how samples of other formats are printed.
func TestGoldenFormats(t *testing.T) {
	t.Parallel()
	g := firstRelease(t)
	g.json = true
	g.passes(t, true)
	g.passes(t, false)
	if got, want := g.files(t)["events/named+json.decoded"], "named+json\n  {\n    \"Name\": \"ann\",\n    \"At\": \"2023-11-14T22:13:20Z\"\n  }\n"; got != want {
		t.Errorf("decoded %q, want %q", got, want)
	}
}

// TestGoldenStates checks that a sample of a state with another Snapshots.Version is passed over, and
// that the messages about a changed state name that field.
func TestGoldenStates(t *testing.T) {
	t.Parallel()
	g := firstRelease(t)
	g.passes(t, true)
	decoded := filepath.Join(g.dir, "states", "state.decoded")
	text := g.files(t)["states/state.decoded"]
	if err := os.WriteFile(decoded, []byte("state\n  Names: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.fails(t, "other values than before", "increase Type.Snapshots.Version")
	if err := os.WriteFile(decoded, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	g.typ.Snapshots = eventsourcing.Snapshots[goldenState, any]{Every: 1, Version: 2}
	g.fails(t, "state@2.stored")
	g.passes(t, true)
	g.passes(t, false)
	g.typ.Snapshots.Version = 1 // after a rollback
	g.passes(t, false)

	form := func(name string) *eventsourcing.StateForm[goldenState] {
		return eventsourcing.StateAs(name, 1, func(s *goldenState) (goldenState, error) { return *s, nil },
			func(s *goldenState, form goldenState) error { *s = form; return nil })
	}
	g.typ.Snapshots.State = form("form")
	g.passes(t, true)
	g.typ.Snapshots.State = form("other")
	g.fails(t, "form.stored: codec: unknown manifest", "increase Type.Snapshots.Version")
}

// TestGoldenMode checks that other users can read the files, as the other files of a checkout.
func TestGoldenMode(t *testing.T) {
	t.Parallel()
	g := firstRelease(t)
	g.passes(t, true)
	usual := filepath.Join(t.TempDir(), "usual")
	if err := os.WriteFile(usual, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(usual)
	if err != nil {
		t.Fatal(err)
	}
	for name := range g.files(t) {
		if got, err := os.Stat(filepath.Join(g.dir, name)); err != nil || got.Mode() != want.Mode() {
			t.Errorf("%s: %v, error %v, want the mode %v", name, got, err, want.Mode())
		}
	}
}
