// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/plugins/postgres/pgprojection"
	"github.com/refold-io/refold/projection"
)

// traps creates, in the schema public, overloads of the operators and functions that Refold uses,
// with many combinations of types. An overload counts its calls in a sequence, which no rollback
// undoes, and fails.
const traps = `
DO $do$
DECLARE
	types constant text[] := '{int2,int4,int8,text,name,bool,oid,bytea,timestamptz,int4[],int8[],text[]}';
	body constant text := $b$LANGUAGE plpgsql SET search_path = pg_catalog AS $f$
		BEGIN PERFORM nextval('public.caught'); RAISE EXCEPTION 'hostile code runs'; END $f$$b$;
	l text; r text; word text;
BEGIN
	EXECUTE 'CREATE SEQUENCE public.caught';
	EXECUTE 'GRANT ALL ON SEQUENCE public.caught TO PUBLIC';
	FOREACH l IN ARRAY types LOOP
		FOREACH word IN ARRAY '{upper,current_setting,quote_ident,pg_get_userbyid}'::text[] LOOP
			EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS text %s', word, l, body);
		END LOOP;
		FOREACH word IN ARRAY '{max,min,sum,pg_advisory_xact_lock,nextval,unnest,octet_length,char_length,to_regclass,now,count,pg_is_in_recovery}'::text[] LOOP
			EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS int8 %s', word, l, body);
		END LOOP;
		FOREACH r IN ARRAY types LOOP
			EXECUTE format('CREATE FUNCTION public.left(%s, %s) RETURNS text %s', l, r, body);
			EXECUTE format('CREATE FUNCTION public.format(%s, %s) RETURNS text %s', l, r, body);
			EXECUTE format('CREATE FUNCTION public.pg_has_role(%s, %s) RETURNS bool %s', l, r, body);
			EXECUTE format('CREATE FUNCTION public.setval(%s, %s) RETURNS int8 %s', l, r, body);
			EXECUTE format('CREATE FUNCTION public.pg_notify(%s, %s) RETURNS void %s', l, r, body);
			EXECUTE format('CREATE FUNCTION public.pg_advisory_xact_lock_shared(%s, %s) RETURNS void %s', l, r, body);
			EXECUTE format('CREATE FUNCTION public.compare(%s, %s) RETURNS bool %s', l, r, body);
			FOREACH word IN ARRAY '{=,<>,<,<=,>,>=,~~}'::text[] LOOP
				EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.compare)', word, l, r);
			END LOOP;
			FOREACH word IN ARRAY '{&,+,-,||}'::text[] LOOP
				EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.setval)', word, l, r);
			END LOOP;
		END LOOP;
	END LOOP;
	-- The same signatures as in pg_catalog.
	FOREACH word IN ARRAY '{now,pg_is_in_recovery,current_database,current_user}'::text[] LOOP
		EXECUTE format('CREATE FUNCTION public.%I() RETURNS text %s', word, body);
	END LOOP;
	FOREACH word IN ARRAY '{unnest,max,min}'::text[] LOOP
		EXECUTE format('CREATE FUNCTION public.%I(anyarray) RETURNS int8 %s', word, body);
	END LOOP;
	-- Types, relations and casts.
	FOREACH word IN ARRAY '{int2,int4,int8,text,name,bool,bytea,timestamptz,regclass}'::text[] LOOP
		EXECUTE format('CREATE TYPE public.%I AS (caught pg_catalog.text)', word);
	END LOOP;
	FOREACH word IN ARRAY '{pg_class,pg_namespace,pg_locks,pg_database,pg_sequence,pg_roles,events,ordinals,migrations,projections}'::text[] LOOP
		EXECUTE format('CREATE TABLE public.%I (caught pg_catalog.int8)', word);
	END LOOP;
	EXECUTE 'CREATE TYPE public.evil AS (caught pg_catalog.text)';
	FOREACH l IN ARRAY types LOOP
		EXECUTE format('CREATE FUNCTION public.to_evil(%s) RETURNS public.evil %s', l, body);
		EXECUTE format('CREATE FUNCTION public.from_evil_%s(public.evil) RETURNS %s %s', translate(l, '[]', 's'), l, body);
		EXECUTE format('CREATE CAST (%s AS public.evil) WITH FUNCTION public.to_evil(%s) AS IMPLICIT', l, l);
		EXECUTE format('CREATE CAST (public.evil AS %s) WITH FUNCTION public.from_evil_%s(public.evil) AS IMPLICIT', l, translate(l, '[]', 's'));
	END LOOP;
	EXECUTE 'CREATE COLLATION public."C" (LC_COLLATE = ''POSIX'', LC_CTYPE = ''POSIX'')';
	EXECUTE 'CREATE DEFAULT CONVERSION public.evil FOR ''UTF8'' TO ''LATIN1'' FROM utf8_to_iso8859_1';
END $do$`

// hostileServer returns the DSN of a database with the roles of docs/postgres.md and with the role
// "hostile", which can create objects in the schemas public and hostile. It also returns the DSN of
// the latter role.
func hostileServer(t *testing.T, cfg pgtest.Config) (dsn, hostile string) {
	t.Helper()
	server := pgtest.Start(t, cfg)
	dsn = server.DSN(t)
	admin := connect(t, dsn)
	for _, sql := range append(documented(t, "CREATE "), "CREATE ROLE hostile LOGIN", "GRANT USAGE, CREATE ON SCHEMA public TO hostile", "CREATE SCHEMA hostile AUTHORIZATION hostile") {
		execute(t, admin, sql)
	}
	return dsn, as(t, dsn, "hostile")
}

// as returns the DSN of another role.
func as(t *testing.T, dsn, role string) string {
	t.Helper()
	return pgtest.With(t, dsn, map[string]string{"user": role})
}

// migrated applies the migrations and the documented rights as the owner of the schema.
func migrated(t *testing.T, dsn string) {
	t.Helper()
	owner := as(t, dsn, "refold_owner")
	if steps, err := postgres.Migrate(t.Context(), owner, postgres.Config{}); err != nil || len(steps) != len(postgres.Migrations()) {
		t.Fatalf("migrate as the owner: %d steps, %v", len(steps), err)
	}
	conn := connect(t, owner)
	for _, sql := range documented(t, "GRANT ") {
		execute(t, conn, sql)
	}
}

// documented returns the statements in docs/postgres.md that begin with a word.
func documented(t *testing.T, word string) (statements []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if sql, found := strings.CutSuffix(strings.TrimSpace(line), ";"); found && strings.HasPrefix(sql, word) {
			statements = append(statements, sql)
		}
	}
	if len(statements) < 3 {
		t.Fatalf("docs/postgres.md has %d statements %s, want at least 3", len(statements), word)
	}
	return statements
}

// trapped plants the traps and returns a function that reports whether one of them has run.
func trapped(t *testing.T, dsn, hostile string) (caught func() bool) {
	t.Helper()
	execute(t, connect(t, pgtest.With(t, hostile, map[string]string{"search_path": "pg_catalog"})), traps)
	admin := connect(t, pgtest.With(t, dsn, map[string]string{"search_path": "pg_catalog"}))
	return func() (called bool) {
		t.Helper()
		if err := admin.QueryRow(t.Context(), "SELECT is_called FROM public.caught").Scan(&called); err != nil {
			t.Fatal(err)
		}
		return called
	}
}

// No statement of the migrations or of the application runs code of a role that can create objects
// in the schema public.
func TestHostileRole(t *testing.T) {
	t.Parallel()
	dsn, hostile := hostileServer(t, pgtest.Config{})
	caught := trapped(t, dsn, hostile)
	migrated(t, dsn)
	if caught() {
		t.Error("hostile code ran in a migration of the program")
	}
	manual := connect(t, dsn) // has the search path of the server
	execute(t, manual, `CREATE SCHEMA "by-hand"`)
	for _, m := range postgres.Migrations() {
		sql := strings.ReplaceAll(m.SQL, "refold.", `"by-hand".`)
		if _, err := manual.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Error(m.Name, err)
		}
		if caught() {
			t.Fatalf("hostile code ran in %s, executed manually", m.Name)
		}
		execute(t, manual, "RESET search_path")
	}

	app := pgtest.With(t, dsn, map[string]string{"user": "app", "options": `-c search_path=public,pg_catalog`})
	for _, cached := range []bool{false, true} {
		db := openStore(t, app, postgres.Config{CheckOnly: true, CachedStatements: cached, Schema: "refold"})
		j := db.TestJournal()
		if cached { // the IDs of the first round have events
			if errs := j.Append(t.Context(), []journal.Write{eventsOf("a", 0, 2), eventsOf("b", 0, 1, "tag")}); errs == nil || !errors.Is(errs[0], journal.ErrConflict) || !errors.Is(errs[1], journal.ErrConflict) {
				t.Errorf("append after another writer: %v, want conflicts", errs)
			}
		} else {
			everything(t, db)
		}
		if got, _ := readAll(t, j, journal.Criteria{Types: []string{"a"}, Tag: "tag", Slices: journal.Slices{First: 0, Count: 512}}, ""); len(got) != 0 {
			t.Errorf("read %v, want nothing", named(got))
		}
		if err := j.Await(t.Context(), ""); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil { // sends the pending notification
			t.Error(err)
		}
	}
	positions(t, as(t, dsn, "app"))
	if caught() {
		t.Error("hostile code ran as the application")
	}

	// The functions are safe even if their caller has an unsafe search path. A comparison that always
	// is true would let the caller believe that conflicting writes were stored.
	unsafe := connect(t, dsn)
	db := openStore(t, dsn, postgres.Config{})
	for n := 1; n <= 2; n++ {
		tx := begin(t, unsafe)
		if err := db.AppendIn(t.Context(), tx, eventsOf("a", 0, n, "tag")); err == nil || err.Error() != "conflict" {
			t.Errorf("append of %d events after another writer: %v, want a conflict", n, err)
		}
		if err := errors.Join(db.AppendIn(t.Context(), tx, eventsOf("c", 0, n, "tag")), tx.Rollback(t.Context())); err != nil {
			t.Errorf("append of %d events: %v", n, err)
		}
	}
	if caught() {
		t.Error("hostile code ran in a function")
	}
	if _, err := unsafe.Exec(t.Context(), "SELECT 1::bigint & 1::integer"); err == nil || !caught() {
		t.Errorf("no trap ran in an unprotected session: %v", err)
	}
}

// positions calls all methods of a store of positions, in a session with the search path of the
// server.
func positions(t *testing.T, dsn string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	positions, err := pgprojection.NewStore(pool, pgprojection.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const name = "sums"
	all := projection.Position{Slices: journal.Slices{First: 0, Count: journal.SliceCount}}
	moved, left, right := all, all, all
	moved.Offset, left.Offset, right.Offset = "pg1:1", "pg1:1", "pg1:1"
	left.Slices.Count, right.Slices = 512, journal.Slices{First: 512, Count: 512}
	for i, m := range []projection.Move{
		{Projection: name, To: []projection.Position{all}},
		{Projection: name, From: []projection.Position{all}, To: []projection.Position{moved}},
		{Projection: name, From: []projection.Position{moved}, To: []projection.Position{left, right}},
	} {
		if err := positions.Save(t.Context(), m); err != nil {
			t.Errorf("move %d: %v", i, err)
		}
	}
	if found, err := positions.Load(t.Context(), name); err != nil || !slices.Equal(found, []projection.Position{left, right}) {
		t.Errorf("positions are %v, %v, want %v", found, err, []projection.Position{left, right})
	}
	if err := positions.Reset(t.Context(), name); err != nil {
		t.Error(err)
	}
}

func begin(t *testing.T, conn *pgx.Conn) pgx.Tx {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// Behind a proxy that drops the search path of a session, Open requires the setting of the role.
func TestProxyDropsSearchPath(t *testing.T) {
	t.Parallel()
	dsn, hostile := hostileServer(t, pgtest.Config{})
	migrated(t, dsn)
	caught := trapped(t, dsn, hostile)
	admin := connect(t, pgtest.With(t, dsn, map[string]string{"search_path": "pg_catalog"}))
	execute(t, admin, "ALTER ROLE app PASSWORD 'app'")
	proxied := pgtest.Via(t, pgtest.With(t, dsn, map[string]string{"user": "app", "password": "app"}), dropParameter(t, pgtest.Upstream(t, dsn), "search_path"))
	for _, path := range []string{`"$user", public`, "public, pg_catalog", "public, pg_catalog, pg_temp"} {
		execute(t, admin, "ALTER ROLE app SET search_path = "+path)
		open, err := postgres.Open(t.Context(), proxied, postgres.Config{CheckOnly: true})
		if err == nil {
			_ = open.Close()
		}
		if !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), "search_path") {
			t.Errorf("open with the search path %s: %v, want ErrSchema that names search_path", path, err)
		}
		if caught() {
			t.Fatalf("hostile code ran as the application, with the search path %s", path)
		}
	}
	execute(t, admin, "ALTER ROLE app SET search_path = pg_catalog, pg_temp")
	everything(t, openStore(t, proxied, postgres.Config{CheckOnly: true}))
}

// dropParameter starts a proxy for a server's socket. The proxy removes a parameter from the start
// of each session.
func dropParameter(t *testing.T, socket, parameter string) (addr string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { forwardWithout(t.Context(), client, socket, parameter) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

func forwardWithout(ctx context.Context, client net.Conn, socket, parameter string) {
	defer client.Close() //nolint:errcheck // the session is over
	server, err := new(net.Dialer).DialContext(context.WithoutCancel(ctx), "unix", socket)
	if err != nil {
		return
	}
	defer server.Close() //nolint:errcheck // the session is over
	head := make([]byte, 4)
	if _, err := io.ReadFull(client, head); err != nil {
		return
	}
	start := make([]byte, binary.BigEndian.Uint32(head)-4)
	if _, err := io.ReadFull(client, start); err != nil {
		return
	}
	fields := strings.Split(string(start[4:]), "\x00")
	kept := string(start[:4])
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] != parameter && fields[i] != "" {
			kept += fields[i] + "\x00" + fields[i+1] + "\x00"
		}
	}
	if binary.BigEndian.Uint32(start) == 3<<16 { // not a request to cancel
		start = []byte(kept + "\x00")
	}
	if _, err := server.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(start)+4)), start...)); err != nil {
		return
	}
	var running sync.WaitGroup
	running.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	_, _ = io.Copy(client, server)
	_ = client.Close()
	running.Wait()
}
