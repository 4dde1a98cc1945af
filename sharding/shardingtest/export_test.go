// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardingtest

import "testing"

// Names returns the names of all checks.
func Names() []string {
	var all []string
	for _, c := range checks() {
		all = append(all, c.name)
	}
	return all
}

// RunOne runs one check.
func RunOne(tb testing.TB, cfg Config, name string) {
	tb.Helper()
	for _, c := range checks() {
		if c.name == name {
			c.on(tb, cfg)
			return
		}
	}
	tb.Fatalf("no check %s", name)
}
