// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgtest

import (
	"testing"

	"github.com/refold-io/refold/internal/testkit/pgserver"
)

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
