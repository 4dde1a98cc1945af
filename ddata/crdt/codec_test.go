// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata/crdt"
)

// nodeA is a table of one node, "a" with the UID 1.
const nodeA = "\x01\x01a\x01\x00\x00\x00\x00\x00\x00\x00"

func TestDecodeRejects(t *testing.T) {
	t.Parallel()
	nodes := func(names ...string) string {
		s := string(rune(len(names)))
		for _, n := range names {
			s += string(rune(len(n))) + n + "\x01\x00\x00\x00\x00\x00\x00\x00"
		}
		return s
	}
	if _, err := (*crdt.Types)(nil).Decode([]byte("\x01\x01" + nodeA + "\x01\x00\x01\x05")); err != nil {
		t.Fatalf("decoding a valid counter: %v", err)
	}
	for subject, data := range map[string]string{
		"empty input":                       "",
		"another version":                   "\x02\x01" + nodeA + "\x01\x00\x01\x05",
		"a delta":                           "\x41\x01" + nodeA + "\x01\x00\x01\x05",
		"no type":                           "\x01\x00\x00",
		"an unknown type":                   "\x01\x0e\x00",
		"unknown elements":                  "\x01\x03\x07\x00\x00",
		"no elements' type":                 "\x01\x03\x00\x00\x00",
		"trailing bytes":                    "\x01\x01" + nodeA + "\x01\x00\x01\x05\x00",
		"an unused node":                    "\x01\x01" + nodeA + "\x00",
		"nodes out of order":                "\x01\x01" + nodes("b", "a") + "\x02\x00\x01\x05\x01\x01\x05",
		"a node twice":                      "\x01\x01" + nodes("a", "a") + "\x02\x00\x01\x05\x01\x01\x05",
		"an invalid name":                   "\x01\x01" + nodes("?") + "\x01\x00\x01\x05",
		"no UID":                            "\x01\x01\x01\x01a\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01\x05",
		"a node index beyond the table":     "\x01\x01" + nodeA + "\x01\x01\x01\x05",
		"a very large node index":           "\x01\x01" + nodeA + "\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01\x05",
		"a count of 0":                      "\x01\x01" + nodeA + "\x01\x00\x00",
		"a count with leading zeroes":       "\x01\x01" + nodeA + "\x01\x00\x02\x00\x05",
		"a long count":                      "\x01\x01" + nodeA + "\x01\x00\x81\x01" + strings.Repeat("x", 129),
		"counts out of order":               "\x01\x01" + nodes("a", "b") + "\x02\x01\x01\x05\x00\x01\x05",
		"more counts than bytes":            "\x01\x01" + nodeA + "\x90\x4e\x00\x01\x05",
		"more counts than MaxNodes":         "\x01\x01" + nodeA + "\x91\x4e\x00\x01\x05",
		"a number not in its shortest form": "\x01\x01" + nodeA + "\x81\x00\x00\x01\x05",
		"elements out of order":             "\x01\x03\x01\x00\x02\x02\x10b\x02\x10a",
		"an element twice":                  "\x01\x03\x01\x00\x02\x02\x10a\x02\x10a",
		"an empty element":                  "\x01\x03\x01\x00\x01\x00",
		"an int among strings":              "\x01\x03\x01\x00\x01\x01\x20",
		"an int with leading zeroes":        "\x01\x03\x02\x00\x01\x03\x22\x00\x01",
		"a negative int with leading ones":  "\x01\x03\x02\x00\x01\x03\x1e\xff\xfe",
		"an int below the minimum":          "\x01\x03\x02\x00\x01\x09\x18\x00\x00\x00\x00\x00\x00\x00\x00",
		"a long bool":                       "\x01\x03\x03\x00\x01\x02\x31\x00",
		"a float that is not a number":      "\x01\x03\x05\x00\x01\x09\x40\xff\xf8\x00\x00\x00\x00\x00\x00",
		"a negative 0":                      "\x01\x03\x05\x00\x01\x09\x40\x7f\xff\xff\xff\xff\xff\xff\xff",
		"an unknown tag":                    "\x01\x03\x06\x00\x01\x01\x60",
		"no name":                           "\x01\x03\x06\x00\x01\x02\x50\x00",
		"a name beyond the end":             "\x01\x03\x06\x00\x01\x03\x50\x05a",
		"a dot above the version":           "\x01\x04\x01" + nodeA + "\x01\x00\x01\x01\x02\x10a\x00\x02",
		"a version of 0":                    "\x01\x04\x01" + nodeA + "\x01\x00\x00\x00",
		"one dot as several":                "\x01\x04\x01" + nodeA + "\x01\x00\x01\x01\x02\x10a\x03\x00\x01",
		"a flag of 2":                       "\x01\x05\x00\x02",
		"a register without a node":         "\x01\x06\x01" + nodeA + "\x02\x10a\x02",
		"a counter map of sets":             "\x01\x0b\x01\x04\x01\x00\x00\x00",
		"an entry without key and value":    "\x01\x08\x01\x01" + nodeA + "\x01\x00\x01\x01\x02\x10a\x00\x00\x00",
		"a value without a key":             "\x01\x08\x01\x01" + nodeA + "\x01\x00\x01\x01\x02\x10a\x02\x01\x00\x01\x05",
		"types nested too deeply":           "\x01" + strings.Repeat("\x08\x01", 9) + "\x01\x00\x00\x00",
		"an element beyond the end":         "\x01\x03\x01\x00\x01\xff\xff\x3f\x10",
	} {
		v, err := (*crdt.Types)(nil).Decode([]byte(data))
		if !errors.Is(err, crdt.ErrMalformed) && !errors.Is(err, crdt.ErrLimit) {
			t.Errorf("%s: Decode returned %v, %v, want ErrMalformed or ErrLimit", subject, v, err)
		}
	}
	for subject, data := range map[string]string{
		"a value":                         "\x01\x01" + nodeA + "\x01\x00\x01\x05",
		"of a type without deltas":        "\x41\x05\x00\x01",
		"no steps":                        "\x41\x04\x01\x00\x00",
		"an unknown step":                 "\x41\x04\x01\x00\x01\x04\x00",
		"an addition without a dot":       "\x41\x04\x01\x00\x01\x01\x00\x01\x02\x10a\x01\x00",
		"an addition by another node":     "\x41\x04\x01" + nodeA + "\x01\x01\x01\x00\x01\x01\x02\x10a\x00\x02\x00",
		"a removal with an empty context": "\x41\x04\x01" + nodeA + "\x01\x02\x01\x00\x01\x02\x10a\x00",
		"a map without steps":             "\x41\x08\x01\x01\x00\x00",
		"an update of a register":         "\x41\x0c\x01\x06\x01" + nodeA + "\x01\x02\x01\x01\x01\x00\x01\x00\x00",
	} {
		if d, err := (*crdt.Types)(nil).DecodeDelta([]byte(data)); !errors.Is(err, crdt.ErrMalformed) {
			t.Errorf("delta, %s: DecodeDelta returned %v, %v, want ErrMalformed", subject, d, err)
		}
	}
	if _, err := (*crdt.Types)(nil).Decode(make([]byte, crdt.MaxSize+1)); !errors.Is(err, crdt.ErrLimit) {
		t.Errorf("more than MaxSize: got error %v, want ErrLimit", err)
	}
}

// Damaged bytes are rejected, or are the canonical form of another value.
func TestDamagedBytes(t *testing.T) {
	t.Parallel()
	types := allTypes(t)
	r := rand.New(rand.NewPCG(3, 4))
	for name, v := range samples(t) {
		data := []byte(bytesOf(v))
		for range 400 {
			bad := append([]byte(nil), data...)
			for range 1 + r.IntN(3) {
				bad[r.IntN(len(bad))] = byte(r.Uint32())
			}
			back, err := types.Decode(bad)
			switch {
			case err != nil && !isDecodeError(err):
				t.Errorf("%s: decoding %x: got error %v, want one that a decoder may return", name, bad, err)
			case err == nil && bytesOf(back) != string(bad):
				t.Errorf("%s: %x is encoded again as %x, want the same bytes", name, bad, bytesOf(back))
			}
		}
	}
}

// Equal values have equal bytes for any order of their operations and merges.
func TestEqualValuesHaveEqualBytes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	var parts []set
	for _, name := range []string{"a", "bb", "ccc", "dddd"} {
		parts = append(parts, add(set{}, self(t, name), name, "shared", name+"2"))
	}
	want := ""
	for range 20 {
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		var s set
		for _, p := range parts {
			s = must(s.Merge(p))
		}
		if want == "" {
			want = bytesOf(s)
		}
		if got := bytesOf(s); got != want {
			t.Fatalf("got %x, want %x", got, want)
		}
	}
}

// The size of a set is within the limit of the specification.
func TestGSetSize(t *testing.T) {
	t.Parallel()
	var g crdt.GSet[string]
	for i := range 10_000 {
		g = must(g.Add(string([]byte{byte('0' + i/1000), byte('0' + i/100%10), byte('0' + i/10%10), byte('0' + i%10), '5'})))
	}
	if n := len(bytesOf(g)); n > 80_000 {
		t.Errorf("a GSet of 10,000 strings of five bytes has %d bytes, want at most 80,000", n)
	}
}

var rewrite = flag.Bool("rewrite", false, "write the golden files that do not exist")

// product is an element that a registry names.
type product struct {
	Name  string
	Price int
}

// allTypes returns the types with all definitions of the tests.
func allTypes(tb testing.TB) *crdt.Types {
	tb.Helper()
	types, err := crdt.NewTypes(codec.Types(codec.Name[product]("product")),
		crdt.Define("two-phase-set", DecodeTwoPhaseSet), tallyDefinition())
	if err != nil {
		tb.Fatal(err)
	}
	return types
}

// samples returns values of each type that together use every form of encoding. Each value has a
// delta if its type has deltas.
func samples(tb testing.TB) map[string]crdt.Value {
	tb.Helper()
	types := allTypes(tb)
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
	types := allTypes(t)
	for name, v := range samples(t) {
		want := golden(t, name+".value", bytesOf(v))
		if got := bytesOf(v); got != want {
			t.Errorf("%s: got %x, want %x as in the golden file", name, got, want)
		}
		back, err := types.Decode([]byte(want))
		if err != nil || !crdt.Equal(back, v) || bytesOf(back) != want || back.Type() != v.Type() {
			t.Errorf("%s: decoded as %v, %v, want the sample", name, back, err)
		}
		d := v.Delta()
		if d.IsZero() {
			continue
		}
		want = golden(t, name+".delta", bytesOf(d))
		delta, err := types.DecodeDelta([]byte(want))
		if err != nil || bytesOf(d) != want || bytesOf(delta) != want || delta.Type() != v.Type() {
			t.Errorf("delta of %s: got %x, want %x as in the golden file; decoded %v, %v", name, bytesOf(d), want, delta, err)
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

// Each golden file has a sample. No test reads a file without a sample.
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
		t.Errorf("found %d golden files for %d samples, want at least %d", len(files), len(all), 2*len(all)-10)
	}
}

// An encoded delta begins with its type.
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
				t.Errorf("TakesDelta of %s, %s, for a delta of %s, %s: got %t, want true only for equal types", of, o.Type(), name, v.Type(), got)
			}
		}
		if v.TakesDelta([]byte(data[1:])) || v.TakesDelta([]byte(data[:1])) || v.TakesDelta([]byte(bytesOf(v))) {
			t.Errorf("%s: TakesDelta returned true for data that is not a delta", name)
		}
	}
}

// limited fails if f allocates more than a multiple of its input. It uses the lowest of several
// measurements, because other goroutines also allocate.
func limited(t *testing.T, input int, f func()) {
	t.Helper()
	limit := uint64(64*input + 1<<20)
	var least uint64
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if least = after.TotalAlloc - before.TotalAlloc; least <= limit {
			return
		}
	}
	t.Errorf("%d bytes of input: %d bytes allocated, want at most %d", input, least, limit)
}

// isDecodeError reports whether an error is one that a decoder may return.
func isDecodeError(err error) bool {
	return errors.Is(err, crdt.ErrMalformed) || errors.Is(err, crdt.ErrLimit) || errors.Is(err, crdt.ErrUndefined)
}

func FuzzDecode(f *testing.F) {
	types := allTypes(f)
	all := samples(f)
	for _, v := range all {
		f.Add([]byte(bytesOf(v)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var v crdt.Value
		var err error
		limited(t, len(data), func() { v, err = types.Decode(data) })
		if !bytes.Equal(data, before) {
			t.Error("the decoder modified its input")
		}
		if err != nil {
			if !isDecodeError(err) {
				t.Errorf("got error %v, want one that a decoder may return", err)
			}
			return
		}
		if got := bytesOf(v); got != string(data) {
			t.Fatalf("%x is encoded again as %x, want the same bytes", data, got)
		}
		// All methods accept any decoded value.
		if m, err := v.Merge(v); err != nil || m.Type() != v.Type() {
			t.Errorf("merge with itself: got error %v, want none", err)
		}
		for _, n := range v.ModifiedBy() {
			if _, err := v.Cleanup(n); err != nil {
				t.Errorf("Cleanup: got error %v, want none", err)
			}
			if p, err := v.Prune(self(t, "pruner"), n); err != nil || p.NeedsPruning(n) {
				t.Errorf("Prune: got error %v, want none and no history of the pruned node", err)
			}
		}
		for _, other := range all {
			if m, err := v.Merge(other); err == nil {
				_ = must(types.Decode([]byte(bytesOf(m))))
			} else if !errors.Is(err, crdt.ErrType) {
				t.Errorf("merge with a sample of another type: got error %v, want ErrType", err)
			}
		}
	})
}

// A type that is composed of others merges deltas of which some are zero.
func TestZeroDelta(t *testing.T) {
	t.Parallel()
	for _, v := range samples(t) {
		m, err := v.MergeDelta(crdt.Delta{})
		if err != nil || !crdt.Equal(m, v) || !m.Delta().IsZero() {
			t.Errorf("%s: MergeDelta of the zero Delta: error %v, want the value without a delta", v.Type(), err)
		}
	}
	var c crdt.GCounter
	if m, err := c.Add(self(t, "a"), 1).MergeDelta(crdt.Delta{}); err != nil || m.Value() != 1 {
		t.Errorf("GCounter.MergeDelta of the zero Delta: %v, error %v; want 1", m, err)
	}
}

func FuzzDecodeDelta(f *testing.F) {
	types := allTypes(f)
	all := samples(f)
	for _, v := range all {
		if d := v.Delta(); !d.IsZero() {
			f.Add([]byte(bytesOf(d)))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d crdt.Delta
		var err error
		limited(t, len(data), func() { d, err = types.DecodeDelta(data) })
		if err != nil {
			if !isDecodeError(err) {
				t.Errorf("got error %v, want one that a decoder may return", err)
			}
			return
		}
		if got := bytesOf(d); got != string(data) {
			t.Fatalf("%x is encoded again as %x, want the same bytes", data, got)
		}
		if _, err = d.Merge(d); err != nil {
			t.Errorf("merge with itself: got error %v, want none", err)
		}
		v, err := d.Zero().MergeDelta(d)
		if err != nil {
			t.Fatalf("MergeDelta of the empty value: got error %v, want none", err)
		}
		_ = must(types.Decode([]byte(bytesOf(v))))
		for _, other := range all {
			if m, err := other.MergeDelta(d); err == nil {
				_ = must(types.Decode([]byte(bytesOf(m))))
			} else if !errors.Is(err, crdt.ErrType) {
				t.Errorf("MergeDelta of a sample of another type: got error %v, want ErrType", err)
			}
		}
	})
}
