// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

// GoldenConfig configures Golden.
type GoldenConfig[S, E any] struct {
	// Dir contains the samples in its directories "events" and "states". Defaults to
	// "testdata/golden".
	Dir string
	// Update adds missing samples to Dir. It is usually the value of a flag of the test.
	Update bool
	// Events are samples, at least one of each type of Type.Events. They must be the same in each
	// run.
	Events []E
	// States are samples of states in snapshots. They must be the same in each run. Leave it empty for
	// a type without snapshots.
	States []*S
	// ID is the entity's own ID for States. Defaults to "1".
	ID string
	// Dropped are the stored fields that this release does not write any more, as manifest and path:
	// "renamed.Title", "state.Address.Street". List a field only if no running program needs it, see
	// docs/evolution.md. Defaults to none.
	Dropped []string
}

// Golden checks that all data that releases have stored can still be read and has the same meaning.
// It keeps samples of the encoded events and states of each release in files, which are committed:
//
//	testdata/golden/events/deposited@2.stored    manifest and payload, as stored
//	testdata/golden/events/deposited@2.decoded   the values to which they decode
//
// A run with Update adds new samples and never changes a file with stored data. It rewrites the files
// with decoded values, so that a review shows a change of their meaning. A run without Update writes
// nothing. It fails if
//
//   - a sample does not decode, or decodes to other values than before. A sample of a state with another
//     Snapshots.Version is passed over, as recoveries do;
//   - this release writes a value of a sample without a field that the sample has, because the field was
//     renamed or removed. A program of the previous release, which runs until the end of a rolling
//     restart and again after a rollback, would read zero without an error. Update does not accept such
//     a change, see Dropped and docs/evolution.md;
//   - a type, or an older version that an Upcast or a Split reads, has no sample;
//   - an event has another stored form than all samples of its type, for example after a field was
//     added.
//
// For example:
//
//	var update = flag.Bool("update", false, "add golden files")
//
//	func TestGolden(t *testing.T) {
//		eventsourcingtest.Golden(t, AccountType(), eventsourcingtest.GoldenConfig[Account, Event]{
//			Update: *update,
//			Events: []Event{Opened{Owner: "ann"}, Deposited{Amount: 5}},
//		})
//	}
func Golden[S, E any](t testing.TB, typ eventsourcing.Type[S, E], cfg GoldenConfig[S, E]) {
	t.Helper()
	if err := typ.Events.Err(); err != nil {
		t.Fatalf("Type.Events: %v", err)
	}
	if err := typ.Snapshots.State.Registry().Err(); err != nil {
		t.Fatalf("Type.Snapshots.State: %v", err)
	}
	dir := cmp.Or(cfg.Dir, filepath.Join("testdata", "golden"))
	events := golden{t: t, dir: filepath.Join(dir, "events"), update: cfg.Update, kind: "event", field: "Events", registry: typ.Events, dropped: cfg.Dropped}
	events.decode = func(manifest string, payload []byte) ([]encoded, error) {
		return decodeEvents[E](typ.Events, manifest, payload)
	}
	for _, e := range cfg.Events {
		manifest, payload, err := typ.Events.Encode(e)
		events.sample(e, manifest, payload, err)
	}
	events.run()

	states := golden{
		t: t, dir: filepath.Join(dir, "states"), update: cfg.Update, kind: "state", field: "States",
		registry: typ.Snapshots.State.Registry(), dropped: cfg.Dropped,
		remedy: ". If states have another meaning, increase Type.Snapshots.Version: recoveries then ignore snapshots of other versions",
	}
	states.decode = func(manifest string, payload []byte) ([]encoded, error) {
		state, err := eventsourcing.DecodeState(typ, cmp.Or(cfg.ID, "1"), manifest, payload)
		if err != nil {
			return nil, err
		}
		manifest, payload, err = eventsourcing.EncodeState(typ, state)
		return []encoded{{manifest, payload}}, err
	}
	for _, s := range cfg.States {
		manifest, payload, err := eventsourcing.EncodeState(typ, s)
		states.sample(s, manifest, payload, err)
	}
	states.run()
}

// decodeEvents decodes an event as a recovery does, and encodes the results.
func decodeEvents[E any](events *codec.Registry, manifest string, payload []byte) ([]encoded, error) {
	decoded, err := events.DecodeAppend(nil, manifest, payload)
	if err != nil {
		return nil, err
	}
	var all []encoded
	for _, v := range decoded {
		if _, ok := v.(E); !ok {
			return nil, fmt.Errorf("%w: %T is not an event of this type", codec.ErrUnknown, v)
		}
		manifest, payload, err := events.Encode(v)
		if err != nil {
			return nil, err
		}
		all = append(all, encoded{manifest, payload})
	}
	return all, nil
}

type golden struct {
	t           testing.TB
	dir         string
	update      bool
	kind, field string
	registry    *codec.Registry
	decode      func(manifest string, payload []byte) ([]encoded, error)
	samples     []encoded
	dropped     []string
	remedy      string // added to the messages about changed samples
}

func (g *golden) sample(v any, manifest string, payload []byte, err error) {
	g.t.Helper()
	if err != nil {
		g.t.Errorf("encode the sample %T%+v: %v", v, v, err)
		return
	}
	g.samples = append(g.samples, encoded{manifest, payload})
}

func (g *golden) run() {
	g.t.Helper()
	files, err := readGolden(g.dir)
	if err != nil {
		g.t.Fatalf("read the samples: %v", err)
	}
	paths := slices.Sorted(maps.Keys(files))
	if lost := slices.DeleteFunc(paths, func(path string) bool { return g.keeps(path, files[path]) }); len(lost) > 0 {
		return // Update must not accept the change
	}
	for _, s := range g.samples {
		if slices.ContainsFunc(slices.Collect(maps.Values(files)), s.equal) {
			continue
		}
		path := freeGolden(g.dir, files, s.manifest)
		if !g.update {
			g.t.Errorf("a sample has a stored form that no file contains: %s\nRun the test with Update to add it as %s", s, path)
			continue
		}
		if err := writeGolden(path, s); err != nil {
			g.t.Fatalf("%v", err)
		}
		files[path] = s
		g.t.Logf("added %s", path)
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		g.check(path, files[path])
	}
	if len(g.samples) == 0 && g.kind == "state" {
		return
	}
	g.complete(files)
}

// keeps reports an error and returns false if this release writes the value of a sample without a
// field that the sample has. It does not compare values with other manifests, because programs that do
// not know them reject them.
func (g *golden) keeps(path string, s encoded) bool {
	g.t.Helper()
	decoded, err := g.decode(s.manifest, s.payload)
	if err != nil || len(decoded) != 1 || decoded[0].manifest != s.manifest {
		return true // check reports errors
	}
	was, now := s.value(), decoded[0].value()
	kept, tag := true, "msgpack"
	if _, format, other := strings.Cut(s.manifest, "+"); other {
		tag = format
	}
	for _, name := range slices.Compact(missing(was, now, "")) {
		if dropped := s.manifest + "." + name; !slices.Contains(g.dropped, dropped) {
			kept = false
			g.t.Errorf("%s: this release does not write the stored field %q any more. Programs of earlier releases that still run would read zero "+
				"for it, without an error. To rename only the field of the Go type, keep its stored name with the tag %s:%q. To stop writing "+
				"the field, follow docs/evolution.md and then add %q to GoldenConfig.Dropped%s\nthe sample is\n%sthis release writes it as\n%s",
				path, name, tag, name[strings.LastIndex(name, ".")+1:], dropped, g.remedy, s, decoded[0])
		}
	}
	return kept
}

// check compares the values to which a sample decodes with those in its file.
func (g *golden) check(path string, s encoded) {
	g.t.Helper()
	decoded, err := g.decode(s.manifest, s.payload)
	if errors.Is(err, eventsourcing.ErrSnapshotVersion) {
		return
	}
	if err != nil {
		g.t.Errorf("decode the stored sample %s: %v%s", path, err, g.remedy)
		return
	}
	path = strings.TrimSuffix(path, storedSuffix) + decodedSuffix
	now := "nothing\n"
	if len(decoded) > 0 {
		var b strings.Builder
		for _, d := range decoded {
			b.WriteString(d.String())
		}
		now = b.String()
	}
	was, err := os.ReadFile(path) //nolint:gosec // the test names it
	switch {
	case err == nil && string(was) == now:
	case err != nil && !os.IsNotExist(err):
		g.t.Errorf("%v", err)
	case !g.update && err != nil:
		g.t.Errorf("%s is missing: run the test with Update to add it", path)
	case !g.update:
		g.t.Errorf("%s: the stored sample decodes to other values than before:\n%swas\n%sIf the change is intended, run the test with Update and commit the difference%s", path, now, was, g.remedy)
	default:
		if err := os.WriteFile(path, []byte(now), goldenMode); err != nil {
			g.t.Fatalf("%v", err)
		}
		g.t.Logf("wrote %s", path)
	}
}

// complete reports an error for each manifest without a sample.
func (g *golden) complete(files map[string]encoded) {
	g.t.Helper()
	current := map[string]bool{}
	for _, s := range g.samples {
		current[s.manifest] = true
	}
	for manifest := range g.registry.Manifests() {
		has := false
		for _, f := range files {
			has = has || f.manifest == manifest
		}
		if !has && !current[manifest] {
			g.t.Errorf("the %s %q has no sample: add one to GoldenConfig.%s and run the test with Update; for an older version, write stored "+
				"data to %s: the manifest on a line and the payload in hex", g.kind, manifest, g.field,
				freeGolden(g.dir, files, manifest))
		}
	}
}
