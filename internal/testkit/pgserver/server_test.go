// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgserver_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/refold-io/refold/internal/testkit/pgserver"
)

func orphanContext() context.Context { return context.Background() }

func start(t *testing.T, cfg pgserver.Config) *pgserver.Server {
	t.Helper()
	server, err := pgserver.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func do(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func ask[T any](t *testing.T, conn *pgx.Conn, query string) T {
	t.Helper()
	var answer T
	if err := conn.QueryRow(t.Context(), query).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return answer
}

// folder returns the directory of a server's socket.
func folder(t *testing.T, dsn string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Host
}

// After a kill and after a stop, committed data is present at the same address. Uncommitted data is
// lost.
func TestDataAfterKillAndStop(t *testing.T) {
	t.Parallel()
	server := start(t, pgserver.Config{Settings: map[string]string{"work_mem": "3MB", "refold.quoted": `it's a \ b`}})
	dsn, addr := server.DSN("postgres"), server.Addr()
	conn := connect(t, dsn)
	for setting, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "work_mem": "3MB", "refold.quoted": `it's a \ b`, "server_encoding": "UTF8", "dynamic_shared_memory_type": "mmap",
	} {
		if got := ask[string](t, conn, "SHOW "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	do(t, conn, "CREATE TABLE kept (n int)")
	for life, end := range []func() error{server.Kill, server.Stop, server.Kill, func() error { return nil }} {
		do(t, conn, "INSERT INTO kept VALUES (1)")
		do(t, conn, "BEGIN; INSERT INTO kept VALUES (100)")
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if life < 3 {
			if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
				t.Fatal("a stopped server answered")
			}
			if _, err := pgx.Connect(t.Context(), dsn); err == nil {
				t.Fatal("a stopped server accepted a connection")
			}
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if server.DSN("postgres") != dsn || server.Addr() != addr {
			t.Error("the address changed after a restart")
		}
		conn = connect(t, dsn)
		if n := ask[int](t, conn, "SELECT sum(n) FROM kept"); n != life+1 {
			t.Errorf("round %d: the sum is %d, want %d", life, n, life+1)
		}
	}
}

// A kill also ends running statements.
func TestKillEndsStatements(t *testing.T) {
	t.Parallel()
	server := start(t, pgserver.Config{})
	busy, watcher := connect(t, server.DSN("postgres")), connect(t, server.DSN("postgres"))
	ended := make(chan error)
	go func() {
		_, err := busy.Exec(t.Context(), "SELECT count(*) FROM generate_series(1, 1000000000) AS a, generate_series(1, 1000000000) AS b")
		ended <- err
	}()
	for ask[int](t, watcher, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%series%'") == 0 {
		runtime.Gosched()
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the statement completed although the server was killed")
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Connections to the port require the random password.
func TestPortRequiresPassword(t *testing.T) {
	t.Parallel()
	server := start(t, pgserver.Config{})
	cfg, err := pgconn.ParseConfig(server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	right := "postgres://postgres:" + cfg.Password + "@" + server.Addr() + "/postgres"
	if user := ask[string](t, connect(t, right), "SELECT current_user"); user != pgserver.User {
		t.Errorf("connected as %q, want the superuser", user)
	}
	_, err = pgx.Connect(t.Context(), "postgres://postgres:guess@"+server.Addr()+"/postgres")
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "28P01" {
		t.Errorf("a wrong password: %v, want code 28P01", err)
	}
}

func TestCloseRemovesDirectory(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*pgserver.Server) error{
		"running": func(*pgserver.Server) error { return nil },
		"killed":  (*pgserver.Server).Kill,
		"stopped": (*pgserver.Server).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t, pgserver.Config{})
			dir := folder(t, server.DSN("postgres"))
			if _, err := os.Stat(dir); err != nil {
				t.Fatal(err)
			}
			if err := before(server); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := server.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s exists after Close: %v, want ErrNotExist", dir, err)
			}
			if err := server.Restart(t.Context()); err == nil {
				t.Error("Restart succeeded after Close")
			}
		})
	}
}

// A process that is killed or panics leaves neither a server nor a directory.
func TestServerEndsWithProcess(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"kill", "panic"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), orphanEnv+"="+how)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err = cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "postgres://") {
				t.Fatalf("the process printed %q, %v, want a DSN", line, err)
			}
			dsn := strings.TrimSpace(line)
			if how == "kill" {
				connect(t, dsn)
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Wait(); err == nil {
				t.Fatal("the process ended without an error")
			}
			ticker := time.NewTicker(10 * time.Millisecond)
			defer ticker.Stop()
			for {
				if _, err := os.Stat(folder(t, dsn)); errors.Is(err, os.ErrNotExist) {
					break
				}
				<-ticker.C
			}
			if _, err := pgx.Connect(t.Context(), dsn); err == nil {
				t.Error("the server accepts connections after the end of its process")
			}
		})
	}
}

// A write that exceeds the limit fails, and the server continues.
func TestMaxFileSize(t *testing.T) {
	t.Parallel()
	server := start(t, pgserver.Config{MaxFileSize: 8 << 20})
	conn := connect(t, server.DSN("postgres"))
	do(t, conn, "CREATE TABLE large (b text); ALTER TABLE large ALTER b SET STORAGE PLAIN")
	_, err := conn.Exec(t.Context(), "INSERT INTO large SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
	if err == nil || !strings.Contains(err.Error(), "could not") {
		t.Errorf("a write above the limit: %v, want an error of the server", err)
	}
	do(t, conn, "INSERT INTO large VALUES ('small')")
	server.SetMaxFileSize(0)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	do(t, connect(t, server.DSN("postgres")), "INSERT INTO large SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	_, err := pgserver.Start(t.Context(), pgserver.Config{Settings: map[string]string{"shared_buffers": "many"}})
	if err == nil || !strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("an invalid setting: %v, want an error that contains its name", err)
	}
	_, err = pgserver.Start(t.Context(), pgserver.Config{Settings: map[string]string{"a b": "", "c": "1\n2"}, MaxFileSize: -1, StartTimeout: -1})
	for _, field := range []string{`"a b"`, `"c"`, "MaxFileSize", "StartTimeout"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not contain %s", err, field)
		}
	}
}
