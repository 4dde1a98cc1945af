// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest

import (
	"bytes"
	"cmp"
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
	// Dir is where the samples are, in the directories "events" and "states". Defaults to
	// "testdata/golden".
	Dir string
	// Update adds what is missing to Dir. Usually it comes from a flag of the test.
	Update bool
	// Events are samples, at least one of each type of Type.Events. They must be the same in each
	// run.
	Events []E
	// States are samples of what snapshots hold; none if there are no snapshots. They must be the
	// same in each run.
	States []*S
	// ID is the entity's own ID for States. Defaults to "1".
	ID string
}

// Golden proves that everything that was ever stored can still be read, and still means the same.
// It keeps samples of the encoded events and states of each release in files, which are committed:
//
//	testdata/golden/events/deposited@2.stored    manifest and payload, as stored
//	testdata/golden/events/deposited@2.decoded   what that decodes to now
//
// Files with what is stored are added by a run with Update and never changed: they stand for what a
// journal holds. The others are rewritten by Update, so that a change of what old events decode to
// shows in a review. Without Update nothing is written, and the test fails when
//
//   - a sample no longer decodes, or decodes to something else;
//   - a type, or an older version that an Upcast or a Split reads, has no sample;
//   - an event is stored in another form than any sample of its type, as when a
//     field was added.
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
	events := golden{t: t, dir: filepath.Join(dir, "events"), update: cfg.Update, what: "event", field: "Events", registry: typ.Events}
	events.decode = func(manifest string, payload []byte) ([]encoded, error) {
		return decodeEvents[E](typ.Events, manifest, payload)
	}
	for _, e := range cfg.Events {
		manifest, payload, err := typ.Events.Encode(e)
		events.sample(e, manifest, payload, err)
	}
	events.run()

	states := golden{t: t, dir: filepath.Join(dir, "states"), update: cfg.Update, what: "state", field: "States", registry: typ.Snapshots.State.Registry()}
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

// decodeEvents decodes an event as a recovery does, and encodes what it has become.
func decodeEvents[E any](events *codec.Registry, manifest string, payload []byte) ([]encoded, error) {
	decoded, err := events.DecodeAppend(nil, manifest, payload)
	if err != nil {
		return nil, err
	}
	var all []encoded
	for _, v := range decoded {
		if _, ok := v.(E); !ok {
			return nil, fmt.Errorf("%w: %T is no event of this type", codec.ErrUnknown, v)
		}
		manifest, payload, err := events.Encode(v)
		if err != nil {
			return nil, err
		}
		all = append(all, encoded{manifest, payload})
	}
	return all, nil
}

// golden keeps the samples of one kind.
type golden struct {
	t           testing.TB
	dir         string
	update      bool
	what, field string
	registry    *codec.Registry
	decode      func(manifest string, payload []byte) ([]encoded, error)
	samples     []encoded
}

func (g *golden) sample(v any, manifest string, payload []byte, err error) {
	g.t.Helper()
	if err != nil {
		g.t.Errorf("the sample %T%+v can't be encoded: %v", v, v, err)
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
	for _, s := range g.samples {
		if known(files, s) {
			continue
		}
		path := freeGolden(g.dir, files, s.manifest)
		if !g.update {
			g.t.Errorf("a sample is stored in a form that no file has: %s\nRun the test with Update to add it as %s", s, path)
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
	if len(g.samples) == 0 && g.what == "state" {
		return
	}
	g.complete(files)
}

func known(files map[string]encoded, s encoded) bool {
	for _, f := range files {
		if f.manifest == s.manifest && bytes.Equal(f.payload, s.payload) {
			return true
		}
	}
	return false
}

// check compares what a sample decodes to with what it did.
func (g *golden) check(path string, s encoded) {
	g.t.Helper()
	decoded, err := g.decode(s.manifest, s.payload)
	if err != nil {
		g.t.Errorf("%s, which stands for what is stored, no longer decodes: %v", path, err)
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
		g.t.Errorf("%s: what is stored decodes to something else than before:\n%swas\n%sIf it has to, run the test with Update and commit the difference", path, now, was)
	default:
		if err := os.WriteFile(path, []byte(now), 0o600); err != nil {
			g.t.Fatalf("%v", err)
		}
		g.t.Logf("wrote %s", path)
	}
}

// complete requires that each manifest has a sample.
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
			g.t.Errorf("there is no sample of the %s %q: add one to GoldenConfig.%s and run the test with Update; or, if it is an older "+
				"version, put what was stored into %s: the manifest on a line and the payload in hex", g.what, manifest, g.field,
				freeGolden(g.dir, files, manifest))
		}
	}
}
