// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// follows checks DeltaIsComplete of a value that was changed, and of one that was merged with
// another value before.
func follows[T crdt.Data[T]](t *testing.T, types *crdt.Types, change func(v T, n int) (T, error)) {
	t.Helper()
	untyped := func(v T) crdt.Value { return must(types.Value(v)) }
	older := untyped(must(change(must(crdt.As[T](types, crdt.Value{})), 1))).ResetDelta()
	base := must(crdt.As[T](types, older))
	other := must(crdt.As[T](types, untyped(must(change(must(crdt.As[T](types, crdt.Value{})), 2))).ResetDelta()))
	once := must(change(base, 3))
	if !untyped(once).DeltaIsComplete(older) || !untyped(must(change(once, 4))).DeltaIsComplete(older) {
		t.Errorf("%v: DeltaIsComplete is false after changes", older.Type())
	}
	merged := must(change(must(base.Merge(other)), 3))
	if v := untyped(merged); v.Delta().IsZero() || v.DeltaIsComplete(older) {
		t.Errorf("%v: DeltaIsComplete is true after a merge", older.Type())
	}
	reset := must(crdt.As[T](types, untyped(once).ResetDelta()))
	if untyped(must(change(reset, 4))).DeltaIsComplete(older) {
		t.Errorf("%v: DeltaIsComplete is true although a change precedes the delta", older.Type())
	}
	if older.DeltaIsComplete(older) || older.DeltaIsComplete(crdt.Value{}) {
		t.Errorf("%v: DeltaIsComplete is true without a change", older.Type())
	}
}

func TestDeltaIsComplete(t *testing.T) {
	t.Parallel()
	a, b, c := self(t, "a"), self(t, "b"), self(t, "c")
	selves := []*crdt.Self{nil, a, b, c, self(t, "d")}
	types := allTypes(t)
	follows(t, nil, func(v crdt.GCounter, n int) (crdt.GCounter, error) { return v.Add(selves[n], 1), nil })
	follows(t, nil, func(v crdt.PNCounter, n int) (crdt.PNCounter, error) { return v.Add(selves[n], -1), nil })
	follows(t, nil, func(v crdt.GSet[int], n int) (crdt.GSet[int], error) { return v.Add(n) })
	follows(t, nil, func(v crdt.ORSet[int], n int) (crdt.ORSet[int], error) { return v.Add(selves[n], n) })
	follows(t, nil, func(v crdt.ORMultiMap[int, int], n int) (crdt.ORMultiMap[int, int], error) {
		return v.Add(selves[n], n, n)
	})
	follows(t, nil, func(v crdt.PNCounterMap[int], n int) (crdt.PNCounterMap[int], error) { return v.Add(selves[n], n, 1) })
	follows(t, types, func(v Tally, n int) (Tally, error) { return v.Add(selves[n], 1), nil })
	if v := must(types.Value(Tally{})); !v.HasCustomType() {
		t.Error("HasCustomType is false for a user's type")
	}
	inMap := must(must(crdt.With(types, crdt.ORMap[string, crdt.ORMap[string, Tally]]{})).Update(a, "k", func(m crdt.ORMap[string, Tally]) (crdt.ORMap[string, Tally], error) { return m, nil }))
	if v := must(types.Value(inMap)); !v.HasCustomType() {
		t.Error("HasCustomType is false for a map of a user's type")
	}
	if v := must(types.Value(crdt.ORMap[string, crdt.GCounter]{})); v.HasCustomType() {
		t.Error("HasCustomType is true for a map of counters")
	}
}

type (
	m1 = crdt.ORMap[string, crdt.GSet[string]]
	m2 = crdt.ORMap[string, m1]
	m3 = crdt.ORMap[string, m2]
	m4 = crdt.ORMap[string, m3]
	m5 = crdt.ORMap[string, m4]
	m6 = crdt.ORMap[string, m5]
	m7 = crdt.ORMap[string, m6]
	m8 = crdt.ORMap[string, m7]
)

// Nested types can be encoded and decoded.
func TestDepth(t *testing.T) {
	t.Parallel()
	var types *crdt.Types
	seven := must(m7{}.Put(self(t, "a"), "k", m6{}))
	if _, err := types.Decode(must(seven.AppendBinary(nil))); err != nil {
		t.Errorf("8 levels: got error %v, want no error", err)
	}
	eight := must(m8{}.Put(self(t, "a"), "k", m7{}))
	if _, err := eight.AppendBinary(nil); !errors.Is(err, crdt.ErrLimit) {
		t.Errorf("9 levels: got error %v, want ErrLimit", err)
	}
	d, _ := eight.Delta()
	if _, err := d.AppendBinary(nil); !errors.Is(err, crdt.ErrLimit) {
		t.Errorf("a delta of 9 levels: got error %v, want ErrLimit", err)
	}
}

// FullScans counts the sets that a delta clears, including sets in maps.
func TestFullScans(t *testing.T) {
	t.Parallel()
	a := self(t, "a")
	one := must(crdt.ORSet[string]{}.Add(a, "x"))
	cleared := func(n int) (d crdt.Delta) {
		for range n {
			next, _ := one.ResetDelta().Clear().Delta()
			d = must(d.Merge(next))
		}
		return d
	}
	if n := cleared(7).FullScans(); n != 7 {
		t.Errorf("got %d full scans of a set, want 7", n)
	}
	removed, _ := must(one.ResetDelta().Remove(a, "x")).Delta()
	if n := removed.FullScans() + (crdt.Delta{}).FullScans(); n != 0 {
		t.Errorf("got %d full scans for a removal and the zero delta, want 0", n)
	}
	m := must(crdt.ORMultiMap[string, string]{}.WithValueDeltas())
	for i := range 3 {
		m = must(m.Add(a, fmt.Sprint(i), "x"))
	}
	m = m.ResetDelta()
	for i := range 3 {
		m = must(m.Put(a, fmt.Sprint(i), "y"))
	}
	d, _ := m.Delta()
	if d.Ops() != 1 || d.FullScans() != 1 { // the sets of different keys have different elements
		t.Errorf("got %d operations, %d full scans of a map, want 1 and 1", d.Ops(), d.FullScans())
	}
	m = m.ResetDelta()
	for i := range 3 {
		m = must(m.Remove(a, fmt.Sprint(i)))
	}
	if d, _ := m.Delta(); d.FullScans() != 3 {
		t.Errorf("got %d operations, %d full scans of a map, want 3 scans", d.Ops(), d.FullScans())
	}
}

// NeedsFullState detects a removal that arrives before the addition. A merge would lose such a
// removal.
func TestNeedsFullState(t *testing.T) {
	t.Parallel()
	self := func(name string) *crdt.Self {
		s, err := crdt.NewSelf(identity.Node{Name: name, UID: 1})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := self("a"), self("b")
	value := func(v any, err error) crdt.Value {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var u crdt.Value
		switch v := v.(type) {
		case crdt.ORSet[string]:
			u, err = (*crdt.Types)(nil).Value(v)
		case crdt.LWWMap[string, string]:
			u, err = (*crdt.Types)(nil).Value(v)
		case crdt.ORMultiMap[string, string]:
			u, err = (*crdt.Types)(nil).Value(v)
		}
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	var empty crdt.ORSet[string]
	added, err := empty.Add(a, "milk")
	if err != nil {
		t.Fatal(err)
	}
	added = added.ResetDelta()
	removed := value(added.Remove(b, "milk")).Delta()
	own, err := empty.Add(b, "tea")
	if err != nil {
		t.Fatal(err)
	}
	own, err = own.Remove(b, "tea")
	ownAll := value(own, err).Delta()
	cleared := value(added.Clear(), nil).Delta()

	var prices crdt.LWWMap[string, string]
	priced, err := prices.Put(a, "milk", "1")
	if err != nil {
		t.Fatal(err)
	}
	priced = priced.ResetDelta()
	unpriced := value(priced.Remove(b, "milk")).Delta()

	tags, err := crdt.ORMultiMap[string, string]{}.WithValueDeltas()
	if err != nil {
		t.Fatal(err)
	}
	one, err := tags.Add(a, "milk", "white")
	if err != nil {
		t.Fatal(err)
	}
	one = one.ResetDelta()
	two, err := one.Add(a, "milk", "cold")
	if err != nil {
		t.Fatal(err)
	}
	two = two.ResetDelta()
	untagged := value(two.RemoveElements(b, "milk", "cold")).Delta()

	for _, c := range []struct {
		name  string
		value crdt.Value
		delta crdt.Delta
		want  bool
	}{
		{"the removed addition is missing", value(empty, nil), removed, true},
		{"the removed addition is present", value(added, nil), removed, false},
		{"the removed addition is from the same node", value(empty, nil), ownAll, false},
		{"the delta contains the addition", value(empty, nil), cleared, false},
		{"a key is missing", value(prices, nil), unpriced, true},
		{"a key is present", value(priced, nil), unpriced, false},
		{"an element in a map is missing", value(one, nil), untagged, true},
		{"an element in a map is present", value(two, nil), untagged, false},
		{"another type", value(prices, nil), removed, false},
		{"no delta", value(empty, nil), crdt.Delta{}, false},
	} {
		if got := c.value.NeedsFullState(c.delta); got != c.want {
			t.Errorf("%s: NeedsFullState returns %t, want %t", c.name, got, c.want)
		}
	}
}

// ModifiedOnlyBy returns false if another Self has made a change.
func TestModifiedOnlyBy(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "b")
	for subject, change := range map[string]func(self *crdt.Self) (any, error){
		"GCounter":  func(s *crdt.Self) (any, error) { return crdt.GCounter{}.Add(s, 1), nil },
		"PNCounter": func(s *crdt.Self) (any, error) { return crdt.PNCounter{}.Add(s, -1), nil },
		"ORSet":     func(s *crdt.Self) (any, error) { return crdt.ORSet[string]{}.Add(s, "x") },
		"PNCounterMap": func(s *crdt.Self) (any, error) {
			return crdt.PNCounterMap[string]{}.Add(s, "x", 1)
		},
		"LWWMap": func(s *crdt.Self) (any, error) { return crdt.LWWMap[string, int]{}.Put(s, "x", 1) },
		"ORMultiMap": func(s *crdt.Self) (any, error) {
			return crdt.ORMultiMap[string, string]{}.Add(s, "x", "y")
		},
	} {
		if d := value(must(change(a))).Delta(); d.IsZero() || !d.ModifiedOnlyBy(a.Node()) || d.ModifiedOnlyBy(b.Node()) {
			t.Errorf("%s: ModifiedOnlyBy returned %t for a and %t for b, want true and false", subject, d.ModifiedOnlyBy(a.Node()), d.ModifiedOnlyBy(b.Node()))
		}
	}
	cleared := must(crdt.ORSet[string]{}.Add(a, "x")).ResetDelta().Clear()
	for subject, d := range map[string]crdt.Delta{"none": {}, "clear": value(cleared).Delta()} {
		if !d.ModifiedOnlyBy(b.Node()) {
			t.Errorf("%s: ModifiedOnlyBy returned false, want true", subject)
		}
	}
}

// The type of the zero Value is empty.
func TestZeroValueType(t *testing.T) {
	t.Parallel()
	if got := (crdt.Value{}).Type(); got != "" {
		t.Errorf("got %q, want an empty type", got)
	}
}
