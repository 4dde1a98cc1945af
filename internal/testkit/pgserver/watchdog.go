// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// watch is run by a shell. It is told of each server that starts, by its process
// ID, and of each that has ended. When nobody is left to tell it, it stops
// the server that runs and removes its folder.
const watch = `
pid=
while read -r line; do
	case $line in
	done) exit 0 ;;
	-) pid= ;;
	*) pid=$line ;;
	esac
done
if [ -n "$pid" ]; then
	kill -QUIT "$pid" 2>/dev/null
	n=0
	while kill -0 "$pid" 2>/dev/null && [ $n -lt 100 ]; do
		sleep 0.1
		n=$((n + 1))
	done
	kill -KILL "$pid" 2>/dev/null
fi
rm -rf "$1"
`

// watchdog ends a server whose owner has died.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// newWatchdog starts one for the server in a folder.
func newWatchdog(ctx context.Context, dir string) (*watchdog, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", watch, "refold-pg-watchdog", dir) //nolint:gosec // a folder that was just made
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                                                     // out of reach of what a terminal sends to the tests
	cmd.Dir = "/"
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("pgserver: watchdog: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("pgserver: start the watchdog: %w", err)
	}
	return &watchdog{cmd, pipe}, nil
}

func (w *watchdog) tell(line string) error {
	if _, err := io.WriteString(w.pipe, line+"\n"); err != nil {
		return fmt.Errorf("pgserver: tell the watchdog: %w", err)
	}
	return nil
}

// started says which process is to be stopped.
func (w *watchdog) started(pid int) error { return w.tell(strconv.Itoa(pid)) }

// ended says that there is none.
func (w *watchdog) ended() error { return w.tell("-") }

// dismiss ends the watchdog; the folder is the caller's again.
func (w *watchdog) dismiss() error {
	err := errors.Join(w.tell("done"), w.pipe.Close())
	if waitErr := w.cmd.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("pgserver: watchdog: %w", waitErr))
	}
	return err
}
