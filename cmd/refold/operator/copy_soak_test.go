// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

// The program is killed twice while it copies from LevelDB to PostgreSQL, and is started again. At
// the end "verify" prints the same result for both journals.
func TestCopyAfterKill(t *testing.T) {
	t.Parallel()
	ids, each := 200, 150
	if effort.Soak() {
		ids, each = 2_000, 500
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	source, dsn := "leveldb:"+many(t, ids, each), pgtest.DSN(t)
	start(t, operator.Program{}, "migrate", "--journal", dsn).want(t, operator.ExitOK, "")
	began := time.Now()
	for _, share := range []int{4, 2} {
		killAfter(t, exec.Command(program, asProgram, "copy", source, dsn), dsn, ids*each/share)
	}
	out, err := exec.Command(program, asProgram, "copy", source, dsn).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "on both sides: equal\n") {
		t.Fatalf("copy after two kills: %v, printed\n%s\nwant equal sides", err, out)
	}
	t.Logf("%d records in %v, with two kills: %s", ids*each, time.Since(began).Round(time.Millisecond), out)
	a, b := start(t, operator.Program{Journal: source}, "verify", "--digest"), start(t, operator.Program{Journal: dsn}, "verify", "--digest")
	if a.status != operator.ExitOK || a != b {
		t.Errorf("verify --digest printed for the source %+v\nfor the target %+v\nwant equal results", a, b)
	}
}

// killAfter kills a copy after the database has stored some records. A trigger then blocks further
// writes, so that the copy is running when it is killed.
func killAfter(t *testing.T, cmd *exec.Cmd, dsn string, records int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	do := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("execute %s: %v", sql, err)
		}
	}
	do(fmt.Sprintf(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF (SELECT last_value FROM refold.ordinals) > %d THEN
				PERFORM pg_advisory_xact_lock(7);
			END IF;
			RETURN NULL;
		END $$`, records))
	do("CREATE TRIGGER hold BEFORE INSERT ON refold.events FOR EACH STATEMENT EXECUTE FUNCTION hold()")
	do("SELECT pg_advisory_lock(7)")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	count := func(sql string) (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatalf("query %s: %v", sql, err)
		}
		return n
	}
	for count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == 0 {
		select {
		case err := <-ended:
			t.Fatalf("the copy ended before the test killed it: %v\n%s", err, output.String())
		default:
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if exit, ok := errors.AsType[*exec.ExitError](<-ended); !ok || exit.Exited() {
		t.Fatalf("the copy exited before the test killed it: %v\n%s", exit, output.String())
	}
	// End the connections of the killed copy. Otherwise the server would store the blocked writes
	// after the unlock, and might leave nothing for the second copy.
	const clients = "FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
	do("SELECT pg_terminate_backend(pid) " + clients)
	for count("SELECT count(*) "+clients) > 0 {
		continue
	}
	do("SELECT pg_advisory_unlock(7)")
	do("DROP FUNCTION hold() CASCADE")
}

// many returns the directory of a LevelDB journal with many events.
func many(t *testing.T, ids, each int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	db, err := leveldb.Open(dir, leveldb.Config{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &operator.Source{Journal: db.Journal(), Snapshots: db.Snapshots()}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range ids {
		id := fmt.Sprintf("account|%06d", i)
		events := make([]journal.Event, each)
		for n := range events {
			note := make([]byte, 190)
			for k := range note {
				note[k] = byte(rng.Uint32())
			}
			events[n] = journal.Event{Manifest: "noted", Payload: pack(t, map[string]any{"N": n, "Note": note})}
			switch n % 50 {
			case 7:
				events[n] = journal.Event{}
			case 8:
				events[n].Tags = []string{"eight", id}
			case 9:
				events[n].Metadata = note[:20]
			}
		}
		record(t, s, id, "writer", events...)
		if i%10 == 0 {
			keep(t, s, id, uint64(each), "\x80")
			drop(t, s, id, uint64(each/2))
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}
