// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package leveldb_test

// raceDetector reports whether the race detector is on.
const raceDetector = false
