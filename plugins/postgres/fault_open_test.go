// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/snapshot"
)

// closedPort is an address without a listener.
const closedPort = "127.0.0.1:1"

// The error of Open names the cause and the server, and contains no password.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse"
	server := pgtest.Start(t, pgtest.Config{})
	admin := connect(t, server.DSN(t))
	execute(t, admin, "CREATE ROLE guest LOGIN PASSWORD '"+secret+"'")
	guest := func(dsn string) string {
		return pgtest.With(t, dsn, map[string]string{"user": "guest", "password": secret})
	}
	migrated := server.DSN(t)
	openStore(t, migrated, postgres.Config{})
	newer := server.DSN(t)
	openStore(t, newer, postgres.Config{})
	execute(t, connect(t, newer), "INSERT INTO refold.migrations (version, name) VALUES (1000, '1000_future')")
	readOnly := server.DSN(t)
	execute(t, connect(t, readOnly), "ALTER DATABASE "+name(t, readOnly)+" SET default_transaction_read_only = on")
	emptied, taken, latin := server.DSN(t), server.DSN(t), server.DSN(t)
	execute(t, connect(t, emptied), "CREATE SCHEMA refold; CREATE TABLE refold.migrations (version integer, name text)")
	execute(t, connect(t, taken), "CREATE SCHEMA refold; CREATE TABLE refold.events (id text)")
	execute(t, admin, `CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
	latin = strings.Replace(latin, name(t, latin), "latin", 1)
	for subject, c := range map[string]struct {
		dsn  string
		cfg  postgres.Config
		want error
		text string
	}{
		"empty migrations": {dsn: emptied, want: postgres.ErrSchema, text: "has an empty table migrations"},
		"names are taken":  {dsn: taken, want: postgres.ErrSchema, text: "contains an object with a required name"},
		"encoding":         {dsn: latin, want: postgres.ErrSchema, text: "has encoding LATIN1, want UTF8"},
		"notify DSN":       {dsn: migrated, cfg: postgres.Config{NotifyDSN: "port=" + secret}, want: postgres.ErrDSN, text: "Config.NotifyDSN"},
		"no DSN":           {dsn: "postgres://" + secret + "@[::1", want: postgres.ErrDSN},
		"a keyword":        {dsn: "host=127.0.0.1 port=" + secret, want: postgres.ErrDSN},
		"password":         {dsn: pgtest.Via(t, pgtest.With(t, migrated, map[string]string{"password": secret}), server.Addr()), want: journal.ErrUnavailable, text: "password authentication failed"},
		"user":             {dsn: pgtest.With(t, migrated, map[string]string{"user": "nobody-" + secret[:3]}), want: journal.ErrUnavailable, text: "nobody-cor"},
		"database":         {dsn: strings.Replace(migrated, name(t, migrated), "elsewhere", 1), want: journal.ErrUnavailable, text: `"elsewhere" does not exist`},
		"port":             {dsn: pgtest.Via(t, migrated, closedPort), want: journal.ErrUnavailable, text: "connection refused"},
		"no schema":        {dsn: server.DSN(t), cfg: postgres.Config{CheckOnly: true}, want: postgres.ErrSchema, text: "001_journal"},
		"another schema":   {dsn: migrated, cfg: postgres.Config{CheckOnly: true, Schema: "other"}, want: postgres.ErrSchema, text: `"other"`},
		"newer schema":     {dsn: newer, want: journal.ErrNewerVersion, text: "version 1000"},
		"no right":         {dsn: guest(server.DSN(t)), want: postgres.ErrDenied, text: `"guest"`},
		"no right to read": {dsn: guest(migrated), cfg: postgres.Config{CheckOnly: true}, want: postgres.ErrDenied, text: `"guest"`},
		"read-only":        {dsn: readOnly, want: postgres.ErrReadOnly, text: name(t, readOnly)},
	} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := withHangTimeout(t)
			defer cancel()
			db, err := postgres.Open(ctx, c.dsn, c.cfg)
			if err == nil {
				_ = db.Close()
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.text)
			}
			if err == nil {
				return
			}
			t.Log(err)
			text := err.Error()
			if strings.Contains(text, secret) {
				t.Errorf("the error contains the password: %v", err)
			}
			if !strings.HasPrefix(text, "postgres: ") || strings.Count(text, "postgres: ") > 1 || strings.Contains(text, " journal: ") || strings.ContainsAny(text, "\n\t") {
				t.Errorf("the error has an unexpected form: %v", err)
			}
		})
	}
}

// name returns the name of the database in a DSN.
func name(t *testing.T, dsn string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Database
}

// TestServerRejectsCalls uses a server that rejects calls: the role lacks rights, the server became
// read-only, or the tables are missing. Errors contain the reason, rejected writes are not stored,
// and all calls succeed after the repair.
func TestServerRejectsCalls(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{})
	execute(t, connect(t, server.DSN(t)), "CREATE ROLE reader LOGIN")
	for subject, c := range map[string]struct {
		revoke, repair string // SQL; $db is the name of the database
		want           error
		reads          bool // reads still succeed
	}{
		"no rights at all": {
			"REVOKE ALL ON ALL TABLES IN SCHEMA refold FROM reader; REVOKE ALL ON ALL SEQUENCES IN SCHEMA refold FROM reader",
			"GRANT ALL ON ALL TABLES IN SCHEMA refold TO reader; GRANT ALL ON ALL SEQUENCES IN SCHEMA refold TO reader", postgres.ErrDenied, false,
		},
		"no right to write": {
			"REVOKE INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA refold FROM reader",
			"GRANT ALL ON ALL TABLES IN SCHEMA refold TO reader", postgres.ErrDenied, true,
		},
		"read-only": {
			"ALTER DATABASE $db SET default_transaction_read_only = on; $kick",
			"ALTER DATABASE $db SET default_transaction_read_only = off; $kick", postgres.ErrReadOnly, true,
		},
		"missing tables": {
			"ALTER SCHEMA refold RENAME TO mislaid",
			"ALTER SCHEMA mislaid RENAME TO refold", postgres.ErrSchema, false,
		},
	} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			dsn := server.DSN(t)
			openStore(t, dsn, postgres.Config{})
			admin := connect(t, pgtest.With(t, dsn, map[string]string{"options": "-c default_transaction_read_only=off"}))
			run := func(sql string) {
				t.Helper()
				kick := "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
				for statement := range strings.SplitSeq(strings.NewReplacer("$db", name(t, dsn), "$kick", kick).Replace(sql), "; ") {
					execute(t, admin, statement)
				}
			}
			run("GRANT USAGE ON SCHEMA refold TO reader; GRANT ALL ON ALL TABLES IN SCHEMA refold TO reader; GRANT ALL ON ALL SEQUENCES IN SCHEMA refold TO reader; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA refold TO reader")
			db := openStore(t, pgtest.With(t, dsn, map[string]string{"user": "reader"}), postgres.Config{CheckOnly: true, DisableNotify: true, MaxConns: 1})
			j, snapshots := db.TestJournal(), db.TestSnapshots()
			store(t, j, eventsOf("a", 0, 1))
			run(c.revoke)
			until(t, "the pool to detect the ended connections", func() bool {
				_, err := j.HighestSequenceNr(t.Context(), "a")
				return !errors.Is(err, journal.ErrUnavailable)
			})
			for _, writes := range [][]journal.Write{{eventsOf("a", 1, 1)}, {eventsOf("a", 1, 2), eventsOf("b", 0, 1, "tag")}} {
				for i, err := range j.Append(t.Context(), writes) {
					if !journal.NotStored(err) || !errors.Is(err, c.want) {
						t.Errorf("append, write %d: %v, want %v and a write that is not stored", i, err, c.want)
					}
				}
			}
			for call, err := range map[string]error{
				"delete":        j.DeleteTo(t.Context(), "a", 1),
				"save snapshot": snapshots.Save(t.Context(), snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "a", SequenceNr: 1, Time: time.Unix(1, 0).UTC()}, Manifest: "m"}),
			} {
				if !errors.Is(err, c.want) {
					t.Errorf("%s: %v, want %v", call, err, c.want)
				}
			}
			_, err := j.HighestSequenceNr(t.Context(), "a")
			if c.reads != (err == nil) || err != nil && !errors.Is(err, c.want) {
				t.Errorf("highest: %v, want success: %t, otherwise %v", err, c.reads, c.want)
			}
			for _, err := range j.Replay(t.Context(), "a", 1, 9) {
				if c.reads != (err == nil) || err != nil && !errors.Is(err, c.want) {
					t.Errorf("replay: %v, want success: %t, otherwise %v", err, c.reads, c.want)
				}
			}
			run(c.repair)
			until(t, "an append after the repair", func() bool {
				errs := j.Append(t.Context(), []journal.Write{eventsOf("a", 1, 1)})
				return errs == nil || errors.Is(errs[0], journal.ErrConflict)
			})
			if highest, err := j.HighestSequenceNr(t.Context(), "a"); highest != 2 || err != nil {
				t.Errorf("after the repair the highest sequence number is %d, %v, want 2", highest, err)
			}
		})
	}
}
