// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgserver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is how often something is looked at that can't be waited for.
const tick = 5 * time.Millisecond

// process is one life of the server.
type process struct {
	pid    int
	exited chan struct{} // closed when it has ended
}

// command prepares a program of the server's, run by its account.
func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // what the developer installed
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.account}
	return cmd
}

// launch starts the server and waits until it takes connections.
func (s *Server) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.StartTimeout, fmt.Errorf("not ready after %v", s.cfg.StartTimeout))
	defer cancel()
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("pgserver: open the log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the server has a handle of its own
	postgres := filepath.Join(s.bin, "postgres")
	cmd := s.command(context.WithoutCancel(ctx), postgres, "-D", s.data())
	if s.cfg.MaxFileSize > 0 {
		limit := strconv.FormatInt(s.cfg.MaxFileSize/512, 10)
		cmd = s.command(context.WithoutCancel(ctx), "/bin/sh", "-c", `ulimit -f "$0" && exec "$@"`, limit, postgres, "-D", s.data())
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("pgserver: start: %w", err)
	}
	p := &process{pid: cmd.Process.Pid, exited: make(chan struct{})}
	go func() { // ends with the server, for which Close waits
		defer close(p.exited)
		_ = cmd.Wait() // how it ended stands in its log
	}()
	s.process = p
	if err := s.watchdog.started(p.pid); err != nil {
		return err
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for !s.ready(p.pid) {
		select {
		case <-ticker.C:
		case <-p.exited:
			return fmt.Errorf("pgserver: the server ended instead of starting:\n%s", s.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("pgserver: start: %w:\n%s", context.Cause(ctx), s.LogTail())
		}
	}
	return nil
}

// ready reports whether the server says in its lock file that it takes
// connections.
func (s *Server) ready(pid int) bool {
	lines := s.lockFile()
	return len(lines) >= 8 && lines[0] == strconv.Itoa(pid) && lines[7] == "ready"
}

// lockFile returns the lines of the server's lock file, none if there is none.
func (s *Server) lockFile() []string {
	data, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return nil
	}
	lines := strings.Split(string(data), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

// LogTail returns the last 4 KiB of what the server logged.
func (s *Server) LogTail() string {
	data, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(data[max(0, len(data)-4096):]))
}
