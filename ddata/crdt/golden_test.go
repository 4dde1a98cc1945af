// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"encoding/hex"
	"flag"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata/crdt"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files that do not exist")

// product is an element that a registry names.
type product struct {
	Name  string
	Price int
}

// knows returns types with all that the tests define.
func knows(tb testing.TB) *crdt.Types {
	tb.Helper()
	types, err := crdt.NewTypes(codec.Types(codec.Name[product]("product")),
		crdt.Define("two-phase-set", DecodeTwoPhaseSet), tallyDefinition())
	if err != nil {
		tb.Fatal(err)
	}
	return types
}

// samples returns a value of each type, with everything that is encoded in a way of
// its own. Each has a delta, if the type has some.
func samples(tb testing.TB) map[string]crdt.Value {
	tb.Helper()
	types := knows(tb)
	a, b := self(tb, "orders-1:7400"), self(tb, "orders-22:7400")
	s := add(add(set{}, a, "x", "y", ""), b, "x", "zebra")
	s = must(s.Merge(add(set{}, self(tb, "c"), "x")))
	s = add(remove(add(s, b, "x", "w"), b, "y"), b, "v")
	products := must(crdt.With(types, crdt.ORSet[product]{}))
	kinds := must(crdt.With(types, crdt.GSet[any]{}))
	kinds = must(kinds.Add("text", 0, 1, -1, math.MaxInt64, math.MinInt64, uint64(math.MaxUint64), 255, 256, -255, -256,
		true, false, 0.5, -0.5, math.Inf(1), []byte{0, 1}, product{"tea", 3}))
	var own crdt.ORMap[string, TwoPhaseSet]
	own = must(crdt.With(types, own))
	own = must(own.Update(a, "k", func(s TwoPhaseSet) (TwoPhaseSet, error) { return s.Add("e") }))
	deltas := must(must(crdt.ORMultiMap[int, string]{}.WithValueDeltas()).Add(a, 7, "x"))
	deltas = must(must(must(deltas.Add(a, 7, "y")).Add(b, -8, "z", "zz")).Remove(a, 7))
	lww := must(must(crdt.LWWMap[string, string]{}.Put(a, "k", "v")).Put(b, "l", "w"))
	nested := must(crdt.ORMap[int, crdt.ORMap[string, crdt.GSet[int]]]{}.Update(a, 5, func(m crdt.ORMap[string, crdt.GSet[int]]) (crdt.ORMap[string, crdt.GSet[int]], error) {
		return m.Update(b, "in", func(s crdt.GSet[int]) (crdt.GSet[int], error) { return s.Add(1, 2) })
	}))
	list := map[string]any{
		"gcounter":            must(crdt.GCounter{}.Add(a, 5).Add(b, 1<<40).AddBig(b, new(big.Int).Lsh(big.NewInt(3), 100))),
		"gcounter-empty":      crdt.GCounter{},
		"pncounter":           crdt.PNCounter{}.Add(a, 7).Add(b, -300).Add(a, -1),
		"gset":                must(crdt.GSet[string]{}.Add("b", "a")),
		"gset-kinds":          kinds,
		"orset":               s,
		"orset-cleared":       add(s.Clear(), a, "after"),
		"orset-products":      must(products.Add(a, product{"milk", 2}, product{"tea", 3})),
		"orset-cleaned-up":    must(s.Cleanup(a.Node())),
		"flag":                crdt.Flag{}.Enable(),
		"flag-off":            crdt.Flag{},
		"lwwregister":         must(crdt.LWWRegister[string]{}.Set(a, "value")),
		"lwwregister-reverse": must(crdt.LWWRegister[int]{}.SetBy(a, -5, crdt.ReverseClock[int])),
		"lwwregister-empty":   crdt.LWWRegister[bool]{},
		"versionvector":       crdt.VersionVector{}.Increment(a).Increment(b),
		"ormap":               must(must(own.Remove(a, "k")).Put(b, "l", TwoPhaseSet{})),
		"ormap-nested":        nested,
		"ormultimap":          must(must(crdt.ORMultiMap[string, int]{}.Add(a, "k", 1, 2)).Put(b, "empty")),
		"ormultimap-deltas":   deltas,
		"ormultimap-update":   must(must(must(crdt.ORMultiMap[string, int]{}.WithValueDeltas()).Add(a, "k", 1)).ResetDelta().Add(b, "k", 2)),
		"pncountermap":        must(must(crdt.PNCounterMap[string]{}.Add(a, "k", 3)).Add(b, "l", -4)),
		"lwwmap":              must(lww.Remove(a, "k")),
		"own":                 must(must(TwoPhaseSet{}.Add("x")).Remove("y")),
		"own-deltas":          Tally{}.Add(a, 3),
	}
	values := make(map[string]crdt.Value, len(list))
	for name, v := range list {
		values[name] = must(types.Value(v))
	}
	return values
}

// The encoded form never changes: golden files are added, never rewritten.
func TestGolden(t *testing.T) {
	t.Parallel()
	types := knows(t)
	for name, v := range samples(t) {
		want := golden(t, name+".value", bytesOf(v))
		if got := bytesOf(v); got != want {
			t.Errorf("%s: now %x, was %x", name, got, want)
		}
		back, err := types.Decode([]byte(want))
		if err != nil || !crdt.Equal(back, v) || bytesOf(back) != want || back.Type() != v.Type() {
			t.Errorf("%s: decoded as %v, %v", name, back, err)
		}
		d := v.Delta()
		if d.IsZero() {
			continue
		}
		want = golden(t, name+".delta", bytesOf(d))
		delta, err := types.DecodeDelta([]byte(want))
		if err != nil || bytesOf(d) != want || bytesOf(delta) != want || delta.Type() != v.Type() {
			t.Errorf("delta of %s: now %x, was %x, decoded %v, %v", name, bytesOf(d), want, delta, err)
		}
	}
}

func golden(t *testing.T, name, data string) string {
	t.Helper()
	path := filepath.Join("testdata", "v1", name)
	text, err := os.ReadFile(path)
	if *rewrite && os.IsNotExist(err) {
		text = []byte(hex.EncodeToString([]byte(data)) + "\n")
		if err = os.MkdirAll(filepath.Dir(path), 0o750); err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return string(want)
}

// A golden file without a sample would be read by nothing.
func TestGoldenFilesHaveSamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "v1", "*"))
	if err != nil {
		t.Fatal(err)
	}
	all := samples(t)
	for _, file := range files {
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		if _, found := all[name]; !found {
			t.Errorf("%s has no sample", file)
		}
	}
	if len(files) < 2*len(all)-10 {
		t.Errorf("%d golden files for %d samples", len(files), len(all))
	}
}

// A delta says which type it belongs to before all else.
func TestTakesDelta(t *testing.T) {
	t.Parallel()
	all := samples(t)
	for name, v := range all {
		d := v.Delta()
		if d.IsZero() {
			continue
		}
		data := bytesOf(d)
		for of, o := range all {
			if got := o.TakesDelta([]byte(data)); got != (o.Type() == v.Type()) {
				t.Errorf("%s, %s, takes a delta of %s, %s: %t", of, o.Type(), name, v.Type(), got)
			}
		}
		if v.TakesDelta([]byte(data[1:])) || v.TakesDelta([]byte(data[:1])) || v.TakesDelta([]byte(bytesOf(v))) {
			t.Errorf("%s takes what is no delta", name)
		}
	}
}
