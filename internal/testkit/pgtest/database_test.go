// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgtest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/internal/testkit/tcpproxy"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func databases(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	var names string
	if err := conn.QueryRow(t.Context(), "SELECT string_agg(datname, ' ') FROM pg_database").Scan(&names); err != nil {
		t.Fatal(err)
	}
	return names
}

// Each database is new. It is dropped at the end, even if it has open connections.
func TestDatabasePerTest(t *testing.T) {
	t.Parallel()
	watcher := connect(t, pgtest.DSN(t))
	var names []string
	t.Run("Ünîcode and \"quotes\" and a name that exceeds the maximum length of a database name", func(t *testing.T) {
		for range 2 {
			conn := connect(t, pgtest.DSN(t))
			if _, err := conn.Exec(t.Context(), "CREATE TABLE mine (n int)"); err != nil {
				t.Error(err)
			}
			name := conn.Config().Database
			if names = append(names, name); !strings.Contains(databases(t, watcher), name) {
				t.Errorf("database %s does not exist", name)
			}
		}
	})
	for _, name := range names {
		if strings.Contains(databases(t, watcher), name) {
			t.Errorf("database %s exists after the test", name)
		}
	}
}

func TestViaAndWith(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)
	direct, via := connect(t, dsn), connect(t, pgtest.Via(t, dsn, server.Addr()))
	if direct.Config().Database != via.Config().Database || via.Config().Host != "127.0.0.1" || direct.Config().Host == "127.0.0.1" {
		t.Errorf("directly: database %s on %s, through the proxy: database %s on %s, want the same database, and 127.0.0.1 only through the proxy", direct.Config().Database, direct.Config().Host, via.Config().Database, via.Config().Host)
	}
	server.Kill()
	server.Restart(t)
	server.Stop()
	server.Stop()
	server.Kill()
	server.Restart(t)
	connect(t, pgtest.Via(t, dsn, server.Addr()))
	named := connect(t, pgtest.With(t, dsn, map[string]string{"application_name": "a b"}))
	if name := named.Config().RuntimeParams["application_name"]; name != "a b" {
		t.Errorf("application_name is %q, want \"a b\"", name)
	}
	through := tcpproxy.Start(t, pgtest.Upstream(t, dsn))
	connect(t, pgtest.Via(t, dsn, through.Addr()))
	if up := pgtest.Upstream(t, pgtest.Via(t, dsn, server.Addr())); up != server.Addr() {
		t.Errorf("upstream is %s, want the address of the server", up)
	}
}

// Tests create their databases on the server of REFOLD_POSTGRES.
func TestServerFromVariable(t *testing.T) {
	server := pgtest.Start(t, pgtest.Config{})
	t.Setenv(pgtest.Env, server.DSN(t)+"&application_name=mine")
	conn := connect(t, pgtest.DSN(t))
	if conn.Config().Host != connect(t, server.DSN(t)).Config().Host {
		t.Error("DSN returned the address of another server")
	}
}
