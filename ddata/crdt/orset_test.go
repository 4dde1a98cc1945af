// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
)

type set = crdt.ORSet[string]

func add(s set, by *crdt.Self, elements ...string) set { return must(s.Add(by, elements...)) }

func remove(s set, by *crdt.Self, elements ...string) set { return must(s.Remove(by, elements...)) }

// changes returns the delta of a value.
func changes(v interface{ Delta() (crdt.Delta, bool) }) crdt.Delta {
	d, _ := v.Delta()
	return d
}

func wantSet(t *testing.T, subject string, s set, want string) {
	t.Helper()
	if got := list(s.Elements()); got != want {
		t.Errorf("%s: got elements %q, want %q", subject, got, want)
	}
	if s.Len() != len(strings.Fields(want)) {
		t.Errorf("%s: Len returned %d, want the number of elements", subject, s.Len())
	}
	for e := range strings.FieldsSeq(want) {
		if !s.Contains(e) {
			t.Errorf("%s: Contains is false for %q", subject, e)
		}
	}
}

func TestORSetAddsAndRemoves(t *testing.T) {
	t.Parallel()
	a := self(t, "a")
	var s set
	s = add(s, a, "x", "z", "y")
	wantSet(t, "three", s, "x y z")
	wantSet(t, "without a missing element", remove(s, a, "q"), "x y z")
	wantSet(t, "without y", remove(s, a, "y"), "x z")
	wantSet(t, "the earlier value", s, "x y z")
	wantSet(t, "cleared", s.Clear(), "")
	wantSet(t, "cleared and filled", add(s.Clear(), a, "w"), "w")
}

func TestORSetMerge(t *testing.T) {
	t.Parallel()
	a, b, c := self(t, "a"), self(t, "b"), self(t, "c")
	both := add(set{}, a, "x", "y").ResetDelta()
	for name, tt := range map[string]struct {
		left, right set
		want        string
	}{
		"union":                           {add(set{}, a, "x"), add(set{}, b, "y"), "x y"},
		"a removal that was seen":         {both, remove(both, b, "x"), "y"},
		"a removal against an addition":   {add(both, a, "x"), remove(both, b, "x"), "x y"},
		"a removal of an unseen addition": {add(set{}, a, "x"), remove(add(set{}, b, "x"), b, "x"), "x"},
		"clear against an addition":       {add(both, c, "z"), both.Clear(), "z"},
		"both remove":                     {remove(both, a, "x"), remove(both, b, "x"), "y"},
		"a removal of two additions against a third": {
			remove(must(add(both, a, "z").Merge(add(both, b, "z"))), a, "z"), add(both, b, "z"), "x y z",
		},
	} {
		wantSet(t, name, must(tt.left.Merge(tt.right)), tt.want)
		wantSet(t, name+", in reverse order", must(tt.right.Merge(tt.left)), tt.want)
	}
}

// Two nodes remove an element. Each of them has seen the addition of only one node. Together the
// removals remove both additions, as deltas and as values.
func TestORSetRemovalIsCausal(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "b")
	atA, atB := add(set{}, a, "x").ResetDelta(), add(set{}, b, "x").ResetDelta()
	both := must(atA.Merge(atB))
	removedA, removedB := remove(atA, a, "x"), remove(atB, b, "x")
	s := must(both.MergeDelta(changes(removedA)))
	wantSet(t, "after one removal", s, "x")
	s = must(s.MergeDelta(changes(removedB)))
	wantSet(t, "after both", s, "")
	if full := must(must(both.Merge(removedA)).Merge(removedB)); !full.Equal(s) {
		t.Errorf("by values: %x, by deltas: %x, want equal bytes", bytesOf(full), bytesOf(s))
	}
}

// An addition replaces the additions that its node had seen. The new addition also replaces them on other nodes.
func TestORSetAdditionReplaces(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "b")
	atA := add(set{}, a, "x").ResetDelta()
	atB := add(atA, b, "x")
	byDelta := must(atA.MergeDelta(changes(atB)))
	if !byDelta.Equal(atB) || !byDelta.Equal(must(atA.Merge(atB))) {
		t.Errorf("by delta %x, by value %x, want equal bytes", bytesOf(byDelta), bytesOf(atB))
	}
	// A removal by b therefore removes the element on all nodes.
	wantSet(t, "removed by b", must(byDelta.MergeDelta(changes(remove(atB.ResetDelta(), b, "x")))), "")
}

func TestORSetDeltas(t *testing.T) {
	t.Parallel()
	a := self(t, "a")
	s := add(set{}, a, "k").ResetDelta()
	for name, tt := range map[string]struct {
		s   set
		ops int
	}{
		"additions are one step":    {add(add(s, a, "x"), a, "y", "z"), 1},
		"a removal":                 {remove(s, a, "k"), 1},
		"two removals":              {remove(add(s, a, "x").ResetDelta(), a, "k", "x"), 2},
		"added, removed, added":     {add(remove(add(s, a, "x"), a, "k"), a, "y", "z"), 3},
		"clear":                     {s.Clear(), 1},
		"clear and add, add":        {add(s.Clear(), a, "x", "y"), 2},
		"no change":                 {s, 0},
		"removed a missing element": {remove(s, a, "q"), 0},
		"no elements":               {add(s, a), 0},
	} {
		d, some := tt.s.Delta()
		if some != (tt.ops > 0) {
			t.Errorf("%s: Delta returned %t, want %t", name, some, tt.ops > 0)
		}
		if !some {
			continue
		}
		if d.Ops() != tt.ops || !d.NeedsCausal() || d.Type() != "ORSet[string]" {
			t.Errorf("%s: got %d operations of a %s, causal %t, want %d operations of a causal ORSet[string]", name, d.Ops(), d.Type(), d.NeedsCausal(), tt.ops)
		}
	}
	if d := changes(add(s.ResetDelta(), a, "x").ResetDelta()); !d.IsZero() {
		t.Error("there is a delta after ResetDelta")
	}
	if d := changes(must(s.Merge(add(set{}, self(t, "bb"), "y")))); !d.IsZero() {
		t.Error("there is a delta after Merge")
	}
}

// The delta of one addition to a large set is small.
func TestORSetDeltaIsSmall(t *testing.T) {
	t.Parallel()
	var s set
	for _, name := range []string{"a", "bb", "ccc", "orders-1.example.org:7400"} {
		by := self(t, name)
		for i := range 2_500 {
			s = add(s, by, name+strings.Repeat("x", i%50)+string(rune('0'+i%10))+string(rune('a'+i/10%26))+string(rune('a'+i/260)))
		}
	}
	s = s.ResetDelta()
	by := self(t, "orders-1.example.org:7400")
	for range 2_500 {
		s = remove(add(s, by, "t"), by, "t").ResetDelta()
	}
	if n := len(bytesOf(changes(add(s, by, "an element")))); n > 300 {
		t.Errorf("a delta of one addition to %d elements has %d bytes, want at most 300", s.Len(), n)
	}
}

func TestGSet(t *testing.T) {
	t.Parallel()
	var s crdt.GSet[int]
	s = must(s.Add(300, -1, 2, -300, 0, 1<<40))
	if got := list(s.Elements()); got != "-300 -1 0 2 300 1099511627776" {
		t.Errorf("got elements %s, want the numbers in order", got)
	}
	if d := changes(must(s.ResetDelta().Add(2))); !d.IsZero() {
		t.Error("adding an existing element produced a delta")
	}
	d := changes(must(s.ResetDelta().Add(2, 7)))
	if other := must(crdt.GSet[int]{}.MergeDelta(d)); list(other.Elements()) != "7" || d.NeedsCausal() || d.Ops() != 0 {
		t.Errorf("the delta contains %s, want 7", list(other.Elements()))
	}
	if len(s.ModifiedBy()) > 0 || !s.Contains(-300) || s.Contains(3) {
		t.Error("the set has history of nodes, lacks -300, or contains 3")
	}
}

func TestORSetPruning(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	s := add(add(set{}, a, "x"), b, "y", "z")
	if got := s.ModifiedBy(); len(got) != 2 || got[0] != a.Node() || got[1] != b.Node() {
		t.Errorf("ModifiedBy returned %v, want a and b", got)
	}
	p := must(s.Prune(a, b.Node()))
	wantSet(t, "pruned", p, "x y z")
	if p.NeedsPruning(b.Node()) || !s.NeedsPruning(b.Node()) {
		t.Error("the pruned set still has history of b, or the original set has none")
	}
	c := must(s.Cleanup(b.Node()))
	wantSet(t, "cleaned up", c, "x y z")
	wantSet(t, "cleaned up, merged with the pruned one", must(c.Merge(p)), "x y z")
	wantSet(t, "merged with another cleaned up set", must(c.Merge(must(s.Cleanup(b.Node())))), "x y z")
	removed := remove(p, a, "y")
	wantSet(t, "merged with a later removal", must(c.Merge(removed)), "x z")
	if !must(p.Merge(c)).Equal(p) {
		t.Error("merging the cleaned up set changed the pruned set")
	}
}

func TestElementErrors(t *testing.T) {
	t.Parallel()
	a := self(t, "a")
	type unnamed struct{ X int }
	if _, err := (crdt.ORSet[unnamed]{}).Add(a, unnamed{}); !errors.Is(err, crdt.ErrElement) || !strings.Contains(err.Error(), "Config.Types") {
		t.Errorf("an unregistered type: got error %v, want ErrElement", err)
	}
	if _, err := (crdt.ORSet[any]{}).Add(a, nil); !errors.Is(err, crdt.ErrElement) {
		t.Errorf("nil: got error %v, want ErrElement", err)
	}
	if _, err := (set{}).Add(a, strings.Repeat("x", crdt.MaxElement)); !errors.Is(err, crdt.ErrLimit) {
		t.Errorf("an element above the limit: got error %v, want ErrLimit", err)
	}
	wide := must(crdt.ORSet[int]{}.Add(a, 300))
	narrow, err := crdt.As[crdt.ORSet[int8]](nil, value(wide))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := narrow.Elements(); !errors.Is(err, crdt.ErrElement) {
		t.Errorf("300 as an int8: got error %v, want ErrElement", err)
	}
	if _, err := crdt.As[crdt.ORSet[string]](nil, value(wide)); !errors.Is(err, crdt.ErrType) {
		t.Errorf("ints as strings: got error %v, want ErrType", err)
	}
}

// Sets store long elements like short ones.
func TestLongElements(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	a := self(t, "a")
	model := map[string]bool{}
	var s set
	for range 3_000 {
		n := r.IntN(300)
		e := fmt.Sprint("element-", n, strings.Repeat("x", n%7*n*3))
		if r.IntN(3) == 0 {
			s = must(s.Remove(a, e)).ResetDelta()
			delete(model, e)
		} else {
			s = add(s, a, e).ResetDelta()
			model[e] = true
		}
		if s.Len() != len(model) || s.Contains(e) != model[e] {
			t.Fatalf("got %d elements, want %d; Contains(%.20s) is %t", s.Len(), len(model), e, s.Contains(e))
		}
	}
	want := make([]string, 0, len(model))
	for e := range model {
		want = append(want, e)
	}
	slices.Sort(want)
	if got := must(s.Elements()); !slices.Equal(got, want) {
		t.Errorf("got %d elements, want %d", len(got), len(want))
	}
	data := []byte(bytesOf(s))
	other := must(crdt.As[set](nil, must((*crdt.Types)(nil).Decode(data))))
	if got := must(other.Elements()); !slices.Equal(got, want) || bytesOf(other) != string(data) {
		t.Errorf("decoded %d elements, want %d", len(got), len(want))
	}
	for _, e := range want {
		other = must(other.Remove(a, e)).ResetDelta()
	}
	if other.Len() != 0 {
		t.Errorf("%d elements remain, want 0", other.Len())
	}
}

// After any changes, a set has the same elements as a Go map, in order. Earlier values do not
// change.
func TestORSetAgainstAMap(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	a := self(t, "a")
	model := make(map[int]bool)
	var s crdt.ORSet[int]
	type former struct {
		set   crdt.ORSet[int]
		bytes string
	}
	var formers []former
	for i := range 6_000 {
		if i%100 == 0 {
			formers = append(formers, former{s, bytesOf(s)})
		}
		e := r.IntN(1_500) - 750
		if r.IntN(5) < 2 {
			s = must(s.Remove(a, e)).ResetDelta()
			delete(model, e)
		} else {
			s = must(s.Add(a, e)).ResetDelta()
			model[e] = true
		}
		if s.Len() != len(model) || s.Contains(e) != model[e] {
			t.Fatalf("got %d elements, want %d; Contains(%d) is %t", s.Len(), len(model), e, s.Contains(e))
		}
	}
	last := -1 << 40
	for e, err := range s.All() {
		if err != nil || e <= last || !model[e] {
			t.Fatalf("got %d after %d, %v, want ascending elements of the set", e, last, err)
		}
		last = e
	}
	for len(model) > 0 {
		for e := range model {
			s = must(s.Remove(a, e)).ResetDelta()
			delete(model, e)
			break
		}
	}
	if s.Len() != 0 || list(s.Elements()) != "" {
		t.Errorf("remaining elements: %s, want none", list(s.Elements()))
	}
	for i, f := range formers {
		if got := bytesOf(f.set); got != f.bytes {
			t.Fatalf("the value of step %d changed from %x to %x", i*100, f.bytes, got)
		}
	}
}

// A removal may arrive before the addition that it removes. Such a removal does not hide other additions of the same node. A full merge repairs the set.
func TestORSetRemovalBeforeAddition(t *testing.T) {
	t.Parallel()
	a, b, c := self(t, "a"), self(t, "bb"), self(t, "ccc")
	atB := add(set{}, b, "x").ResetDelta()
	later := changes(add(set{}, b, "z"))
	w := add(set{}, a, "w")
	removal := remove(must(w.Merge(atB)), a, "x")
	atC := must(add(set{}, c, "v").MergeDelta(changes(w)))
	atC = must(atC.MergeDelta(changes(removal)))
	atC = must(atC.Merge(atB))
	wantSet(t, "before the full merge", atC, "v w x")
	atC = must(atC.MergeDelta(later))
	wantSet(t, "after a later addition", atC, "v w x z")
	wantSet(t, "after the full merge", must(atC.Merge(removal)), "v w z")
}

func TestTypeMismatch(t *testing.T) {
	t.Parallel()
	a := self(t, "a")
	values := []crdt.Value{
		value(crdt.GCounter{}.Add(a, 1)),
		value(crdt.PNCounter{}.Add(a, 1)),
		value(crdt.Flag{}.Enable()),
		value(crdt.VersionVector{}.Increment(a)),
		value(must(crdt.GSet[string]{}.Add("x"))),
		value(must(crdt.GSet[int]{}.Add(1))),
		value(add(set{}, a, "x")),
		value(must(crdt.ORSet[int]{}.Add(a, 1))),
		value(must(crdt.LWWRegister[int]{}.Set(a, 1))),
		value(must(crdt.LWWRegister[string]{}.Set(a, "x"))),
		value(must(crdt.LWWMap[string, int]{}.Put(a, "k", 1))),
		value(must(crdt.LWWMap[string, bool]{}.Put(a, "k", true))),
		value(must(crdt.PNCounterMap[string]{}.Add(a, "k", 1))),
		value(must(crdt.PNCounterMap[int]{}.Add(a, 1, 1))),
		value(bind(sets{}, a, "k", "x")),
		value(bind(must(sets{}.WithValueDeltas()), a, "k", "x")),
		value(must(crdt.ORMap[string, crdt.PNCounter]{}.Put(a, "k", crdt.PNCounter{}))),
		value(must(crdt.ORMap[string, crdt.GCounter]{}.Put(a, "k", crdt.GCounter{}))),
	}
	for i, x := range values {
		for j, y := range values {
			if i == j {
				continue
			}
			if _, err := x.Merge(y); !errors.Is(err, crdt.ErrType) {
				t.Errorf("%s merged with %s: got error %v, want ErrType", x.Type(), y.Type(), err)
			}
			if d := y.Delta(); !d.IsZero() {
				if _, err := x.MergeDelta(d); !errors.Is(err, crdt.ErrType) {
					t.Errorf("%s with a delta of %s: got error %v, want ErrType", x.Type(), d.Type(), err)
				}
				if e := x.Delta(); !e.IsZero() {
					if _, err := e.Merge(d); !errors.Is(err, crdt.ErrType) {
						t.Errorf("a delta of %s with a delta of %s: got error %v, want ErrType", e.Type(), d.Type(), err)
					}
				}
			}
			if crdt.Equal(x, y) {
				t.Errorf("Equal returned true for a %s and a %s", x.Type(), y.Type())
			}
		}
		if merged, err := x.MergeDelta(crdt.Delta{}); err != nil || !crdt.Equal(x, merged) {
			t.Errorf("%s with the zero delta: got %v and error %v, want no change", x.Type(), merged, err)
		}
		if _, err := x.Merge(crdt.Value{}); !errors.Is(err, crdt.ErrType) {
			t.Errorf("%s merged with the zero value: got error %v, want ErrType", x.Type(), err)
		}
	}
}
