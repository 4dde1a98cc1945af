// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/cmd/refold/operator/pgjournal"
	"github.com/refold-io/refold/internal/testkit/pgtest"
)

// asProgram is the first argument that makes this binary a Program with the other arguments.
const asProgram = "run-as-refold"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asProgram {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		os.Exit(operator.Program{Databases: []operator.Database{pgjournal.Database()}}.Main())
	}
	// A goroutine of goleveldb ends 30 s after the database is closed.
	pgtest.Main(m, goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}
