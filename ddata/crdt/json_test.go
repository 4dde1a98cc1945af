// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
)

// jsonSamples returns the samples of the encoded form, and values that need special treatment only
// in JSON.
func jsonSamples(t *testing.T) map[string]crdt.Value {
	t.Helper()
	a := self(t, "orders-1:7400")
	all := samples(t)
	for name, v := range map[string]any{
		"gset-text":      must(crdt.GSet[string]{}.Add("\"\\\n\x00\x7f", "é<&>", "no \xff text", "\u2028")),
		"gset-floats":    must(crdt.GSet[float64]{}.Add(0, -1.5, 1e300, math.Inf(1), math.Inf(-1), 3)),
		"gset-empty":     crdt.GSet[string]{},
		"ormap-no-text":  must(must(crdt.PNCounterMap[string]{}.Add(a, "a", 1)).Add(a, "\xff", 2)),
		"ormap-int-keys": must(must(crdt.PNCounterMap[int]{}.Add(a, 10, 1)).Add(a, 9, -2)),
		"ormap-any-keys": must(must(crdt.LWWMap[any, any]{}.Put(a, "1", "text")).Put(a, 1, true)),
		"ormap-empty":    crdt.LWWMap[string, string]{},
		"own-json":       grid{"[ 1,\n 2 ]"},
		"own-bad-json":   grid{"[1"},
		"own-panics":     grid{"panic"},
	} {
		types := allTypes(t)
		if strings.HasPrefix(name, "own") {
			types = must(crdt.NewTypes(nil, crdt.Define("grid", func(data []byte) (grid, error) { return grid{string(data)}, nil })))
		}
		all[name] = must(types.Value(v))
	}
	return all
}

// grid is a user's type with a JSON form, which may be invalid.
type grid struct{ text string }

func (g grid) Merge(grid) (grid, error)                { return g, nil }
func (g grid) AppendBinary(dst []byte) ([]byte, error) { return append(dst, g.text...), nil }

func (g grid) MarshalJSON() ([]byte, error) {
	if g.text == "panic" {
		panic("no")
	}
	return []byte(g.text), nil
}

// The golden file has a line for each sample.
func TestJSON(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	all := jsonSamples(t)
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		text := crdt.JSON{}.Append(nil, all[name])
		if !json.Valid(text) {
			t.Errorf("%s: invalid JSON: %s", name, text)
		}
		lines.WriteString(name + "\t" + string(text) + "\n")
	}
	path := filepath.Join("testdata", "json.golden")
	want, err := os.ReadFile(path)
	if *rewrite && errors.Is(err, os.ErrNotExist) {
		want, err = []byte(lines.String()), os.WriteFile(path, []byte(lines.String()), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := lines.String(); got != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestJSONOfOtherTypes(t *testing.T) {
	t.Parallel()
	if got := string(must(json.Marshal([]crdt.Value{{}, jsonSamples(t)["flag"]}))); got != "[null,true]" {
		t.Errorf("json.Marshal of a list: got %s, want [null,true]", got)
	}
	products := samples(t)["orset-products"]
	j := crdt.JSON{Named: func(manifest string, payload []byte) ([]byte, bool) {
		return []byte(`"` + strings.Repeat("x", len(payload)/100) + manifest + `"`), manifest == "product"
	}}
	if got := string(j.Append([]byte("it is "), products)); got != `it is [{"type":"product","value":"product"},{"type":"product","value":"product"}]` {
		t.Errorf("with a Named function: got %s, want the JSON of the function", got)
	}
	kinds := crdt.JSON{Named: func(string, []byte) ([]byte, bool) { return nil, false }}
	if got, want := string(kinds.Append(nil, products)), string(crdt.JSON{}.Append(nil, products)); got != want {
		t.Errorf("with a Named function that returns false: got %s, want %s", got, want)
	}
}

// Equal values have equal JSON, after decoding and after merges in any order.
func TestJSONIsDeterministic(t *testing.T) {
	t.Parallel()
	types := allTypes(t)
	a, b := self(t, "a"), self(t, "b")
	x, y := add(set{}, a, "1", "2"), add(set{}, b, "2", "3")
	xy, yx := must(types.Value(must(x.Merge(y)))), must(types.Value(must(y.Merge(x))))
	back := must(types.Decode([]byte(bytesOf(xy))))
	for _, v := range []crdt.Value{xy, yx, back} {
		if got := string(crdt.JSON{}.Append(nil, v)); got != `["1","2","3"]` {
			t.Errorf("got %s, want the elements 1, 2 and 3 in order", got)
		}
	}
}
