// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package pgtest provides a PostgreSQL server to tests.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		pool, err := pgxpool.New(t.Context(), pgtest.DSN(t))
//		...
//	}
//
// The tests of a package share one private server, which the first DSN starts from installed
// binaries; see package pgserver. Its files are in /dev/shm if 2 GiB are free there, because
// creating databases on a disk takes most of the time of short tests. Each test has its own
// database, which is dropped at its end. A test that kills or configures its server calls Start.
//
// REFOLD_POSTGRES is the DSN of a superuser on a server to use instead of the shared one. Servers
// from Start remain private. Without this variable and without binaries, the test fails with an
// error that contains the package to install.
package pgtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/pgserver"
)

// Env is the environment variable with the DSN of a server.
const Env = "REFOLD_POSTGRES"

// shared is the server of this process's tests.
//
//nolint:gochecknoglobals // tests have nothing in common but their process
var shared struct {
	sync.Mutex

	main   bool // Main runs and will stop the server
	server *pgserver.Server
	err    error // the error of the start
}

// Main is the body of TestMain. It runs the tests, stops the shared server, and exits. It fails if
// goroutines remain that no option ignores.
func Main(m *testing.M, ignored ...goleak.Option) {
	shared.Lock()
	shared.main = true
	shared.Unlock()
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest: stop the shared server:", err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		err := goleak.Find(ignored...)
		for patience := time.Now().Add(time.Minute); err != nil && time.Now().Before(patience); { // some goroutines may be about to end
			err = goleak.Find(ignored...)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "pgtest: leaked goroutines:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// sharedDSN returns the address of a database on the shared server and starts the server if
// necessary.
func sharedDSN(database string) (string, error) {
	if dsn := os.Getenv(Env); dsn != "" {
		return withDatabase(dsn, database)
	}
	shared.Lock()
	defer shared.Unlock()
	if !shared.main {
		return "", errors.New("pgtest: TestMain must call pgtest.Main, which stops the server")
	}
	if shared.server == nil && shared.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		shared.server, shared.err = pgserver.Start(ctx, withoutDisk(pgserver.Config{}))
	}
	if shared.err != nil {
		return "", explain(shared.err)
	}
	return shared.server.DSN(database), nil
}

// withoutDisk returns a config of a server that does not sync files. The server keeps its files in
// memory if enough memory is free. This makes tests several times faster. A sync matters only when
// the machine crashes, and no test crashes the machine. Servers of benchmarks use the disk.
func withoutDisk(cfg Config) Config {
	if f := flag.Lookup("test.bench"); f != nil && f.Value.String() != "" {
		return cfg
	}
	const memory, required = "/dev/shm", 2 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err == nil && fs.Bavail*uint64(fs.Bsize) >= required { //nolint:gosec // a size
		cfg.Base = memory
	}
	settings := map[string]string{"fsync": "off", "full_page_writes": "off"}
	maps.Copy(settings, cfg.Settings)
	cfg.Settings = settings
	return cfg
}

// explain adds two possible solutions to an error.
func explain(err error) error {
	if errors.Is(err, pgserver.ErrNoBinaries) {
		return fmt.Errorf("install PostgreSQL 13 or newer, e.g. apt-get install postgresql; or set %s to the DSN of a superuser on a running server: %w", Env, err)
	}
	return err
}

// Config is the configuration of a server.
type Config = pgserver.Config

// Server is a private server of one test.
type Server struct {
	tb     testing.TB
	server *pgserver.Server
}

// Start starts a server from installed binaries and ends it with the test. It fails the test on an
// error.
func Start(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	server, err := pgserver.Start(tb.Context(), withoutDisk(cfg))
	if err != nil {
		tb.Fatal(explain(err))
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the server's log:\n%s", server.LogTail())
		}
		if err := server.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &Server{tb, server}
}

// DSN returns the address, as a URL, of a new and empty database over the server's socket. The
// server must run.
func (s *Server) DSN(tb testing.TB) string {
	tb.Helper()
	name := databaseName(tb.Name())
	dsn := s.server.DSN(name)
	if err := create(dsn, name); err != nil {
		tb.Fatal(err)
	}
	return dsn
}

// Addr returns the host and port of the server; see Via.
func (s *Server) Addr() string { return s.server.Addr() }

// Kill ends all processes of the server with SIGKILL, like a power failure. It has no effect if the
// server is down.
func (s *Server) Kill() {
	s.tb.Helper()
	if err := s.server.Kill(); err != nil {
		s.tb.Error(err)
	}
}

// Stop shuts the server down. Its data remains for Restart.
func (s *Server) Stop() {
	s.tb.Helper()
	if err := s.server.Stop(); err != nil {
		s.tb.Error(err)
	}
}

// SetMaxFileSize sets Config.MaxFileSize for the next Restart; 0 means no limit.
func (s *Server) SetMaxFileSize(bytes int64) { s.server.SetMaxFileSize(bytes) }

// Restart starts the server with the same data, port and socket. A running server is stopped first.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if err := s.server.Restart(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// Follow replaces the data of the server by a copy of another one, and starts it as a standby of that
// server; see pgserver.Server.Follow.
func (s *Server) Follow(tb testing.TB, primary *Server) {
	tb.Helper()
	if err := s.server.Follow(tb.Context(), primary.server); err != nil {
		tb.Fatal(err)
	}
}
