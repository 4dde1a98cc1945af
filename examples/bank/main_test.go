// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testpg"
)

// A goroutine of goleveldb ends by itself some 30 s after the database is closed.
func TestMain(m *testing.M) {
	testpg.Main(m, goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}
