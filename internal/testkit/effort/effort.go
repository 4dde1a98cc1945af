// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package effort selects how much a test tries: how many seeds, kills or histories. The same test
// runs in three tiers: a few cases in make quick and under the race detector, the usual number in
// go test, and the full number in make soak.
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

// Count returns few with -short and under the race detector, full in make soak, and usual
// otherwise. It serves tests of code without concurrency, in which the race detector finds nothing
// more in further cases and makes each of them about ten times slower. Count must not be called
// before the flags are parsed.
func Count[N any](few, usual, full N) N {
	switch {
	case Soak():
		return full
	case testing.Short() || Race():
		return few
	}
	return usual
}
