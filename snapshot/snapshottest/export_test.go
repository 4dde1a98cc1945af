// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest

import "testing"

// Names returns the names of the checks that Run runs.
func Names(c Config) []string {
	claimed := claims(c)
	var names []string
	for _, each := range checks() {
		if claimed[each.needs] {
			names = append(names, each.name)
		}
	}
	return names
}

// RunOne runs one check by its name.
func RunOne(tb testing.TB, cfg Config, name string) {
	tb.Helper()
	for _, each := range checks() {
		if each.name == name {
			each.runOn(tb, cfg)
			return
		}
	}
	tb.Fatalf("there is no check %q", name)
}
