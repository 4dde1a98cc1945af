// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// A removal that comes before what it removes is known as such: the value would not remember it.
func TestBehind(t *testing.T) {
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
	var set crdt.ORSet[string]
	added, err := set.Add(a, "milk")
	if err != nil {
		t.Fatal(err)
	}
	added = added.ResetDelta()
	removed := value(added.Remove(b, "milk")).Delta()
	own, err := set.Add(b, "tea")
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
		{"what is removed has not come", value(set, nil), removed, true},
		{"what is removed is there", value(added, nil), removed, false},
		{"it was its own", value(set, nil), ownAll, false},
		{"all it has seen comes with it", value(set, nil), cleared, false},
		{"a key has not come", value(prices, nil), unpriced, true},
		{"a key is there", value(priced, nil), unpriced, false},
		{"an element in a map has not come", value(one, nil), untagged, true},
		{"an element in a map is there", value(two, nil), untagged, false},
		{"another type", value(prices, nil), removed, false},
		{"no delta", value(set, nil), crdt.Delta{}, false},
	} {
		if got := c.value.Behind(c.delta); got != c.want {
			t.Errorf("%s: behind %t, want %t", c.name, got, c.want)
		}
	}
}
