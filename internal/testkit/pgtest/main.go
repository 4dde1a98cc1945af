// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package testpg gives tests a PostgreSQL server.
//
//	func TestMain(m *testing.M) { testpg.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		pool, err := pgxpool.New(t.Context(), testpg.DSN(t))
//		...
//	}
//
// The tests of a package share one private server, which is started when the
// first of them asks, from installed binaries; see package pgserver. Each test
// has a database of its own, which is dropped at its end. A test that needs a
// server for itself, to kill it or to set it up differently, calls Start.
//
// If REFOLD_POSTGRES is set, it is the DSN of a superuser on a server to use
// instead of the shared one; servers from Start are private all the same. If there are
// neither this nor binaries, the test fails and says what to install.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/pgserver"
)

// Env names the variable with the DSN of a server to use.
const Env = "REFOLD_POSTGRES"

// shared is the server of this process's tests.
//
//nolint:gochecknoglobals // tests have nothing in common but their process
var shared struct {
	sync.Mutex

	main   bool // Main runs, and will stop it
	server *pgserver.Server
	err    error // why it did not start
}

// Main is what TestMain calls. It runs the tests, stops the shared server,
// fails if they have left a goroutine behind that none of the options ignores, and
// exits.
func Main(m *testing.M, ignored ...goleak.Option) {
	shared.Lock()
	shared.main = true
	shared.Unlock()
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "testpg: stop the shared server:", err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		err := goleak.Find(ignored...)
		for patience := time.Now().Add(time.Minute); err != nil && time.Now().Before(patience); { // some may be just ending
			err = goleak.Find(ignored...)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "testpg: leaked goroutines:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// sharedDSN returns the address of a database of the shared server, which is
// started if it does not run.
func sharedDSN(database string) (string, error) {
	if dsn := os.Getenv(Env); dsn != "" {
		return withDatabase(dsn, database)
	}
	shared.Lock()
	defer shared.Unlock()
	if !shared.main {
		return "", errors.New("testpg: TestMain must call testpg.Main, which stops the server")
	}
	if shared.server == nil && shared.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		shared.server, shared.err = pgserver.Start(ctx, pgserver.Config{})
	}
	if shared.err != nil {
		return "", explain(shared.err)
	}
	return shared.server.DSN(database), nil
}

// explain adds the other way out.
func explain(err error) error {
	if errors.Is(err, pgserver.ErrNoBinaries) {
		return fmt.Errorf("install PostgreSQL 13 or newer, e.g. apt-get install postgresql; or set %s to the DSN of a superuser on a running server: %w", Env, err)
	}
	return err
}

// Config says how a server is to be.
type Config = pgserver.Config

// Server is a server of a test's own.
type Server struct {
	tb     testing.TB
	server *pgserver.Server
}

// Start starts a server for one test, from installed binaries, and ends it when
// the test ends. It fails the test if it can't.
func Start(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	server, err := pgserver.Start(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(explain(err))
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the server's log ends so:\n%s", server.LogTail())
		}
		if err := server.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &Server{tb, server}
}

// DSN returns the address, as a URL, of a new and empty database, over the
// server's socket. The server must run.
func (s *Server) DSN(tb testing.TB) string {
	tb.Helper()
	name := databaseName(tb.Name())
	dsn := s.server.DSN(name)
	if err := create(dsn, name); err != nil {
		tb.Fatal(err)
	}
	return dsn
}

// Addr returns the host and port that the server listens on; see Via.
func (s *Server) Addr() string { return s.server.Addr() }

// Kill ends all processes of the server with SIGKILL, as a power cut would. It
// does nothing if the server is down.
func (s *Server) Kill() {
	s.tb.Helper()
	if err := s.server.Kill(); err != nil {
		s.tb.Error(err)
	}
}

// Stop ends the server as its operator would. Its data stays for a Restart.
func (s *Server) Stop() {
	s.tb.Helper()
	if err := s.server.Stop(); err != nil {
		s.tb.Error(err)
	}
}

// SetMaxFileSize sets Config.MaxFileSize anew, for the next Restart: 0 for no
// limit.
func (s *Server) SetMaxFileSize(bytes int64) { s.server.SetMaxFileSize(bytes) }

// Restart starts the server again, on the same data, port and socket; one that runs
// is stopped before.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if err := s.server.Restart(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}
