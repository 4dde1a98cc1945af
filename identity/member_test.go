// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"cmp"
	"testing"

	"github.com/refold-io/refold/identity"
)

func TestVersionCompare(t *testing.T) {
	t.Parallel()
	// The versions of a line are equal. The lines are in ascending order.
	lines := [][]string{
		{"2020-09-07"},
		{"2b"},
		{"foo"},
		{"0.0.0", "0", "0.0"},
		{"1.0.0-M1"},
		{"1", "1.0", "1.0.0"},
		{"1.2.3-M1"},
		{"1.2.3-RC1"},
		{"1.2.3"},
		{"1.2.3+3-cf9b5f2a"},
		{"1.2.3+17-0a1b2c3d"},
		{"1.2.4"},
		{"1.10"},
		{"2.0.0-SNAPSHOT"},
		{"2"},
	}
	for i, line := range lines {
		for j, other := range lines {
			for _, a := range line {
				for _, b := range other {
					if got := parse(t, a).Compare(parse(t, b)); got != cmp.Compare(i, j) {
						t.Errorf("Compare(%s, %s) = %d, want %d", a, b, got, cmp.Compare(i, j))
					}
				}
			}
		}
	}
}

func parse(t *testing.T, s string) identity.Version {
	t.Helper()
	v, err := identity.ParseVersion(s)
	if err != nil || v.String() != s {
		t.Fatalf("ParseVersion(%q) = %q, %v, want the same text", s, v, err)
	}
	return v
}

func TestInvalidVersions(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "1.2.3.4", "1.x", "1..2", ".1", "1.2.x-M1", "1.-2"} {
		if v, err := identity.ParseVersion(s); err == nil {
			t.Errorf("ParseVersion(%q) = %v, want an error", s, v)
		}
	}
	if s := (identity.Version{}).String(); s != "0.0.0" {
		t.Errorf("String of the zero value = %q, want 0.0.0", s)
	}
}
