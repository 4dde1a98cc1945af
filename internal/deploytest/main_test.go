// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package deploytest_test checks the files of deploy/ with the libraries of Kubernetes, kustomize and
// Compose, builds the bank as the Dockerfile does, and runs it as processes with the arguments,
// environments and probes of these files. It is a module of its own, so that these libraries stay out
// of the main go.sum.
package deploytest_test

import (
	"os"
	"testing"

	"github.com/refold-io/refold/internal/testkit/pgtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == guardArg {
		os.Exit(guard(os.Args[2:]))
	}
	pgtest.Main(m)
}
