// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/pgtest"
)

func TestMain(m *testing.M) {
	// The engine leaves a goroutine behind that ends half a minute after it was closed.
	pgtest.Main(m, goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}
