// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the interval of checks for conditions that have no event.
const tick = 5 * time.Millisecond

type process struct {
	pid    int
	exited chan struct{} // closed when the process has ended
}

// command prepares a program of the server. The program runs under the server's account.
func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // a program of the developer
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.account}
	return cmd
}

// launch starts the server and waits until it accepts connections.
func (s *Server) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.StartTimeout, fmt.Errorf("not ready after %v", s.cfg.StartTimeout))
	defer cancel()
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("pgserver: open the log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the server has its own handle
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
	go func() { // ends with the server; Close waits for it
		defer close(p.exited)
		_ = cmd.Wait() // the log has the cause
	}()
	s.process = p
	if err := s.watchdog.send(strconv.Itoa(p.pid)); err != nil {
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

func (s *Server) ready(pid int) bool {
	lines := s.lockFile()
	return len(lines) >= 8 && lines[0] == strconv.Itoa(pid) && lines[7] == "ready"
}

// lockFile returns the lines of the server's lock file, none if it does not exist.
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

// LogTail returns the last 4 KiB of the server's log.
func (s *Server) LogTail() string {
	data, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(data[max(0, len(data)-4096):]))
}

// kill ends all processes of the server. A backend continues its work after the death of its
// postmaster. Killing only the postmaster would therefore not simulate a crash, and the next server
// would refuse to start.
func (s *Server) kill(ctx context.Context) error {
	p := s.process
	if p == nil {
		return nil
	}
	_ = syscall.Kill(p.pid, syscall.SIGSTOP) // a stopped process cannot fork
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
	return errors.Join(s.watchdog.send("-"), s.sweep(ctx))
}

// sweep removes the lock files and the small segment of shared memory that a killed server leaves.
// A lock file would prevent the next start if another process received the process ID in the file.
func (s *Server) sweep(ctx context.Context) error {
	if lines := s.lockFile(); len(lines) > 6 {
		if fields := strings.Fields(lines[6]); len(fields) == 2 {
			_ = exec.CommandContext(ctx, "ipcrm", "-m", fields[1]).Run() //nolint:gosec // a failure is harmless
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

// stat returns the state and the parent of a process, false if it does not exist.
func stat(pid int) (state byte, parent int, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]) // after the name, which may contain any byte
	if len(fields) < 2 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent, err == nil
}

// alive reports whether a process runs. A zombie process does not run.
func alive(pid int) bool {
	if state, _, ok := stat(pid); ok {
		return state != 'Z' && state != 'X'
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return false
	}
	return syscall.Kill(pid, 0) == nil
}

// watch is a shell script. It reads a line with the process ID when a server has started, and
// another line when the server has ended. At the end of its input, it stops the running server and
// removes the server's directory.
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

type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

func newWatchdog(ctx context.Context, dir string) (*watchdog, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", watch, "refold-pg-watchdog", dir) //nolint:gosec // a folder that was just made
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                                                     // a terminal's signals to the tests must not reach it
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

// send sends one line: the process ID of a server that has started, "-" if it has ended, or "done".
func (w *watchdog) send(line string) error {
	if _, err := io.WriteString(w.pipe, line+"\n"); err != nil {
		return fmt.Errorf("pgserver: write to the watchdog: %w", err)
	}
	return nil
}

// dismiss ends the watchdog. Afterwards the caller must remove the directory.
func (w *watchdog) dismiss() error {
	err := errors.Join(w.send("done"), w.pipe.Close())
	if waitErr := w.cmd.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("pgserver: watchdog: %w", waitErr))
	}
	return err
}

// account is the account that runs the server; nil is the account of this process.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is the credential of this process
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} { // an installation without a package has no account for PostgreSQL
		u, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("pgserver: user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("pgserver: PostgreSQL does not run as root, and no other account was found: %w", errors.Join(errs...))
}

// maxSocketDir is the maximum length of the path of a directory with a socket: the name of a socket
// has at most 103 bytes.
const maxSocketDir = 70

// newDirectory creates the directory of a server. The directory is below base if the path is short enough for a socket and the account may enter base. In all other cases the directory is below /tmp.
func newDirectory(base string, peer *syscall.Credential) (string, error) {
	base, err := filepath.Abs(base)
	if err != nil || len(base) > maxSocketDir || peer != nil && !open(base) {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "refold-pg-")
	if err != nil {
		return "", fmt.Errorf("pgserver: create the directory: %w", err)
	}
	if err := own(dir, peer); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

func own(path string, peer *syscall.Credential) error {
	if peer == nil {
		return nil
	}
	if err := os.Chown(path, int(peer.Uid), int(peer.Gid)); err != nil {
		return fmt.Errorf("pgserver: change the owner of the directory: %w", err)
	}
	return nil
}

// open reports whether every account may enter a directory and all its parents.
func open(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		return true
	}
}

// MinVersion is the lowest supported major version of PostgreSQL.
const MinVersion = 13

// BinEnv is the environment variable with the directory of the binaries.
const BinEnv = "REFOLD_POSTGRES_BIN"

// ErrNoBinaries reports that PostgreSQL is not installed. Its text describes how to install it.
var ErrNoBinaries = errors.New("pgserver: no PostgreSQL binaries found: install PostgreSQL 13 or newer, e.g. apt-get install postgresql; or set REFOLD_POSTGRES_BIN to the folder that holds initdb and postgres")

// places are patterns of the directories in which packages install the binaries.
func places() []string {
	return []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/pgsql-*/bin",          // RPMs of the PostgreSQL project
		"/usr/libexec/postgresql*",  // Alpine
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/usr/local/pgsql/bin", // make install
		"/opt/local/lib/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	}
}

// FindBinaries returns the directory with initdb and postgres of a supported version. If
// REFOLD_POSTGRES_BIN is set, FindBinaries returns that directory. If not, it returns a directory
// in the path, or the directory of the newest version that a package has installed. The error
// matches ErrNoBinaries.
func FindBinaries(ctx context.Context) (string, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		if _, err := majorVersion(ctx, dir); err != nil {
			return "", fmt.Errorf("%w: %s: %w", ErrNoBinaries, BinEnv, err)
		}
		return dir, nil
	}
	var path string
	if initdb, err := exec.LookPath("initdb"); err == nil {
		path = filepath.Dir(initdb)
	}
	return find(ctx, path, places())
}

// find searches one directory, unless it is empty, and then all directories that match the
// patterns.
func find(ctx context.Context, first string, patterns []string) (string, error) {
	var reasons []error
	if first != "" {
		_, err := majorVersion(ctx, first)
		if err == nil {
			return first, nil
		}
		reasons = append(reasons, err)
	}
	newest, highest := "", 0
	for _, pattern := range patterns {
		dirs, err := filepath.Glob(filepath.Join(pattern, "initdb"))
		if err != nil {
			return "", fmt.Errorf("pgserver: find binaries: %w", err)
		}
		for _, initdb := range dirs {
			version, err := majorVersion(ctx, filepath.Dir(initdb))
			if err != nil {
				reasons = append(reasons, err)
			} else if version > highest {
				newest, highest = filepath.Dir(initdb), version
			}
		}
	}
	if newest == "" {
		return "", errors.Join(append([]error{ErrNoBinaries}, reasons...)...)
	}
	return newest, nil
}

var versionText = regexp.MustCompile(`\b(\d+)(?:\.|devel|beta|rc|\b)`)

func majorVersion(ctx context.Context, dir string) (int, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil { //nolint:gosec // a directory of the developer
		return 0, fmt.Errorf("pgserver: look for initdb: %w", err)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output() //nolint:gosec // a program of the developer
	if err != nil {
		return 0, fmt.Errorf("pgserver: run %s --version: %w", dir, err)
	}
	match := versionText.FindSubmatch(out)
	if match == nil {
		return 0, fmt.Errorf("pgserver: %s: unexpected version %.80q", dir, out)
	}
	version, err := strconv.Atoi(string(match[1]))
	switch {
	case err != nil:
		return 0, fmt.Errorf("pgserver: %s: unexpected version %.80q: %w", dir, out, err)
	case version < MinVersion:
		return 0, fmt.Errorf("pgserver: %s holds version %d; version %d or newer is required", dir, version, MinVersion)
	}
	return version, nil
}
