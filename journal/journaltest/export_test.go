// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import "testing"

// Names returns the names of all checks.
func Names() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// RunOne runs one check by its name.
func RunOne(tb testing.TB, cfg Config, name string) {
	tb.Helper()
	for _, c := range checks() {
		if c.name == name {
			c.run(newFixture(tb, cfg.withDefaults()))
			return
		}
	}
	tb.Fatalf("there is no check %q", name)
}
