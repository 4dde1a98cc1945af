// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/plugins/postgres"
)

// The migration files can be executed manually.
func TestManualMigration(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	admin := connect(t, dsn)
	run := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	run("CREATE SCHEMA refold")
	migrations := postgres.Migrations()
	for i, m := range migrations {
		missing, err := postgres.Migrate(t.Context(), dsn, postgres.Config{CheckOnly: true})
		if err != nil || len(missing) != len(migrations)-i || missing[0].Name != m.Name {
			t.Fatalf("before %[2]s %[1]d steps are missing, %[3]v, want %[4]d", len(missing), m.Name, err, len(migrations)-i)
		}
		_, err = postgres.Open(t.Context(), dsn, postgres.Config{CheckOnly: true})
		if !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), m.Name) {
			t.Fatalf("before %s: %v, want ErrSchema", m.Name, err)
		}
		if m.Version != i+1 || !strings.HasPrefix(m.Name, fmt.Sprintf("%03d_", m.Version)) {
			t.Errorf("migration %s has version %d, want %d", m.Name, m.Version, i+1)
		}
		run(m.SQL)
	}
	store(t, openStore(t, dsn, postgres.Config{CheckOnly: true}).TestJournal(), eventsOf("a", 0, 1))
	for i := range migrations {
		down, err := os.ReadFile("migration/" + migrations[len(migrations)-1-i].Name + ".down.sql")
		if err != nil {
			t.Fatal(err)
		}
		run(string(down))
	}
	run("DROP SCHEMA refold") // fails if anything is left
}

// Version 2 of the schema stored claims, and the first positions of rebuilds, as offsets. The
// migration moves them to the column claim.
func TestMigrateClaims(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	admin := connect(t, dsn)
	execute(t, admin, "CREATE SCHEMA refold")
	for _, m := range postgres.Migrations()[:2] {
		if _, err := admin.Exec(t.Context(), m.SQL, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, admin, `INSERT INTO refold.projections (projection, first_slice, slices, at_offset, clear) VALUES
		('begins', 0, 1024, '', false), ('marked', 0, 1024, '', true), ('moved', 0, 1024, 'pg1:7', false),
		('claimed', 0, 1024, 'claim-me-3', true), ('rebuilt', 0, 1024, 'begin-x', false)`)
	openStore(t, dsn, postgres.Config{})
	rows, err := admin.Query(t.Context(), "SELECT projection || ':' || at_offset || ':' || clear || ':' || claim FROM refold.projections ORDER BY projection")
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	want := []string{"begins::false:", "claimed::true:claim-me-3", "marked::true:", "moved:pg1:7:false:", "rebuilt::false:begin-x"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("migrated positions = %q, %v, want %q", got, err, want)
	}
}

// If several nodes start together, exactly one of them migrates.
func TestConcurrentMigrations(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	var group sync.WaitGroup
	taken := make([]int, 8)
	for i := range taken {
		group.Go(func() {
			steps, err := postgres.Migrate(t.Context(), dsn, postgres.Config{Schema: "x-1"})
			taken[i] = len(steps)
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	total := 0
	for _, n := range taken {
		total += n
	}
	if total != len(postgres.Migrations()) {
		t.Errorf("the nodes executed %v steps, want each step once", taken)
	}
}

// A failed migration changes nothing.
func TestMigrationIsAtomic(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	admin := connect(t, dsn)
	execute(t, admin, "CREATE SCHEMA refold")
	execute(t, admin, "CREATE TABLE refold.snapshots (mine text)") // conflicts with the migration
	_, err := postgres.Open(t.Context(), dsn, postgres.Config{})
	if err == nil || !strings.Contains(err.Error(), "001_journal") || !strings.Contains(err.Error(), "snapshots") {
		t.Errorf("open: %v, want an error that names 001_journal and snapshots", err)
	}
	var tables int
	if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'refold'").Scan(&tables); err != nil || tables != 1 {
		t.Errorf("the schema has %d tables, %v, want 1", tables, err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), "", postgres.Config{
		Schema: "pg_mine", MaxConns: -1, MaxAppends: -1, MaxSnapshotSize: 1 << 30, PollInterval: -1,
	})
	if err == nil {
		t.Fatal("Open with an invalid Config returned no error")
	}
	for _, field := range []string{"Schema", "MaxConns", "MaxAppends", "MaxSnapshotSize", "PollInterval"} {
		if !strings.Contains(err.Error(), "Config."+field+" ") {
			t.Errorf("field %s is missing in the error: %v", field, err)
		}
	}
	for _, schema := range []string{"a.b", `a"b`, "a'b", "a b", "é", strings.Repeat("x", 64)} {
		if _, err := postgres.Open(t.Context(), "", postgres.Config{Schema: schema}); err == nil || !strings.Contains(err.Error(), "Schema") {
			t.Errorf("schema %q: %v, want an error about Config.Schema", schema, err)
		}
	}
}

// No part of a connection string that may be a password appears in an error, even if the string is
// malformed.
func TestErrorsContainNoPassword(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://user:s3cr3t@host:port/db", "postgres://user:s3cr3t@@127.0.0.1:1/db", "postgres://user:s3cr3t/x@127.0.0.1:1/db",
		"postgres://user:123/s3cr3t@127.0.0.1:1/db", "postgres://user:123?s3cr3t@127.0.0.1:1/db", "postgres://user:123#s3cr3t@127.0.0.1:1/db",
		"postgres://user:s3cr3t%@127.0.0.1:1/db", "postgres://user:s3cr3t%zz@127.0.0.1:1/db", "postgres://127.0.0.1:1/db?password=s3cr3t&sslmode=nonsense",
		"postgres://127.0.0.1:1/db?password=s3cr3t&port=x", "postgres://user:s3cr3t@[127.0.0.1:1/db", "postgres ://user:s3cr3t@127.0.0.1:1/db",
		"host=127.0.0.1 port=1 password=s3cr3t sslmode=nonsense", "host=127.0.0.1 port=1 password='s3cr3t", "host=127.0.0.1 port=1 password=a s3cr3t", "password = 's3cr3t\\' port=x",
		"postgres://user:s3cr3t@127.0.0.1:1/db", "host=127.0.0.1 port=1 user=u password=s3cr3t", "postgres://user@127.0.0.1:1/db?sslpassword=s3cr3t",
	} {
		db, err := postgres.Open(t.Context(), dsn, postgres.Config{})
		if err == nil {
			_ = db.Close()
			t.Errorf("Open(%q) returned no error", dsn)
			continue
		}
		for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%q", err)} {
			if strings.Contains(text, "s3cr3t") {
				t.Errorf("the error of %q contains the password: %s", dsn, text)
			}
		}
	}
}

// A connection string never permits plaintext to another machine by omission.
func TestPlaintext(t *testing.T) {
	t.Parallel()
	ended, stop := context.WithCancel(t.Context())
	stop()
	for dsn, refused := range map[string]bool{
		"postgres://u@db.example.com/d":                                         true,
		"postgres://u@192.0.2.1/d?sslmode=prefer":                               true,
		"host=db.example.com user=u sslmode=allow":                              true,
		"postgres://u@localhost,db.example.com/d":                               true,
		"host=/tmp,192.0.2.1 user=u":                                            true,
		"postgres://u@db.example.com/d?sslmode=disable":                         false,
		"postgres://u@db.example.com/d?sslmode=require":                         false,
		"postgres://u@db.example.com,192.0.2.1/d?sslmode=verify-full":           false,
		"host=127.0.0.1,::1,localhost user=u":                                   false,
		"host=/tmp user=u sslmode=prefer":                                       false,
		"postgres://u@localhost,db.example.com/d?sslmode=verify-full":           false,
		"postgres://u@%2Ftmp,db.example.com/d":                                  true,
		"postgres://u@/d?host=/tmp,192.0.2.1&port=1,2&sslmode=prefer":           true,
		"postgres://u@[2001:db8::1]/d":                                          true,
		"postgres://u@[::ffff:192.0.2.1]/d":                                     true,
		"postgres://u@[fe80::1%25eth0]/d":                                       true,
		"postgres://u@0.0.0.0/d":                                                true,
		"postgres://u@localhost.example.com/d":                                  true,
		"postgres://u@db.example.com/d?sslmode=prefer&target_session_attrs=any": true,
		"host=db.example.com hostaddr=127.0.0.1 user=u":                         true,
		"host='db.example.com' sslmode='allow' user=u":                          true,
		"host=db.example.com user=u sslmode=require":                            false,
		"host=db.example.com user=u sslmode=verify-ca":                          false,
		"host=db.example.com,/tmp user=u sslmode=require":                       false,
		"postgres://u@[::ffff:127.0.0.1]/d?sslmode=allow":                       false,
		"postgres://u@127.8.9.1,[::1]/d?sslmode=prefer":                         false,
	} {
		for _, c := range []struct{ dsn, notify string }{{dsn, ""}, {"postgres://u@localhost/d", dsn}} {
			_, err := postgres.Open(ended, c.dsn, postgres.Config{NotifyDSN: c.notify})
			if got := errors.Is(err, postgres.ErrDSN); got != refused || got && !strings.Contains(err.Error(), "sslmode=verify-full") {
				t.Errorf("Open(%q) with NotifyDSN %q: %v, want refused=%v", c.dsn, c.notify, err, refused)
			}
		}
	}
}

// The environment and a service file supply the parts that a connection string omits, and do not
// permit plaintext to another machine either.
func TestPlaintextFromEnvironment(t *testing.T) {
	ended, stop := context.WithCancel(t.Context())
	stop()
	services := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(services, []byte("[far]\nhost=db.example.com\nuser=u\n[tls]\nhost=db.example.com\nuser=u\nsslmode=verify-full\n[near]\nhost=/tmp\nuser=u\n[plain]\nhost=db.example.com\nsslmode=disable\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env, dsn string
		refused  bool
	}{
		{"PGHOST=db.example.com", "", true},
		{"PGHOST=db.example.com", "dbname=d", true},
		{"PGHOST=/tmp", "", false},
		{"PGHOST=/tmp,db.example.com", "", true},
		{"PGHOST=db.example.com PGSSLMODE=prefer", "", true},
		{"PGHOST=db.example.com PGSSLMODE=verify-full", "", false},
		{"PGHOST=db.example.com PGSSLMODE=disable", "", false},
		{"PGSSLMODE=allow", "postgres://db.example.com/d", true},
		{"PGSSLMODE=require", "postgres://db.example.com/d", false},
		{"PGSSLMODE=verify-full", "postgres://db.example.com/d?sslmode=prefer", true},
		{"PGSSLMODE=prefer", "postgres://db.example.com/d?sslmode=verify-full", false},
		{"PGHOSTADDR=192.0.2.1", "postgres://localhost/d", false}, // not used
		{"PGHOST=db.example.com", "postgres://localhost/d", false},
		{"PGSERVICE=far", "", true},
		{"", "service=far", true},
		{"", "service=far sslmode=verify-full", false},
		{"PGSSLMODE=verify-full", "service=far", false},
		{"", "postgres:///d?service=far", true},
		{"", "service=tls", false},
		{"", "service=near", false},
		{"", "service=near host=db.example.com", true},
		{"", "service=plain", false},
	} {
		t.Run(c.env+" "+c.dsn, func(t *testing.T) {
			for _, name := range []string{"PGHOST", "PGSSLMODE", "PGHOSTADDR", "PGSERVICE"} {
				t.Setenv(name, "")
			}
			t.Setenv("PGSERVICEFILE", services)
			for setting := range strings.FieldsSeq(c.env) {
				name, value, _ := strings.Cut(setting, "=")
				t.Setenv(name, value)
			}
			_, err := postgres.Open(ended, c.dsn, postgres.Config{})
			if got := errors.Is(err, postgres.ErrDSN); got != c.refused || got && !strings.Contains(err.Error(), "sslmode=verify-full") {
				t.Errorf("Open with the environment %q: %v, want refused=%v", c.env, err, c.refused)
			}
		})
	}
}
