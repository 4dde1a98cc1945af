// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/internal/testkit/pgtest"
)

// program is the first argument of this binary when it runs as the bank instead of the tests.
const program = "be-the-bank"

// A goroutine of goleveldb ends 30 s after the database is closed.
func TestMain(m *testing.M) {
	natstest.RunIfServer()
	if len(os.Args) > 1 && os.Args[1] == program {
		os.Exit(beTheBank(os.Args[2:]))
	}
	// Many tests only wait for servers and time-outs. Therefore four of them run at a time, even on
	// a machine with fewer cores. Soak runs use the value of -parallel.
	flag.Parse()
	if !effort.Soak() {
		_ = flag.Set("test.parallel", "4")
	}
	pgtest.Main(m, goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}

// beTheBank is main, but the process also ends when the test process has ended for any reason.
func beTheBank(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(exitFailed)
	}()
	return run(ctx, args, strings.NewReader(""), os.Stdout, os.Stderr)
}
