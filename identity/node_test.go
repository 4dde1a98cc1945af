// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/identity"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, node := range map[string]bool{
		"a": true, "orders-1.example_x:7400": true, strings.Repeat("x", 128): true,
		"": false, strings.Repeat("x", 129): false, "a b": false, "a*": false, "a>": false, "ä": false, "a\x00": false, "a~b": false, "a#1": false,
	} {
		if err := identity.CheckName(name); (err == nil) != node || err != nil && !errors.Is(err, identity.ErrInvalid) {
			t.Errorf("CheckName(%q) = %v, want success: %t", name, err, node)
		}
	}
	for name, cluster := range map[string]bool{"bank_1-x": true, "a.b": false, "a:b": true, "": false} {
		if err := identity.CheckCluster(name); (err == nil) != cluster {
			t.Errorf("CheckCluster(%q) = %v, want success: %t", name, err, cluster)
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	a, err := identity.New("n")
	if err != nil {
		t.Fatal(err)
	}
	b, err := identity.New("n")
	if err != nil || a == b || a.UID == 0 || b.UID == 0 {
		t.Errorf("New returned %v and %v, %v; want different UIDs", a, b, err)
	}
	if _, err := identity.New("no name"); !errors.Is(err, identity.ErrInvalid) {
		t.Errorf("New of an invalid name: %v, want ErrInvalid", err)
	}
}

func TestNodeCompare(t *testing.T) {
	t.Parallel()
	want := []identity.Node{{Name: "a:10", UID: 9}, {Name: "a:9", UID: 1}, {Name: "a:9", UID: 1 << 63}, {Name: "b", UID: 1}}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, identity.Node.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("sorted: %v, want %v", got, want)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	want := identity.Node{Name: "orders-1:7400", UID: 0xdeadbeefcafe0123}
	if got, err := identity.Parse(want.String()); err != nil || got != want {
		t.Errorf("Parse(%v) = %v, %v, want the same node", want, got, err)
	}
	for _, s := range []string{"", "a", "a#", "a#0", "a#x", "a#01", "a#-1", "#1", "a b#1", "a#1#2", "a#10000000000000000"} {
		if got, err := identity.Parse(s); !errors.Is(err, identity.ErrInvalid) {
			t.Errorf("Parse(%q) = %v, %v, want ErrInvalid", s, got, err)
		}
	}
	if s := (identity.Node{}).String(); s != "nobody" {
		t.Errorf("String of the zero value = %q, want nobody", s)
	}
}
