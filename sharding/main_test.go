// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/pgtest"
)

// LevelDB keeps a goroutine for some time after it is closed.
func TestMain(m *testing.M) {
	pgtest.Main(m, goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}
