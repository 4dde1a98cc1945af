// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// traps creates, in the schema public, overloads of the operators and functions that Refold uses,
// with many combinations of types. An overload counts its calls in a sequence, which no rollback
// undoes, and fails.
const traps = `
DO $do$
DECLARE
	types constant text[] := '{int2,int4,int8,text,name,bytea,timestamptz,int4[],int8[],text[]}';
	body constant text := $b$LANGUAGE plpgsql SET search_path = pg_catalog AS $f$
		BEGIN PERFORM nextval('public.caught'); RAISE EXCEPTION 'hostile code runs'; END $f$$b$;
	l text; r text; word text;
BEGIN
	EXECUTE 'CREATE SEQUENCE public.caught';
	EXECUTE 'GRANT ALL ON SEQUENCE public.caught TO PUBLIC';
	FOREACH l IN ARRAY types LOOP
		FOREACH word IN ARRAY '{upper,current_setting}'::text[] LOOP
			EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS text %s', word, l, body);
		END LOOP;
		FOREACH word IN ARRAY '{max,min,sum,pg_advisory_xact_lock,nextval,unnest,octet_length,char_length,to_regclass}'::text[] LOOP
			EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS int8 %s', word, l, body);
		END LOOP;
		FOREACH r IN ARRAY types LOOP
			EXECUTE format('CREATE FUNCTION public.left(%s, %s) RETURNS text %s', l, r, body);
			EXECUTE format('CREATE FUNCTION public.setval(%s, %s) RETURNS int8 %s', l, r, body);
			EXECUTE format('CREATE FUNCTION public.pg_notify(%s, %s) RETURNS void %s', l, r, body);
			EXECUTE format('CREATE FUNCTION public.pg_advisory_xact_lock_shared(%s, %s) RETURNS void %s', l, r, body);
			EXECUTE format('CREATE FUNCTION public.compare(%s, %s) RETURNS bool %s', l, r, body);
			FOREACH word IN ARRAY '{=,<>,<,<=,>,>=}'::text[] LOOP
				EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.compare)', word, l, r);
			END LOOP;
			FOREACH word IN ARRAY '{&,+,-}'::text[] LOOP
				EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.setval)', word, l, r);
			END LOOP;
		END LOOP;
	END LOOP;
END $do$`

// hostileServer returns the DSN of a database with the role "app" and with the role "hostile", which
// can create objects in the schema public, and the DSN of the latter role.
func hostileServer(t *testing.T) (dsn, hostile string) {
	t.Helper()
	server := pgtest.Start(t, pgtest.Config{})
	dsn = server.DSN(t)
	admin := connect(t, dsn)
	for _, sql := range []string{"CREATE ROLE hostile LOGIN", "CREATE ROLE app LOGIN", "GRANT USAGE, CREATE ON SCHEMA public TO hostile"} {
		execute(t, admin, sql)
	}
	return dsn, pgtest.With(t, dsn, map[string]string{"user": "hostile"})
}

// documentedGrants are the rights that docs/postgres.md lists for the role app.
func documentedGrants() []string {
	return []string{
		"GRANT USAGE ON SCHEMA refold TO app",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA refold TO app",
		"GRANT SELECT, USAGE ON SEQUENCE refold.ordinals TO app",
	}
}

// No statement of the migrations or of the application runs code of a role that can create objects
// in the schema public.
func TestHostileRole(t *testing.T) {
	t.Parallel()
	dsn, hostile := hostileServer(t)
	execute(t, connect(t, hostile), traps)
	admin := connect(t, pgtest.With(t, dsn, map[string]string{"search_path": "pg_catalog"}))
	caught := func() (called bool) {
		t.Helper()
		if err := admin.QueryRow(t.Context(), "SELECT is_called FROM public.caught").Scan(&called); err != nil {
			t.Fatal(err)
		}
		return called
	}

	openStore(t, dsn, postgres.Config{}) // the migrations
	for _, sql := range documentedGrants() {
		execute(t, admin, sql)
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
		if got, _ := readAll(t, j, journal.Criteria{Type: "a", Tag: "tag", Slices: journal.Slices{First: 0, Count: 512}}, ""); len(got) != 0 {
			t.Errorf("read %v, want nothing", named(got))
		}
		if err := j.Await(t.Context(), ""); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil { // sends the pending notification
			t.Error(err)
		}
	}
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
	dsn, _ := hostileServer(t)
	openStore(t, dsn, postgres.Config{})
	admin := connect(t, dsn)
	for _, sql := range documentedGrants() {
		execute(t, admin, sql)
	}
	execute(t, admin, "ALTER ROLE app PASSWORD 'app'")
	proxied := pgtest.Via(t, pgtest.With(t, dsn, map[string]string{"user": "app", "password": "app"}), dropParameter(t, pgtest.Upstream(t, dsn), "search_path"))
	open, err := postgres.Open(t.Context(), proxied, postgres.Config{CheckOnly: true})
	if err == nil {
		_ = open.Close()
	}
	if !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), "search_path") {
		t.Errorf("open with the search path of the server: %v, want ErrSchema that names search_path", err)
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
