// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package effort selects the effort of a test: the number of seeds, kills or histories. The same
// test runs in three tiers: a few cases in make quick and under the race detector, the usual number
// in go test, and all cases in make soak.
package effort

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"
)

// Soak reports whether tests run at their full counts, as make soak requests with REFOLD_SOAK.
func Soak() bool { return os.Getenv("REFOLD_SOAK") != "" }

// Race reports whether the test binary was built with the race detector.
func Race() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// Count returns few with -short and under the race detector, and usual otherwise. In make soak it
// returns usual under the race detector and full without it. Use it for tests of code without
// concurrency: in such tests the race detector makes each case about ten times slower, and further
// cases show no further races. Call Count only after the flags are parsed.
func Count[N any](few, usual, full N) N {
	switch soak, race := Soak(), Race(); {
	case soak && !race:
		return full
	case soak, !race && !testing.Short():
		return usual
	}
	return few
}
