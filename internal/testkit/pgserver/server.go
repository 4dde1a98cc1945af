// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package pgserver runs a PostgreSQL server from installed binaries for one process. The server has
// a temporary directory, a free port and its own socket.
//
// The server ends with the process that started it, even if that process is killed. A watchdog
// process reads from a pipe of that process. When the pipe breaks, the watchdog stops the server
// and removes its directory. PostgreSQL refuses to run as root, so a root process runs it as the
// user postgres.
//
// The package is for tests and benchmarks. The settings determine the durability; the defaults are
// those of PostgreSQL. Close removes the data.
package pgserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/refold-io/refold/internal/testkit/freeport"
)

// User is the superuser of a server.
const User = "postgres"

// Server is a private PostgreSQL server. Its methods are safe for concurrent use.
type Server struct {
	cfg      Config
	bin      string
	dir      string
	port     int
	password string
	account  *syscall.Credential
	watchdog *watchdog

	mu      sync.Mutex
	process *process // nil while the server is down
	closed  bool
}

// Start creates a database cluster and starts a server on it. It returns when the server accepts
// connections. The caller must Close it. The error matches ErrNoBinaries if PostgreSQL is not
// installed.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	bin, err := FindBinaries(ctx)
	if err != nil {
		return nil, err
	}
	peer, err := account()
	if err != nil {
		return nil, err
	}
	dir, err := newDirectory(cmp.Or(cfg.Base, os.TempDir()), peer)
	if err != nil {
		return nil, err
	}
	cfg.StartTimeout = cmp.Or(cfg.StartTimeout, 5*time.Minute)
	s := &Server{cfg: cfg, bin: bin, dir: dir, account: peer, password: rand.Text()}
	if s.watchdog, err = newWatchdog(ctx, dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.create(ctx); err != nil {
		return nil, errors.Join(err, s.close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// template is the archive of a new database cluster. The archive remains readable after the removal
// of its directory. Unpacking takes a tenth of the processor time of initdb.
//
//nolint:gochecknoglobals // the servers of a process have nothing else in common
var template struct {
	sync.Mutex

	password string
	archive  *os.File
}

// initialize creates the cluster of the first server of this process. Each other server unpacks a
// copy, which has the same password.
func (s *Server) initialize(ctx context.Context) error {
	template.Lock()
	defer template.Unlock()
	cmd := s.command(ctx, "tar", "-xpf", "-")
	if template.archive != nil {
		s.password, cmd.Stdin = template.password, template.archive
	} else {
		passwordFile := filepath.Join(s.dir, "password")
		if err := s.write(passwordFile, s.password); err != nil {
			return err
		}
		archive, err := os.Create(filepath.Join(s.dir, "archive"))
		if err != nil {
			return fmt.Errorf("pgserver: %w", err)
		}
		template.password, template.archive = s.password, archive
		// The socket needs no password, because only this account can reach it. The port needs a
		// password, because every account of the machine can reach it.
		cmd = s.command(ctx, "/bin/sh", "-c", `"$@" >&2 && exec tar -cf - data`, "sh",
			filepath.Join(s.bin, "initdb"), "--pgdata="+s.data(), "--username="+User, "--pwfile="+passwordFile,
			"--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions", "--wal-segsize=4")
		cmd.Stdout = archive
	}
	var messages bytes.Buffer
	cmd.Stderr = &messages
	err := cmd.Run()
	if _, seekErr := template.archive.Seek(0, io.SeekStart); err != nil || seekErr != nil {
		template.archive = nil // the next server tries again
		return fmt.Errorf("pgserver: initdb: %w:\n%s", errors.Join(err, seekErr), &messages)
	}
	return nil
}

// create creates the cluster and starts the server on a port that stays free while the server is
// down.
func (s *Server) create(ctx context.Context) error {
	if err := s.initialize(ctx); err != nil {
		return err
	}
	var errs []error
	for range 5 { // another process may take the port first
		port, err := freeport.Find(ctx)
		if err != nil {
			return fmt.Errorf("pgserver: %w", err)
		}
		s.port = port
		if err = s.write(filepath.Join(s.data(), "postgresql.conf"), s.cfg.file(s.dir, port)); err != nil {
			return err
		}
		err = s.launch(ctx)
		if err == nil {
			return nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
		if err := s.end(ctx, syscall.SIGQUIT); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// write writes a file that the server can read.
func (s *Server) write(path, content string) error {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	return own(path, s.account)
}

func (s *Server) data() string    { return filepath.Join(s.dir, "data") }
func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

// DSN returns the address of a database over the server's socket, as a URL.
func (s *Server) DSN(database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(User, s.password), Path: "/" + database}
	query := url.Values{"host": {s.dir}, "port": {strconv.Itoa(s.port)}}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // libpq does not decode a plus sign as a space
	return u.String()
}

// Addr returns the host and port of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Kill ends all processes of the server with SIGKILL, like a power failure. It has no effect if the
// server is down.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill(context.Background())
}

// Stop shuts the server down: it rolls back open transactions, closes connections, and keeps the
// data for Restart.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(context.Background(), syscall.SIGINT)
}

// SetMaxFileSize sets Config.MaxFileSize for the next Restart; 0 means no limit.
func (s *Server) SetMaxFileSize(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.MaxFileSize = bytes
}

// Restart starts the server with its previous data and port. A running server is stopped first.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("pgserver: restart: closed")
	}
	if err := s.end(ctx, syscall.SIGINT); err != nil {
		return err
	}
	return s.launch(ctx)
}

// Follow replaces the data of the server by a copy of a running server, and starts it as a standby of
// that server, with its previous port and settings. A running server is stopped first. The name of
// the standby in synchronous_standby_names is walreceiver.
func (s *Server) Follow(ctx context.Context, primary *Server) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("pgserver: follow: closed")
	}
	if err := s.end(ctx, syscall.SIGINT); err != nil {
		return err
	}
	if err := os.RemoveAll(s.data()); err != nil {
		return fmt.Errorf("pgserver: follow: %w", err)
	}
	postgres, err := filepath.EvalSymlinks(filepath.Join(s.bin, "postgres")) // the directory may hold links to few programs
	if err != nil {
		return fmt.Errorf("pgserver: follow: %w", err)
	}
	backup := s.command(ctx, filepath.Join(filepath.Dir(postgres), "pg_basebackup"), "--pgdata="+s.data(), "--host="+primary.dir, "--port="+strconv.Itoa(primary.port),
		"--username="+User, "--checkpoint=fast", "--write-recovery-conf", "--no-sync")
	if out, err := backup.CombinedOutput(); err != nil {
		return fmt.Errorf("pgserver: pg_basebackup: %w:\n%s", err, out)
	}
	if err := s.write(filepath.Join(s.data(), "postgresql.conf"), s.cfg.file(s.dir, s.port)); err != nil {
		return err
	}
	return s.launch(ctx)
}

// Close ends the server and removes its directory. A second Close has no effect.
func (s *Server) Close() error { return s.close(context.Background()) }

func (s *Server) close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := errors.Join(s.end(ctx, syscall.SIGQUIT), s.watchdog.dismiss())
	if removeErr := os.RemoveAll(s.dir); removeErr != nil {
		err = errors.Join(err, fmt.Errorf("pgserver: remove the directory: %w", removeErr))
	}
	return err
}

// patience is the time that a server may take to stop before it is killed.
const patience = 20 * time.Second

// end sends a signal to the server, waits until it has ended, and kills it after a time-out.
func (s *Server) end(ctx context.Context, signal syscall.Signal) error {
	p := s.process
	if p == nil {
		return nil
	}
	if err := syscall.Kill(p.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("pgserver: stop: %w", err)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.exited:
		s.process = nil
		return s.watchdog.send("-")
	case <-timer.C:
		return s.kill(context.WithoutCancel(ctx))
	}
}

// Config is the configuration of a server.
type Config struct {
	// Settings are lines of postgresql.conf. They override the defaults, which are small buffers
	// and the durability defaults of PostgreSQL.
	Settings map[string]string
	// MaxFileSize is the maximum size in bytes of a file that the server writes, rounded down to a
	// multiple of 512. A larger write fails as on a full disk. The limit does not apply to the
	// creation of the database cluster. Defaults to no limit.
	MaxFileSize int64
	// Base is the directory in which the server's own directory is created. Defaults to the
	// directory for temporary files.
	Base string
	// StartTimeout is the time for the server to become ready. Defaults to 5 minutes.
	StartTimeout time.Duration
}

var settingName = regexp.MustCompile(`^[a-z_][a-z0-9_.]*$`)

func (c Config) validate() error {
	var errs []error
	for name, value := range c.Settings {
		if !settingName.MatchString(name) || strings.ContainsAny(value, "\n\x00") {
			errs = append(errs, fmt.Errorf("pgserver: Config.Settings: %q = %q is not a valid setting", name, value))
		}
	}
	if c.MaxFileSize < 0 {
		errs = append(errs, fmt.Errorf("pgserver: Config.MaxFileSize is %d, less than 0", c.MaxFileSize))
	}
	if c.StartTimeout < 0 {
		errs = append(errs, fmt.Errorf("pgserver: Config.StartTimeout is %v, less than 0", c.StartTimeout))
	}
	return errors.Join(errs...)
}

// file returns the contents of postgresql.conf.
func (c Config) file(socketDir string, port int) string {
	settings := map[string]string{
		"listen_addresses":           "127.0.0.1",
		"port":                       fmt.Sprint(port),
		"unix_socket_directories":    socketDir,
		"unix_socket_permissions":    "0700",
		"max_connections":            "200",
		"shared_buffers":             "32MB",
		"max_wal_size":               "256MB",
		"min_wal_size":               "32MB",
		"jit":                        "off",
		"dynamic_shared_memory_type": "mmap", // in the data directory: a killed server leaves nothing elsewhere
		"timezone":                   "UTC",
		"log_timezone":               "UTC",
		"lc_messages":                "C",
		"log_line_prefix":            "%m [%p] %d ",
		"log_min_messages":           "warning",
		"log_checkpoints":            "off",
		"tcp_keepalives_idle":        "30",
		"default_text_search_config": "pg_catalog.simple",
	}
	maps.Copy(settings, c.Settings)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		quoted := strings.ReplaceAll(strings.ReplaceAll(settings[name], `\`, `\\`), "'", "''")
		fmt.Fprintf(&b, "%s = '%s'\n", name, quoted)
	}
	return b.String()
}
