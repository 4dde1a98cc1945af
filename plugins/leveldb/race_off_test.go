// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package leveldb_test

// raceDetector says that the race detector is on.
const raceDetector = false

// stride is how many changes of the files lie between two of those that go
// wrong.
const stride = 1
