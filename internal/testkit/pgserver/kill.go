// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// kill ends all processes of the server. A backend whose postmaster died goes on
// with what it is doing, so killing that one alone would be no crash, and the next server
// would refuse to start beside it.
func (s *Server) kill(ctx context.Context) error {
	p := s.process
	if p == nil {
		return nil
	}
	_ = syscall.Kill(p.pid, syscall.SIGSTOP) // it forks no more; if it is gone already, so much the better
	children, err := childrenOf(ctx, p.pid)
	if err != nil {
		return errors.Join(err, syscall.Kill(p.pid, syscall.SIGCONT))
	}
	for _, pid := range append(children, p.pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("pgserver: kill: %w", err)
		}
	}
	<-p.exited
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for _, pid := range children {
		for alive(pid) {
			<-ticker.C
		}
	}
	s.process = nil
	return errors.Join(s.watchdog.ended(), s.sweep(ctx))
}

// sweep removes what a killed server left: its lock files, which would keep the
// next one from starting if their process ID was given to somebody else, and a few bytes
// of shared memory that nothing else would ever free.
func (s *Server) sweep(ctx context.Context) error {
	if lines := s.lockFile(); len(lines) > 6 {
		if fields := strings.Fields(lines[6]); len(fields) == 2 {
			_ = exec.CommandContext(ctx, "ipcrm", "-m", fields[1]).Run() //nolint:gosec // good if it can be done
		}
	}
	socket := filepath.Join(s.dir, ".s.PGSQL."+strconv.Itoa(s.port))
	for _, path := range []string{filepath.Join(s.data(), "postmaster.pid"), socket, socket + ".lock"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("pgserver: %w", err)
		}
	}
	return nil
}

// childrenOf returns the processes whose parent is pid.
func childrenOf(ctx context.Context, pid int) ([]int, error) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return childrenByPS(ctx, pid)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("pgserver: list processes: %w", err)
	}
	var children []int
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if _, parent, ok := stat(child); ok && parent == pid {
			children = append(children, child)
		}
	}
	return children, nil
}

func childrenByPS(ctx context.Context, pid int) ([]int, error) {
	out, err := exec.CommandContext(ctx, "ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("pgserver: list processes: %w", err)
	}
	var children []int
	for line := range strings.Lines(string(out)) {
		var child, parent int
		if n, err := fmt.Sscan(line, &child, &parent); n == 2 && err == nil && parent == pid {
			children = append(children, child)
		}
	}
	return children, nil
}

// stat returns the state and the parent of a process, false if there is none.
func stat(pid int) (state byte, parent int, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]) // behind the name, which may hold anything
	if len(fields) < 2 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent, err == nil
}

// alive reports whether a process runs; one that has ended and that nobody has
// waited for does not.
func alive(pid int) bool {
	if state, _, ok := stat(pid); ok {
		return state != 'Z' && state != 'X'
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return false
	}
	return syscall.Kill(pid, 0) == nil
}
