// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/cmd/refold/operator/pgjournal"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/plugins/postgres"
)

// on opens an address for writing, and closes it when the test ends.
func on(t *testing.T, address string) *operator.Source {
	t.Helper()
	env := operator.NewEnv(pgjournal.Database())
	s, err := env.OpenTarget(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestCopyBetweenPlugins copies between all kinds of journals.
func TestCopyBetweenPlugins(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	schema := "&schema="
	if !strings.Contains(dsn, "?") {
		schema = "?schema="
	}
	from := memory()
	fill(t, from, 15, 9)
	// To another plugin, to the same one, and back.
	for i, to := range []string{
		dsn, dsn + schema + "other", "leveldb:" + t.TempDir(), "leveldb:" + t.TempDir(), dsn + schema + "third",
	} {
		target := on(t, to)
		if report := copied(t, from, target); report.IDs != 15 {
			t.Errorf("copy %d: %+v, want 15 IDs", i, report)
		}
		from = target
	}
}

// A copy to PostgreSQL continues after a failure of any step. The test uses some of the steps of
// TestCopyInterruptedAtEachStep.
func TestCopyToPostgresInterrupted(t *testing.T) {
	t.Parallel()
	from, to := memory(), on(t, pgtest.DSN(t))
	fill(t, from, 12, 10)
	for step := int64(1); ; step += 7 {
		faulty := &faultyTarget{step: step, done: step%2 == 0}
		if _, err := operator.Copy(t.Context(), from, faulty.wrap(to), operator.CopyOptions{Parallel: 2}); err == nil {
			break
		}
	}
	copied(t, from, to)
}

// TestCommandsOnPostgres runs all commands on a database.
func TestCommandsOnPostgres(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	f := bank(t)
	f.close()
	p := operator.Program{Journal: dsn, Entities: []operator.Linked{operator.Entity(accountType())}}
	for _, command := range []string{"events", "snapshots", "verify", "rebuild account|1", "tail"} {
		start(t, p, strings.Fields(command)...).want(t, operator.ExitFailed, "the migrate command applies the missing migrations")
	}
	o := start(t, p, "migrate", "--check", "--journal", dsn)
	o.want(t, operator.ExitProblems, "")
	if !strings.HasPrefix(o.stdout, "missing: 001_journal\n") {
		t.Errorf("migrate --check printed %q, want a missing 001_journal first", o.stdout)
	}
	o = start(t, p, "migrate", "--journal", dsn)
	o.want(t, operator.ExitOK, "")
	if !strings.HasPrefix(o.stdout, "applied: 001_journal\n") {
		t.Errorf("migrate printed %q, want an applied 001_journal first", o.stdout)
	}
	for _, args := range []string{"", "--check"} {
		o = start(t, p, append([]string{"migrate", "--journal", dsn}, strings.Fields(args)...)...)
		o.want(t, operator.ExitOK, "")
		if o.stdout != "up to date\n" {
			t.Errorf("migrate %s of a migrated database printed %q, want \"up to date\"", args, o.stdout)
		}
	}
	start(t, p, "copy", "leveldb:"+f.dir, dsn).want(t, operator.ExitOK, "")
	// The commands print the same output as for the source.
	source := operator.Program{Journal: "leveldb:" + f.dir, Entities: p.Entities}
	for _, command := range []string{
		"events", "events --after account|1 --json", "events account|1 --all", "events account|3 --json", "events ledger|main", "snapshots",
		"snapshots account|1 --show 3", "verify --digest", "verify account|3", "rebuild account|1", "rebuild account|1 --without 2", "rebuild account|9",
	} {
		want, got := start(t, source, strings.Fields(command)...), start(t, p, strings.Fields(command)...)
		if got != want {
			t.Errorf("%s: on PostgreSQL %+v, on LevelDB %+v", command, got, want)
		}
	}
	o = start(t, p, "tail", "--no-follow", "--json", "--tag", "large")
	if o.status != operator.ExitOK || !strings.Contains(o.stdout, `"id":"account|1","sequence_nr":2`) || strings.Count(o.stdout, "\n") != 1 {
		t.Errorf("tail printed %+v, want event 2 of account|1", o)
	}
}

// A role that may only read can run the commands that only read.
func TestReadOnlyRole(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	start(t, operator.Program{}, "migrate", "--journal", dsn).want(t, operator.ExitOK, "")
	for _, statement := range []string{
		`CREATE ROLE reader_of_refold LOGIN PASSWORD 'sesame'`,
		`GRANT USAGE ON SCHEMA refold TO reader_of_refold`,
		`GRANT SELECT ON ALL TABLES IN SCHEMA refold TO reader_of_refold`,
		`GRANT SELECT ON ALL SEQUENCES IN SCHEMA refold TO reader_of_refold`,
	} {
		execute(t, dsn, statement)
	}
	t.Cleanup(func() {
		execute(t, dsn, `DROP OWNED BY reader_of_refold`)
		execute(t, dsn, `DROP ROLE reader_of_refold`)
	})
	reader := pgtest.With(t, dsn, map[string]string{"user": "reader_of_refold", "password": "sesame"})
	start(t, operator.Program{}, "copy", "leveldb:"+bankDir(t), reader).want(t, operator.ExitFailed, "lacks a right")
	f := bank(t)
	f.close()
	start(t, operator.Program{}, "copy", "leveldb:"+f.dir, dsn).want(t, operator.ExitOK, "")
	for _, command := range []string{"events", "events account|1", "snapshots", "verify --digest", "tail --no-follow"} {
		if o := start(t, operator.Program{Journal: reader}, strings.Fields(command)...); o.status != operator.ExitOK {
			t.Errorf("%s with a read-only role: %+v, want exit status %d", command, o, operator.ExitOK)
		}
	}
}

// execute runs a statement.
func execute(t *testing.T, dsn, statement string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.PgConn().Exec(ctx, statement).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// The statements of --print have the effect of migrate.
func TestMigrateByHand(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"refold", "My-own"} {
		dsn := pgtest.DSN(t)
		o := start(t, operator.Program{}, "migrate", "--print", "--schema", schema)
		o.want(t, operator.ExitOK, "")
		// Another role may have created functions in the schema public.
		execute(t, dsn, "CREATE FUNCTION public.setval(text, integer) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$hostile code runs$$; END'")
		execute(t, dsn, "BEGIN;\n"+o.stdout+"COMMIT;")
		missing, err := postgres.Migrate(t.Context(), dsn, postgres.Config{Schema: schema, CheckOnly: true})
		if err != nil || len(missing) > 0 {
			t.Errorf("schema %s: missing migrations %v, error %v; want none", schema, missing, err)
		}
		db, err := postgres.Open(t.Context(), dsn, postgres.Config{Schema: schema, CheckOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		s := &operator.Source{Journal: db.Journal(), Snapshots: db.Snapshots(), Close: db.Close}
		fill(t, s, 3, 1)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The statements of --print need no right but that of the owner of the schema.
func TestMigrateByHandAsOwner(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Start(t, pgtest.Config{}).DSN(t)
	execute(t, dsn, "CREATE ROLE refold_owner LOGIN; CREATE SCHEMA refold AUTHORIZATION refold_owner")
	owner := pgtest.With(t, dsn, map[string]string{"user": "refold_owner"})
	o := start(t, operator.Program{}, "migrate", "--print")
	o.want(t, operator.ExitOK, "")
	execute(t, owner, "BEGIN;\n"+o.stdout+"COMMIT;")
	if missing, err := postgres.Migrate(t.Context(), owner, postgres.Config{CheckOnly: true}); err != nil || len(missing) > 0 {
		t.Errorf("missing migrations %v, error %v; want none", missing, err)
	}
}

func TestMigrateUsage(t *testing.T) {
	t.Parallel()
	start(t, operator.Program{}, "migrate", "--check", "--print").want(t, operator.ExitFailed, "exclude each other")
	start(t, operator.Program{}, "migrate", "--schema", "other").want(t, operator.ExitFailed, "?schema=NAME")
	start(t, operator.Program{}, "migrate", "--journal", "leveldb:x").want(t, operator.ExitFailed, "has nothing to migrate")
	start(t, operator.Program{}, "migrate", "--journal", "x").want(t, operator.ExitFailed, "has nothing to migrate")
	start(t, operator.Program{}, "migrate", "--journal", "postgres:x").want(t, operator.ExitFailed, "expected postgres://")
	start(t, operator.Program{}, "migrate", "--journal", "postgres://ada:sesame@127.0.0.1:1/x").want(t, operator.ExitFailed, "is unavailable")
}
