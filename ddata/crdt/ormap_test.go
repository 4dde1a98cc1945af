// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"errors"
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
)

func count(m crdt.PNCounterMap[string], by *crdt.Self, key string, n int64) crdt.PNCounterMap[string] {
	return must(m.Add(by, key, n)).ResetDelta()
}

func bind(m sets, by *crdt.Self, key string, elements ...string) sets {
	return must(m.Add(by, key, elements...))
}

func unbind(m sets, by *crdt.Self, key string, elements ...string) sets {
	return must(m.RemoveElements(by, key, elements...))
}

func wantSets(t *testing.T, subject string, m sets, want string) {
	t.Helper()
	if got := showSets(m); got != want {
		t.Errorf("%s: got %s, want %s", subject, got, want)
	}
}

func TestORMap(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	type m = crdt.ORMap[string, crdt.GSet[string]]
	gset := func(elements ...string) crdt.GSet[string] { return must(crdt.GSet[string]{}.Add(elements...)) }
	base := must(m{}.Put(a, "k", gset("A"))).ResetDelta()
	atA, atB := must(base.Put(a, "k", gset("B"))), must(base.Put(b, "k", gset("C")))
	if v, _ := atA.Get("k"); list(v.Elements()) != "B" {
		t.Errorf("after Put: got %s, want B", list(v.Elements()))
	}
	v, found := must(atA.Merge(atB)).Get("k")
	if list(v.Elements()) != "B C" || !found {
		t.Errorf("after a merge: got %s, want B C", list(v.Elements()))
	}
	v, _ = must(base.MergeDelta(changes(atA))).Get("k")
	if list(v.Elements()) != "A B" {
		t.Errorf("after MergeDelta of a put: got %s, want A B", list(v.Elements()))
	}
	removed := must(base.Remove(b, "k", "never there"))
	if removed.Contains("k") || removed.Len() != 0 || must(atA.Merge(removed)).Len() != 1 || must(base.Merge(removed)).Len() != 0 {
		t.Error("the removed key exists, a concurrent put was lost, or a merge restored the key")
	}
	if _, found := removed.Get("k"); found {
		t.Error("Get found the removed key")
	}
	up := must(base.Update(a, "new", func(s crdt.GSet[string]) (crdt.GSet[string], error) { return s.Add("x") }))
	if keys := list(up.Keys()); keys != "k new" {
		t.Errorf("got keys %s, want k and new", keys)
	}
	broken := errors.New("broken")
	if _, err := base.Update(a, "k", func(s crdt.GSet[string]) (crdt.GSet[string], error) { return s, broken }); !errors.Is(err, broken) {
		t.Errorf("a failing update: got error %v, want the error of the function", err)
	}
}

func TestORMapRejectsPutOfSet(t *testing.T) {
	t.Parallel()
	a := self(t, "a")
	m := must(crdt.ORMap[int, set]{}.Put(a, 1, add(set{}, a, "x")))
	if _, err := m.Put(a, 1, set{}); !errors.Is(err, crdt.ErrReplace) {
		t.Errorf("Put of a set over a set: got error %v, want ErrReplace", err)
	}
	m = must(m.Update(a, 1, func(s set) (set, error) { return s.Remove(a, "x") }))
	if v, found := m.Get(1); !found || v.Len() != 0 {
		t.Error("Update did not change the set")
	}
}

func TestMapDeltaSteps(t *testing.T) {
	t.Parallel()
	a := self(t, "a")
	base := count(count(crdt.PNCounterMap[string]{}, a, "k", 1), a, "l", 1)
	plain := bind(sets{}, a, "k", "x").ResetDelta()
	deltas := bind(must(sets{}.WithValueDeltas()), a, "k", "x").ResetDelta()
	for name, tt := range map[string]struct {
		d    crdt.Delta
		want int
	}{
		"put, put, one key":               {changes(must(must(base.Add(a, "k", 1)).Add(a, "k", 1))), 1},
		"put, put, two keys":              {changes(must(must(base.Add(a, "k", 1)).Add(a, "l", 1))), 2},
		"put, remove":                     {changes(must(must(base.Add(a, "k", 1)).Remove(a, "k"))), 2},
		"remove, put":                     {changes(must(must(base.Remove(a, "k")).Add(a, "k", 1))), 2},
		"update, update, two keys, known": {changes(bind(bind(bind(deltas, a, "l", "x").ResetDelta(), a, "k", "y"), a, "l", "z")), 1},
		"put, update of the same key":     {changes(bind(bind(deltas, a, "new", "x"), a, "new", "y")), 1},
		"update, put of another key":      {changes(bind(bind(deltas, a, "k", "y"), a, "new", "x")), 2},
		"update, update, one key":         {changes(bind(bind(deltas, a, "k", "y"), a, "k", "z")), 1},
		"update, remove":                  {changes(must(deltas.Remove(a, "k"))), 2},
		"plain: remove":                   {changes(must(plain.Remove(a, "k"))), 1},
		"plain: remove the last element":  {changes(unbind(plain, a, "k", "x")), 2},
	} {
		if tt.d.Ops() != tt.want || !tt.d.NeedsCausal() {
			t.Errorf("%s: got %d operations, want %d", name, tt.d.Ops(), tt.want)
		}
	}
}

// The documented anomalies: if another node changes a removed counter, the whole count returns. A
// counter that is created again merges with the counts that other nodes still have.
func TestPNCounterMap(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	base := count(crdt.PNCounterMap[string]{}, a, "k", 3)
	other := count(base, b, "k", 4)
	removed := must(base.Remove(a, "k"))
	if m := must(removed.Merge(other)); m.Value("k") != 7 {
		t.Errorf("removed and changed concurrently: got %d, want 7", m.Value("k"))
	}
	renewed := count(removed.ResetDelta(), a, "k", 1)
	if renewed.Value("k") != 1 || must(renewed.Merge(base)).Value("k") != 3 {
		t.Errorf("removed and created again: got %d, merged %d, want 1 and 3", renewed.Value("k"), must(renewed.Merge(base)).Value("k"))
	}
	if m := must(base.Add(a, "zero", 0)); !m.Contains("zero") || m.Value("zero") != 0 || m.Len() != 2 {
		t.Error("adding 0 did not create the key")
	}
	if m := must(base.Add(a, "k", 0)); !m.Equal(base) {
		t.Error("adding 0 changed an existing key")
	}
	p := must(other.Prune(a, b.Node()))
	if p.Value("k") != 7 || p.NeedsPruning(b.Node()) {
		t.Errorf("pruned: got %d, want 7", p.Value("k"))
	}
	if m := must(p.Merge(must(other.Cleanup(b.Node())))); m.Value("k") != 7 || !m.Equal(p) {
		t.Errorf("pruned, merged with the cleaned up map: got %d, want 7", m.Value("k"))
	}
}

func TestLWWMap(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	type m = crdt.LWWMap[string, int]
	base := must(m{}.Put(a, "k", 1)).ResetDelta()
	put, removed := must(base.Put(b, "k", 2)), must(base.Remove(a, "k"))
	v, found, err := must(removed.Merge(put)).Get("k")
	if v != 2 || !found || err != nil {
		t.Errorf("a put concurrent with a removal: got %d, %t, %v, want 2, true and no error", v, found, err)
	}
	if _, found, err := must(base.Merge(removed)).Get("k"); found || err != nil {
		t.Errorf("after a removal: got %t, %v, want false and no error", found, err)
	}
	first := must(m{}.PutBy(a, "k", 1, crdt.ReverseClock[int])).ResetDelta()
	second := must(first.PutBy(a, "k", 2, crdt.ReverseClock[int]))
	if v, _, _ := must(first.Merge(second)).Get("k"); v != 1 {
		t.Errorf("with the reverse clock: got %d, want 1", v)
	}
	if got := entries(must(put.Put(b, "l", 5)).All(), func(v int) any { return v }); got != "k:2 l:5" {
		t.Errorf("All yields %s, want k:2 l:5", got)
	}
}

func TestORMultiMap(t *testing.T) {
	t.Parallel()
	a := self(t, "a")
	for name, m := range map[string]sets{"plain": {}, "value deltas": must(sets{}.WithValueDeltas())} {
		base := bind(m, a, "k", "x", "y")
		wantSets(t, name+", added", base, "k:{x y}")
		wantSets(t, name+", one element removed", unbind(base, a, "k", "x", "q"), "k:{y}")
		wantSets(t, name+", all elements removed", unbind(base, a, "k", "x", "y"), "")
		wantSets(t, name+", removed from a missing key", unbind(base, a, "l", "x"), "k:{x y}")
		wantSets(t, name+", put", must(base.Put(a, "k", "z")), "k:{z}")
		wantSets(t, name+", put without elements", must(base.Put(a, "k")), "k:{}")
		wantSets(t, name+", replaced", must(base.Replace(a, "k", "x", "z")), "k:{y z}")
		wantSets(t, name+", replaced by itself", must(base.Replace(a, "k", "x", "x")), "k:{x y}")
		wantSets(t, name+", only element replaced", must(bind(m, a, "k", "x").Replace(a, "k", "x", "z")), "k:{z}")
		wantSets(t, name+", removed", must(base.Remove(a, "k", "l")), "")
		wantSets(t, name+", removed and added again", bind(must(base.Remove(a, "k")), a, "k", "w"), "k:{w}")
		if s, found := base.Get("k"); !found || s.Len() != 2 || !base.Contains("k") || base.Len() != 1 || list(base.Keys()) != "k" {
			t.Errorf("%s: an existing key is not found", name)
		}
	}
}

// The variants differ if one node removes the last element while another adds one.
func TestORMultiMapVariants(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	for want, m := range map[string]sets{"k:{A B}": {}, "k:{B}": must(sets{}.WithValueDeltas())} {
		base := bind(m, a, "k", "A").ResetDelta()
		atA, atB := unbind(base, a, "k", "A"), bind(base, b, "k", "B")
		wantSets(t, "merged", must(atA.Merge(atB)), want)
		wantSets(t, "merged in reverse order", must(atB.Merge(atA)), want)
		wantSets(t, "by delta", must(atB.MergeDelta(changes(atA))), want)
	}
	plain, deltas := bind(sets{}, a, "k", "x"), bind(must(sets{}.WithValueDeltas()), a, "k", "x")
	if _, err := plain.Merge(deltas); !errors.Is(err, crdt.ErrType) {
		t.Errorf("merge of two variants: got error %v, want ErrType", err)
	}
	if _, err := plain.WithValueDeltas(); !errors.Is(err, crdt.ErrType) {
		t.Errorf("WithValueDeltas of a plain map with keys: got error %v, want ErrType", err)
	}
	if again := must(deltas.WithValueDeltas()); !again.Equal(deltas) {
		t.Error("a second WithValueDeltas changed the map")
	}
	back := must(crdt.As[sets](nil, must((*crdt.Types)(nil).Decode([]byte(bytesOf(deltas))))))
	if _, err := back.Merge(deltas); err != nil {
		t.Errorf("merge of a decoded map: got error %v, want no error", err)
	}
}

// Removing a key discards its set, so a later addition does not restore the set.
func TestORMultiMapDiscardsRemovedSets(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	old := bind(must(sets{}.WithValueDeltas()), b, "k", "old").ResetDelta()
	gone := must(old.Merge(must(old.Remove(a, "k")))) // a replicator also merges a change into the former value
	merged := must(gone.Merge(old))
	wantSets(t, "merged with an older value", merged, "")
	wantSets(t, "with the key added again", bind(merged, a, "k", "new"), "k:{new}")
}

func TestMapsOfMaps(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	type inner = crdt.PNCounterMap[string]
	type outer = crdt.ORMap[string, inner]
	bump := func(m outer, by *crdt.Self) outer {
		return must(m.Update(by, "k", func(i inner) (inner, error) { return i.Add(by, "l", 1) })).ResetDelta()
	}
	m := must(bump(outer{}, a).Merge(bump(outer{}, b)))
	v, _ := m.Get("k")
	if v.Value("l") != 2 {
		t.Errorf("got %d, want 2", v.Value("l"))
	}
	if got := value(m).Type(); got != "ORMap[string, PNCounterMap[string, PNCounter]]" {
		t.Errorf("got type %s, want ORMap[string, PNCounterMap[string, PNCounter]]", got)
	}
}
