// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOutput checks the output of the example.
func TestOutput(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out, 3*time.Minute, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"cart: 1 milk, 2 tea\n", "cart: 3 bread, 1 milk, 2 tea\n", "cart: 3 bread, 1 milk\n", "cart: 3 bread, 1 milk, 1 tea\n",
		"cart: 3 bread, 1 butter, 1 milk, 1 tea\n", "unknown, because no majority replied",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	// If the machine is so busy that the test takes half a minute, shop-2 is no longer a member.
	alone := regexp.MustCompile(`add 1 jam                ddata: update "cart-ann": not enough replicas: 1 of 2 required, (3 in total, no answer from shop-1, shop-2|2 in total, no answer from shop-1): `)
	if !alone.MatchString(out.String()) {
		t.Errorf("no line matches %v in\n%s", alone, out.String())
	}
}

// TestQuantities checks that the quantities in a cart are correct for any order of removals and
// additions.
func TestQuantities(t *testing.T) {
	t.Parallel()
	known, err := types()
	if err != nil {
		t.Fatal(err)
	}
	a, b := actor(t, "a"), actor(t, "b")
	cart, err := crdt.With(known, contents{})
	if err != nil {
		t.Fatal(err)
	}
	add := func(c contents, self *crdt.Self, request string, quantity int64) contents {
		return must(t)(c.Add(self, Addition{request, "tea", quantity}))
	}
	two := add(cart, a, "r1", 2)
	for subject, c := range map[string]struct {
		left, right contents
		want        int64
	}{
		"one cart has missed a removal and an addition": {add(must(t)(without(two, a, "tea")), a, "r2", 1), two, 1},
		"a removal and an addition at once":             {must(t)(without(two, a, "tea")), add(two, b, "r2", 1), 1},
		"two removals at once":                          {must(t)(without(two, a, "tea")), add(must(t)(without(two, b, "tea")), b, "r2", 1), 1},
		"two additions at once":                         {add(two, a, "r2", 1), add(two, b, "r3", 1), 4},
		"one request at two nodes":                      {add(two, a, "r2", 1), add(two, b, "r2", 1), 3},
	} {
		for _, merged := range []contents{must(t)(c.left.Merge(c.right)), must(t)(c.right.Merge(c.left))} {
			items, err := itemsOf(merged)
			if err != nil || len(items) != 1 || items[0] != (Item{"tea", c.want}) {
				t.Errorf("%s: got %v, %v, want %d tea", subject, items, err, c.want)
			}
		}
	}
}

func actor(t *testing.T, name string) *crdt.Self {
	t.Helper()
	n, err := identity.New(name)
	if err != nil {
		t.Fatal(err)
	}
	self, err := crdt.NewSelf(n)
	if err != nil {
		t.Fatal(err)
	}
	return self
}

func must(t *testing.T) func(contents, error) contents {
	t.Helper()
	return func(c contents, err error) contents {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}
