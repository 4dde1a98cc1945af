// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/snapshot"
)

// attempts are statements that the server must reject for a role without rights in the schema refold,
// and also for one with USAGE on it. HIGHEST, EVENTS and ORDINALS stand for the OIDs of objects, and
// PID for a process of the application.
func attempts() []string {
	const (
		one  = `1, 'works', 1::bigint, 1::smallint, now(), 'w', 'm', ''::bytea, NULL::text[], NULL::bytea`
		many = `1, '{works}'::text[], '{1}'::bigint[], '{1}'::int[], '{works}'::text[], '{2}'::bigint[], '{1}'::smallint[], '{now}'::timestamptz[], '{w}'::text[], '{m}'::text[], '{""}'::bytea[], NULL::text[], NULL::bytea[]`
	)
	all := []string{
		// Data
		`INSERT INTO refold.events (id, seq_nr, ordinal, slice, at, writer, manifest, payload) VALUES ('works', 2, 2, 1, now(), 'w', 'm', '')`,
		`UPDATE refold.events SET payload = ''`,
		`INSERT INTO refold.tags VALUES ('tag', 1)`,
		`INSERT INTO refold.deletions VALUES ('works', 100)`,
		`INSERT INTO refold.snapshots VALUES ('works', 1, now(), '', '', 0)`,
		`UPDATE refold.snapshots SET seq_nr = 1000`,
		`UPDATE refold.projections SET at_offset = ''`,
		`INSERT INTO refold.migrations VALUES (1000, 'x')`,
		`COPY refold.events TO STDOUT`,
		`COPY refold.events FROM STDIN`,
		`WITH x AS (DELETE FROM refold.events RETURNING *) SELECT * FROM x`,
		`SELECT * FROM refold.events FOR UPDATE`,
		`PREPARE p AS SELECT * FROM refold.events; EXECUTE p`,
		`DECLARE c CURSOR WITH HOLD FOR SELECT * FROM refold.events`,
		`SELECT lo_import('/etc/passwd')`,
		`SELECT query_to_xml('SELECT * FROM refold.events', true, true, '')`,
		// Functions
		`SELECT refold.append_one(` + one + `)`,
		`SELECT refold.append_many(` + many + `)`,
		`SELECT refold.highest('works')`,
		`CREATE FUNCTION refold.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'`,
		`CREATE FUNCTION refold.append_one(integer, text, bigint, integer, timestamptz, text, text, bytea, text[], bytea) RETURNS bigint LANGUAGE sql AS 'SELECT NULL::bigint'`,
		`CREATE OR REPLACE FUNCTION refold.highest(_id text) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'`,
		`ALTER FUNCTION refold.highest RESET search_path`,
		`ALTER FUNCTION refold.highest OWNER TO hostile`,
		`ALTER FUNCTION refold.append_one SECURITY DEFINER`,
		`DROP FUNCTION refold.append_many`,
		`GRANT EXECUTE ON FUNCTION refold.highest TO hostile`,
		`CREATE FUNCTION pg_catalog.upper(integer) RETURNS text LANGUAGE sql AS $$SELECT ''$$`,
		`CREATE OPERATOR pg_catalog.= (LEFTARG = bigint, RIGHTARG = text, FUNCTION = int8eq)`,
		`CREATE FUNCTION public.native() RETURNS int LANGUAGE c AS 'libc', 'abort'`,
		`CREATE FUNCTION public.native() RETURNS int LANGUAGE internal AS 'int4pl'`,
		`CREATE CAST (bigint AS text) WITHOUT FUNCTION`,
		`CREATE CAST (text AS bytea) WITH INOUT AS IMPLICIT`,
		`CREATE OPERATOR CLASS public.evil DEFAULT FOR TYPE text USING btree AS OPERATOR 3 =`,
		`CREATE EVENT TRIGGER evil ON ddl_command_start EXECUTE FUNCTION suppress_redundant_updates_trigger()`,
		// The sequence
		`SELECT last_value FROM refold.ordinals`,
		`SELECT nextval('refold.ordinals')`,
		`SELECT nextval(ORDINALS::regclass)`,
		`SELECT setval('refold.ordinals', 1)`,
		`SELECT setval(ORDINALS::regclass, 1)`,
		`SELECT currval(ORDINALS::regclass)`,
		`ALTER SEQUENCE refold.ordinals CACHE 1000`,
		`ALTER SEQUENCE refold.ordinals RESTART`,
		// Definitions
		`CREATE TRIGGER evil BEFORE INSERT ON refold.events FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`,
		`CREATE RULE evil AS ON INSERT TO refold.events DO INSTEAD NOTHING`,
		`CREATE POLICY evil ON refold.events`,
		`CREATE INDEX ON refold.events (writer)`,
		`CREATE INDEX ON refold.events (hostile.mine(id))`,
		`CREATE STATISTICS public.evil ON id, writer FROM refold.events`,
		`CREATE TABLE public.child () INHERITS (refold.events)`,
		`CREATE TABLE public.referrer (id text, seq_nr bigint, FOREIGN KEY (id, seq_nr) REFERENCES refold.events)`,
		`CREATE TABLE refold.mine (id text)`,
		`CREATE PUBLICATION evil FOR TABLE refold.events`,
		`ALTER TABLE refold.events DISABLE TRIGGER ALL`,
		`ALTER TABLE refold.events ENABLE ROW LEVEL SECURITY`,
		`ALTER TABLE refold.events DROP CONSTRAINT events_pkey`,
		`ALTER TABLE refold.events ALTER COLUMN ordinal SET DEFAULT hostile.mine('')`,
		`ALTER TABLE refold.events RENAME TO stolen`,
		`ALTER TABLE refold.events SET SCHEMA public`,
		`ALTER TABLE refold.events OWNER TO hostile`,
		`ALTER TABLE refold.events SET UNLOGGED`,
		`COMMENT ON TABLE refold.events IS 'mine'`,
		`REINDEX TABLE refold.events`,
		`CLUSTER refold.events USING events_pkey`,
		`ALTER SCHEMA refold RENAME TO stolen`,
		`ALTER SCHEMA refold OWNER TO hostile`,
		`DROP SCHEMA refold CASCADE`,
		`REVOKE ALL ON refold.events FROM app`,
		`CREATE SCHEMA pg_hostile`,
		`CREATE SCHEMA evil`,
		// Roles, settings and sessions
		`SET ROLE app`,
		`SET ROLE refold_owner`,
		`SET SESSION AUTHORIZATION app`,
		`GRANT app TO hostile`,
		`GRANT pg_write_server_files TO hostile`,
		`CREATE ROLE evil SUPERUSER`,
		`ALTER ROLE app SET search_path = public, pg_catalog`,
		`ALTER ROLE ALL SET search_path = public, pg_catalog`,
		`ALTER ROLE app PASSWORD 'known'`,
		`ALTER ROLE app NOLOGIN`,
		`ALTER DEFAULT PRIVILEGES FOR ROLE refold_owner GRANT ALL ON TABLES TO hostile`,
		`REASSIGN OWNED BY app TO hostile`,
		`DROP OWNED BY app`,
		`ALTER DATABASE DATABASE SET search_path = public, pg_catalog`,
		`ALTER DATABASE DATABASE RENAME TO stolen`,
		`ALTER DATABASE DATABASE CONNECTION LIMIT 0`,
		`ALTER SYSTEM SET synchronous_commit = off`,
		`SET session_replication_role = replica`,
		`SET zero_damaged_pages = on`,
		`LOAD '$libdir/evil'`,
		`DO LANGUAGE internal 'x'`,
		`COPY (SELECT 1) TO PROGRAM 'true'`,
		`SELECT pg_read_file('postgresql.conf')`,
		`SELECT pg_reload_conf()`,
		`SELECT pg_switch_wal()`,
		`SELECT pg_promote()`,
		`SELECT pg_stat_reset()`,
		`SELECT pg_create_restore_point('x')`,
		`SELECT pg_create_logical_replication_slot('evil', 'pgoutput')`,
		`SELECT pg_terminate_backend(PID)`,
		`SELECT pg_cancel_backend(PID)`,
		`CHECKPOINT`,
	}
	for _, table := range []string{"events", "tags", "deletions", "snapshots", "projections", "migrations"} {
		all = append(all, `SELECT * FROM refold.`+table, `DELETE FROM refold.`+table, `TRUNCATE refold.`+table,
			`BEGIN; LOCK TABLE refold.`+table+` IN ACCESS SHARE MODE`, `BEGIN; LOCK TABLE refold.`+table+` IN ACCESS EXCLUSIVE MODE`,
			`ALTER TABLE refold.`+table+` ADD COLUMN evil text`, `DROP TABLE refold.`+table, `GRANT ALL ON refold.`+table+` TO hostile`)
	}
	return all
}

// harmless are statements that the server executes for a role with USAGE on the schema refold,
// without an effect on the schema or on the application.
func harmless() []string {
	return []string{
		`VACUUM refold.events`,
		`ANALYZE refold.events`,
		`GRANT ALL ON SCHEMA refold TO PUBLIC`,
		`CREATE TEMP TABLE events (id text)`,
		`CREATE TEMP SEQUENCE ordinals`,
		`CREATE TEMP VIEW stolen AS SELECT 1 FROM refold.events`,
		`CREATE VIEW public.stolen AS SELECT * FROM refold.events`,
		`CREATE FUNCTION public.stolen() RETURNS bigint SECURITY DEFINER LANGUAGE sql AS 'SELECT refold.highest(''works'')'`,
		`GRANT EXECUTE ON FUNCTION hostile.mine TO app`,
		`CREATE DOMAIN pg_temp.int8 AS pg_catalog.int8 CHECK (hostile.mine('x') = 'y')`,
		`ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app`,
		`SET client_min_messages = error`,
		`SET synchronous_commit = off`,
		`ALTER ROLE hostile SET client_min_messages = error`,
		`SELECT pg_relation_size(c.oid), c.* FROM pg_class c`,
		`SELECT * FROM pg_stats WHERE schemaname = 'refold'`,
		`SELECT * FROM pg_locks, pg_stat_activity`,
		`SELECT pg_logical_emit_message(true, 'refold', repeat('x', 1000000))`,
		`SELECT pg_notify('` + postgres.Channel("refold") + `', 'forged')`,
		`LISTEN ` + postgres.Channel("refold"),
	}
}

// A role that can connect to the database, create objects in public and in its own schema, and use
// the schema refold, can neither read nor change anything in it.
func TestHostileStatements(t *testing.T) {
	t.Parallel()
	dsn, hostile := hostileServer(t, pgtest.Config{})
	migrated(t, dsn)
	app := openStore(t, as(t, dsn, "app"), postgres.Config{CheckOnly: true})
	works(t, app, "works")
	admin := connect(t, dsn)
	before := contents(t, admin)
	var ordinals, pid string
	if err := admin.QueryRow(t.Context(), "SELECT 'refold.ordinals'::regclass::oid::text, (SELECT pid::text FROM pg_stat_activity WHERE usename = 'app' LIMIT 1)").Scan(&ordinals, &pid); err != nil {
		t.Fatal(err)
	}
	values := strings.NewReplacer("ORDINALS", ordinals, "PID", pid, "DATABASE DATABASE", "DATABASE "+name(t, dsn))
	count := 0
	for _, usage := range []bool{false, true} {
		if usage {
			execute(t, connect(t, as(t, dsn, "refold_owner")), "GRANT USAGE ON SCHEMA refold TO hostile")
		}
		for _, sql := range attempts() {
			conn := connect(t, hostile) // a statement must not depend on the session of another one
			if count == 0 {
				execute(t, conn, "CREATE FUNCTION hostile.mine(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1'")
				execute(t, conn, "ALTER ROLE hostile SET search_path = hostile, refold, public, pg_catalog")
			}
			_, err := conn.Exec(t.Context(), values.Replace(sql), pgx.QueryExecModeSimpleProtocol)
			if !denied(err) {
				t.Errorf("%s, with USAGE on the schema: %v: %v, want a denial", sql, usage, err)
			}
			_ = conn.Close(t.Context())
			count++
		}
		for _, sql := range harmless() {
			conn := connect(t, hostile)
			if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil && (usage || !denied(err)) {
				t.Errorf("%s, with USAGE on the schema: %v: %v, want success", sql, usage, err)
			}
			_ = conn.Close(t.Context())
			count++
		}
	}
	t.Logf("%d attempts of a hostile role", count)
	if after := contents(t, admin); after != before {
		t.Errorf("the schema has changed from\n%s\nto\n%s", before, after)
	}
	works(t, app, "still works")
}

// denied reports whether the server rejected a statement for a missing right.
func denied(err error) bool {
	rejected, ok := errors.AsType[*pgconn.PgError](err)
	return ok && rejected.Code == "42501"
}

// contents returns a description of the objects and the rows of the schema refold.
func contents(t *testing.T, admin *pgx.Conn) (all string) {
	t.Helper()
	err := admin.QueryRow(t.Context(), `SELECT string_agg(x, E'\n' ORDER BY x) FROM (
		SELECT e.*::text FROM refold.events e UNION ALL SELECT t.*::text FROM refold.tags t UNION ALL SELECT d.*::text FROM refold.deletions d
		UNION ALL SELECT s.*::text FROM refold.snapshots s UNION ALL SELECT p.*::text FROM refold.projections p UNION ALL SELECT m.*::text FROM refold.migrations m
		UNION ALL SELECT concat(relname, relkind, relowner::regrole, relacl, relhastriggers, relhasrules, relrowsecurity) FROM pg_class WHERE relnamespace = 'refold'::regnamespace
		UNION ALL SELECT concat(nspname, nspowner::regrole, array_remove(nspacl, 'hostile=U/refold_owner')) FROM pg_namespace WHERE nspname = 'refold'
		UNION ALL SELECT concat(proname, prosecdef, proconfig, proacl, md5(prosrc)) FROM pg_proc WHERE pronamespace = 'refold'::regnamespace) AS x(x)`).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// works writes, reads and deletes events and snapshots of a new ID.
func works(t *testing.T, db *postgres.DB, id string) {
	t.Helper()
	j, snapshots := db.TestJournal(), db.TestSnapshots()
	from, err := j.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	store(t, j, eventsOf(id, 0, 1, "tag"))
	store(t, j, eventsOf(id, 1, 2), eventsOf(id+"+", 0, 1, "tag"))
	for n := 1; n <= 2; n++ {
		if errs := j.Append(t.Context(), []journal.Write{eventsOf(id, 2, n)}); errs == nil || !errors.Is(errs[0], journal.ErrConflict) {
			t.Errorf("append of %d events after other ones: %v, want a conflict", n, errs)
		}
	}
	if n := replayed(t, j, id); n != 3 {
		t.Errorf("replayed %d events of %q, want 3", n, id)
	}
	if found, _ := readAll(t, j, journal.Criteria{}, from); len(found) != 4 {
		t.Errorf("read %v, want the 4 new events", named(found))
	}
	if found, _ := readAll(t, j, journal.Criteria{Tag: "tag"}, from); len(found) != 2 {
		t.Errorf("read %v, want the 2 new events with the tag", named(found))
	}
	snap := snapshot.Snapshot{Metadata: snapshot.Metadata{ID: id, SequenceNr: 3, Time: time.Unix(1, 0).UTC()}, Payload: []byte(id)}
	if err := snapshots.Save(t.Context(), snap); err != nil {
		t.Error(err)
	}
	if found, err := snapshots.Load(t.Context(), id, snapshot.Latest()); err != nil || string(found.Payload) != id {
		t.Errorf("loaded %q, %v, want %q", found.Payload, err, id)
	}
	if err := j.DeleteTo(t.Context(), id, 1); err != nil {
		t.Error(err)
	}
	if n := replayed(t, j, id); n != 2 {
		t.Errorf("replayed %d events of %q after a deletion, want 2", n, id)
	}
}

func replayed(t *testing.T, j journal.Journal, id string) (n int) {
	t.Helper()
	for e, err := range j.Replay(t.Context(), id, 1, journal.MaxSequenceNr) {
		if err != nil || string(e.Payload) != fmt.Sprintf("%s/%d", id, e.SequenceNr) {
			t.Errorf("replay of %q: %q, %v", id, e.Payload, err)
		}
		n++
	}
	return n
}

// blocked starts a call, cancels it when it waits, and returns its error.
func blocked(t *testing.T, waits func() bool, call func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outcome := make(chan error, 1)
	go func() { outcome <- call(ctx) }()
	until(t, "a call that waits for a lock of the hostile role", waits)
	select {
	case err := <-outcome:
		t.Errorf("the call did not wait: %v", err)
		return err
	default:
	}
	cancel()
	return <-outcome
}

// Advisory locks of a hostile role delay calls, as docs/postgres.md describes. A call that ends
// meanwhile has not stored anything, and readers skip no event.
func TestHostileLocks(t *testing.T) {
	t.Parallel()
	dsn, hostile := hostileServer(t, pgtest.Config{Settings: map[string]string{"max_locks_per_transaction": "10"}})
	migrated(t, dsn)
	app := openStore(t, as(t, dsn, "app"), postgres.Config{CheckOnly: true})
	j := app.TestJournal()
	works(t, app, "before")
	admin, evil := connect(t, dsn), connect(t, hostile)
	class := postgres.LockClass("refold")
	lastOrdinal := func() (last int32) {
		t.Helper()
		if err := admin.QueryRow(t.Context(), "SELECT last_value::int FROM refold.ordinals").Scan(&last); err != nil {
			t.Fatal(err)
		}
		return last
	}
	query := func(sql string, args ...any) func() bool {
		return func() (found bool) {
			t.Helper()
			if err := admin.QueryRow(t.Context(), sql, args...).Scan(&found); err != nil {
				t.Error(err)
			}
			return found
		}
	}
	waits := query("SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)")
	unlock := func() { execute(t, evil, "SELECT pg_advisory_unlock_all()") }

	// The key of the next append, and keys of later ones.
	execute(t, evil, "SELECT pg_advisory_lock($1::int, k) FROM generate_series($2::int, $2::int + 20) k", class, lastOrdinal())
	for n := 1; n <= 2; n++ {
		w := eventsOf(fmt.Sprintf("blocked %d", n), 0, n)
		err := blocked(t, func() bool {
			var visible int
			if err := evil.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND query <> '<insufficient privilege>'").Scan(&visible); err != nil || visible > 0 {
				t.Errorf("the hostile role reads %d statements of the application, %v", visible, err)
			}
			return waits()
		}, func(ctx context.Context) error { return errors.Join(j.Append(ctx, []journal.Write{w})...) })
		if !journal.NotStored(err) || !errors.Is(err, context.Canceled) {
			t.Errorf("append that waits for a lock: %v, want not stored, canceled", err)
		}
	}
	if found, _ := readAll(t, j, journal.Criteria{}, ""); len(found) != 3 {
		t.Errorf("read %v, want the 3 events before the locks", named(found))
	}
	marked := query("SELECT deleted_to = 2 FROM refold.deletions WHERE id = 'before'")
	if err := blocked(t, marked, func(ctx context.Context) error { return j.DeleteTo(ctx, "before", 2) }); !errors.Is(err, context.Canceled) {
		t.Errorf("deletion that waits for a lock: %v, want canceled", err)
	}
	unlock()
	if err := j.DeleteTo(t.Context(), "before", 2); err != nil {
		t.Error(err)
	}
	works(t, app, "after exclusive locks")

	// Old keys delay readers.
	_, end := readAll(t, j, journal.Criteria{}, "")
	execute(t, evil, "SELECT pg_advisory_lock_shared($1::int, k) FROM generate_series(0, 20) k", class)
	store(t, j, eventsOf("delayed", 0, 3))
	if found, next := readAll(t, j, journal.Criteria{}, end); len(found) != 0 || next != end {
		t.Errorf("read %v, want nothing below an old lock", named(found))
	}
	unlock()
	if found, _ := readAll(t, j, journal.Criteria{}, end); len(found) != 3 {
		t.Errorf("read %v after the end of an old lock, want 3 events", named(found))
	}

	// Keys that no append has used yet delay only deletions.
	execute(t, evil, "SELECT pg_advisory_lock_shared($1::int, k) FROM unnest(ARRAY[$2::int + 1000, 2147483647, 1073741824, -1]) k", class, lastOrdinal())
	store(t, j, eventsOf("beside", 0, 1))
	if found, _ := readAll(t, j, journal.Criteria{}, end); len(found) != 4 {
		t.Errorf("read %v beside locks of other keys, want 4 events", named(found))
	}
	unlock()

	// The lock of the migrations.
	execute(t, evil, "SELECT pg_advisory_lock($1)", postgres.MigrationLock("second"))
	migrate := func(ctx context.Context) error {
		_, err := postgres.Migrate(ctx, dsn, postgres.Config{Schema: "second"})
		return err
	}
	if err := blocked(t, waits, migrate); !errors.Is(err, context.Canceled) {
		t.Errorf("migration that waits for a lock: %v, want canceled", err)
	}
	openStore(t, as(t, dsn, "app"), postgres.Config{CheckOnly: true}) // needs no lock
	unlock()
	if err := migrate(t.Context()); err != nil {
		t.Error(err)
	}

	// The table of locks is full.
	if _, err := evil.Exec(t.Context(), "SELECT pg_advisory_lock(k) FROM generate_series(1, 1000000) k"); err == nil {
		t.Error("a role could take a million locks")
	}
	for i := range 20 {
		w := eventsOf(fmt.Sprintf("full %d", i), 0, 1)
		if err := errors.Join(j.Append(t.Context(), []journal.Write{w})...); err != nil && !journal.NotStored(err) {
			t.Errorf("append without space for locks: %v, want not stored", err)
		}
	}
	unlock()
	works(t, app, "after many locks")
}

// Notifications of a hostile role wake readers, no more. A reader finds an event that follows them
// through the notification of the application.
func TestHostileNotifications(t *testing.T) {
	t.Parallel()
	dsn, hostile := hostileServer(t, pgtest.Config{})
	migrated(t, dsn)
	app := as(t, dsn, "app")
	writing := openStore(t, app, postgres.Config{CheckOnly: true})
	reading := openStore(t, app, postgres.Config{CheckOnly: true, PollInterval: never})
	j := reading.TestJournal()
	woken := awaiting(t.Context(), j, "")
	listening(t, dsn)
	evil := connect(t, hostile)
	execute(t, evil, "LISTEN "+postgres.Channel("refold"))
	before := reading.Refreshes()
	const forged = 10_000
	for payload, count := range map[string]int{"''": 100, "lpad(n::text, 7999, 'x')": forged / 10, "n || chr(1)": forged} {
		execute(t, evil, "SELECT count(pg_notify($1, "+payload+")) FROM generate_series(1, $2::int) n", postgres.Channel("refold"), count)
	}
	select {
	case err := <-woken:
		t.Errorf("a forged notification ended Await: %v", err)
	default:
	}
	store(t, writing.TestJournal(), eventsOf("a", 0, 1))
	if err := <-woken; err != nil {
		t.Error(err)
	}
	if found, _ := readAll(t, j, journal.Criteria{}, ""); len(found) != 1 {
		t.Errorf("read %v, want 1 event", named(found))
	}
	if n := reading.Refreshes() - before; n > forged/10 {
		t.Errorf("%d forged notifications caused %d refreshes", forged, n)
	}
	works(t, writing, "works")
}

// A role that may create schemas cannot prepare the schema of the journal in advance.
func TestHostileOwner(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Start(t, pgtest.Config{}).DSN(t)
	admin := connect(t, dsn)
	for _, sql := range []string{"CREATE ROLE hostile LOGIN", "CREATE ROLE team", "CREATE ROLE member LOGIN IN ROLE team", "GRANT CREATE ON DATABASE " + name(t, dsn) + " TO hostile, team, member"} {
		execute(t, admin, sql)
	}
	evil := connect(t, as(t, dsn, "hostile"))
	execute(t, evil, "CREATE SCHEMA squatted")
	execute(t, evil, "GRANT ALL ON SCHEMA squatted TO PUBLIC")
	for _, role := range []string{"postgres", "member"} {
		_, err := postgres.Migrate(t.Context(), as(t, dsn, role), postgres.Config{Schema: "squatted"})
		if !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), "hostile") {
			t.Errorf("migration of a schema of another role as %s: %v, want ErrSchema with its owner", role, err)
		}
	}
	for schema, role := range map[string]string{"s1": "postgres", "s2": "member", "s3": "team"} {
		execute(t, admin, "CREATE SCHEMA "+schema+" AUTHORIZATION "+role)
		execute(t, admin, "GRANT ALL ON SCHEMA "+schema+" TO member")
		if _, err := postgres.Migrate(t.Context(), as(t, dsn, "member"), postgres.Config{Schema: schema}); err != nil {
			t.Errorf("migration of a schema of %s as member: %v", role, err)
		}
	}
}

// The rights of docs/postgres.md suffice for all calls of the application, and those of the owner for
// all migrations. Each right is necessary.
func TestDocumentedRights(t *testing.T) {
	t.Parallel()
	dsn, _ := hostileServer(t, pgtest.Config{})
	migrated(t, dsn)
	app := as(t, dsn, "app")
	listener := openStore(t, app, postgres.Config{CheckOnly: true, PollInterval: never})
	woken := awaiting(t.Context(), listener.TestJournal(), "")
	listening(t, dsn)
	db := openStore(t, app, postgres.Config{CheckOnly: true})
	everything(t, db)
	if err := <-woken; err != nil {
		t.Error(err)
	}
	positions(t, app)
	if _, err := postgres.Open(t.Context(), app, postgres.Config{Schema: "other"}); !errors.Is(err, postgres.ErrDenied) {
		t.Errorf("migration as the application: %v, want ErrDenied", err)
	}
	owner := connect(t, as(t, dsn, "refold_owner"))
	for _, grant := range documented(t, "GRANT ") {
		revoke := strings.NewReplacer("GRANT ", "REVOKE ", " TO ", " FROM ").Replace(grant)
		execute(t, owner, revoke)
		if errs := db.TestJournal().Append(t.Context(), []journal.Write{eventsOf("z", 0, 1, "tag")}); errs == nil || !errors.Is(errs[0], postgres.ErrDenied) || !journal.NotStored(errs[0]) {
			t.Errorf("append after %s: %v, want ErrDenied, not stored", revoke, errs)
		}
		execute(t, owner, grant)
	}
	store(t, db.TestJournal(), eventsOf("z", 0, 1, "tag"))
}

// A migration of an older schema lets the application keep its right to execute the functions.
func TestMigrationKeepsRights(t *testing.T) {
	t.Parallel()
	dsn, _ := hostileServer(t, pgtest.Config{})
	owner := connect(t, as(t, dsn, "refold_owner"))
	for _, m := range postgres.Migrations()[:5] {
		if _, err := owner.Exec(t.Context(), m.SQL, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(m.Name, err)
		}
	}
	for _, sql := range documented(t, "GRANT ") {
		if !strings.Contains(sql, "FUNCTIONS") {
			execute(t, owner, sql)
		}
	}
	if _, err := postgres.Migrate(t.Context(), as(t, dsn, "refold_owner"), postgres.Config{}); err != nil {
		t.Fatal(err)
	}
	everything(t, openStore(t, as(t, dsn, "app"), postgres.Config{CheckOnly: true}))
	var public bool
	if err := owner.QueryRow(t.Context(), "SELECT bool_or(has_function_privilege('hostile', oid, 'EXECUTE')) FROM pg_proc WHERE pronamespace = 'refold'::regnamespace").Scan(&public); err != nil || public {
		t.Errorf("another role may execute functions: %v, %v", public, err)
	}
}
