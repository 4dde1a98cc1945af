// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/natstest"
)

// serve makes this binary a node.
const serve = "serve-a-node"

func TestMain(m *testing.M) {
	natstest.RunIfServer()
	if len(os.Args) > 1 && os.Args[1] == serve {
		log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
		if err := Serve(context.Background(), os.Stdin, os.Stdout, log, extension(log)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The tests mostly wait for time-outs, so more tests run in parallel than the machine has cores.
	flag.Parse()
	if !effort.Soak() {
		_ = flag.Set("test.parallel", "8")
	}
	goleak.VerifyTestMain(m)
}

// quick reports whether the test must be quick, because of -short. The tests of this package wait
// for time-outs of the failure detector. A quick run therefore starts no cluster.
func quick(t *testing.T) bool {
	t.Helper()
	if testing.Short() {
		t.Log("not run because of -short")
	}
	return testing.Short()
}
