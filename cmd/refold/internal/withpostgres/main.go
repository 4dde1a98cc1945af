// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command withpostgres runs another command with a private PostgreSQL server. The server and its
// data are removed when the command ends:
//
//	go run ./cmd/refold/internal/withpostgres bin/bank apply FILE --journal postgres:
//
// REFOLD_POSTGRES holds the address of the server for the command. The exit status is that of the
// command, or 125 if the server failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/cmd/refold/operator/pgjournal"
	"github.com/refold-io/refold/internal/testkit/pgserver"
)

// exitNoServer is the exit status after a failure of the server; the command may not have run.
const exitNoServer = 125

func main() {
	// The command also receives the interrupt, and decides how to end.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "withpostgres:", operator.Redact(err.Error()))
		status = exitNoServer
	}
	os.Exit(status)
}

func run(ctx context.Context, args []string) (status int, err error) {
	if len(args) == 0 {
		return 0, errors.New("no command: withpostgres COMMAND ARGUMENT")
	}
	server, err := pgserver.Start(ctx, pgserver.Config{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Close()) }() //nolint:contextcheck // Close does not depend on ctx
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)     //nolint:gosec // the caller chooses the command
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), pgjournal.Env+"="+server.DSN("postgres"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}
