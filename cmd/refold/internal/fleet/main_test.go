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

	"github.com/refold-io/refold/cmd/refold/internal/fleet"
	"github.com/refold-io/refold/internal/testkit/natstest"
)

// serve makes this binary a node.
const serve = "serve-a-node"

func TestMain(m *testing.M) {
	natstest.RunIfServer()
	if len(os.Args) > 1 && os.Args[1] == serve {
		log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
		if err := fleet.Serve(context.Background(), os.Stdin, os.Stdout, log); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The tests wait for time-outs most of the time: more of them run at a time than there are cores.
	flag.Parse()
	if !soaking() {
		_ = flag.Set("test.parallel", "8")
	}
	goleak.VerifyTestMain(m)
}

// soaking says that all tests run, and that times are held against their limits.
func soaking() bool { return os.Getenv("REFOLD_SOAK") != "" }
