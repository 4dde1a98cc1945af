// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/big"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/internal/testkit/pgtest"
)

// table reads the read model as any program would, with SQL.
func table(t *testing.T, dsn string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(t.Context(), `SELECT concat_ws(' ', day, currency, opened, deposits, deposited, withdrawals, withdrawn, transfers, debited, credited, refunded)
		FROM refold.bank_totals ORDER BY day, currency`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// printed returns the output of bank totals, in the form of table.
func printed(t *testing.T, journal string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(must(t, exitOK, "totals", "--journal", journal).out), "\n")
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(strings.Join(strings.Fields(line), " "), ",", "")
	}
	return strings.Join(lines[1:], "\n")
}

func generatedFile(t *testing.T, seed string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), seed+".csv")
	must(t, exitOK, "generate", "--accounts", "20", "--commands", "150", "--seed", seed, "-o", file)
	return file
}

// The table agrees with the totals in memory, and with the independent sums of the audit.
func TestProject(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	must(t, exitOK, "apply", generatedFile(t, "1"), "--journal", dsn)
	must(t, exitOK, "project", "--once", "--journal", dsn)
	if got, want := table(t, dsn), printed(t, dsn); got != want || want == "" {
		t.Errorf("the table has\n%s\nwant\n%s", got, want)
	}
	must(t, exitOK, "apply", generatedFile(t, "2"), "--journal", dsn)
	must(t, exitOK, "project", "--once", "--workers", "4", "--journal", dsn)
	want := printed(t, dsn)
	if got := table(t, dsn); got != want {
		t.Errorf("with more events and workers the table has\n%s\nwant\n%s", got, want)
	}
	must(t, exitOK, "project", "--once", "--journal", dsn) // there is no new event
	must(t, exitOK, "project", "--once", "--rebuild", "--journal", dsn)
	if got := table(t, dsn); got != want {
		t.Errorf("after the rebuild the table has\n%s\nwant\n%s", got, want)
	}

	s, err := openStore(t.Context(), dsn, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	b := startBank(t, s, testRates)
	defer stopBank(t, b)
	report := audited(t, b)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, c := range money.Currencies() {
		var deposited, withdrawn string
		err := conn.QueryRow(t.Context(), "SELECT (sum(deposited) * 100)::bigint::text, (sum(withdrawn) * 100)::bigint::text FROM refold.bank_totals WHERE currency = $1", string(c)).Scan(&deposited, &withdrawn)
		if err != nil {
			t.Fatal(err)
		}
		if total := report.total(c); total.deposits.Cmp(integer(deposited)) != 0 || total.withdrawals.Cmp(integer(withdrawn)) != 0 || deposited == "0" {
			t.Errorf("%s: the table has %s deposited and %s withdrawn, the audit has %s and %s; want equal sums, and deposits", c, deposited, withdrawn, &total.deposits, &total.withdrawals)
		}
	}
}

func integer(text string) *big.Int {
	n, _ := new(big.Int).SetString(text, 10)
	return n
}

// With a table of another form, project reports the error and, with --once, ends.
func TestProjectIntoInvalidTable(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	must(t, exitOK, "apply", generatedFile(t, "6"), "--journal", dsn)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err = conn.Exec(t.Context(), "CREATE TABLE refold.bank_totals (day date)"); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"project", "--once", "--journal", dsn}, strings.NewReader(""), io.Discard, &stderr)
	if got := stderr.String(); code != exitFailed || strings.Count(got, "failed, restarting") != 3 || !strings.Contains(got, "bank: ") {
		t.Errorf("project into an invalid table: exit code %d, want %d after 3 restarts; stderr\n%s", code, exitFailed, got)
	}
}

// A projection that is interrupted while the bank runs continues in the next run.
func TestProjectWhileBankRuns(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	must(t, exitOK, "refold", "migrate", "--journal", dsn)
	for _, seed := range []string{"3", "4"} {
		ctx, interrupt := context.WithCancel(t.Context())
		result, out := make(chan int, 1), make(lineWriter, 100)
		go func() {
			defer close(out)
			result <- run(ctx, []string{"project", "--journal", dsn, "--workers", "2"}, strings.NewReader(""), out, io.Discard)
		}()
		must(t, exitOK, "apply", generatedFile(t, seed), "--journal", dsn)
		<-out // project has printed that it runs
		interrupt()
		if code := <-result; code != exitOK {
			t.Errorf("interrupted project: exit code %d, want %d", code, exitOK)
		}
	}
	must(t, exitOK, "project", "--once", "--journal", dsn)
	if got, want := table(t, dsn), printed(t, dsn); got != want {
		t.Errorf("the table has\n%s\nwant\n%s", got, want)
	}
}

// The journal and the table may be in different stores.
func TestProjectFromEmbeddedJournal(t *testing.T) {
	t.Parallel()
	dsn, name := pgtest.DSN(t), "leveldb:"+filepath.Join(t.TempDir(), "data")
	must(t, exitOK, "apply", generatedFile(t, "5"), "--journal", name)
	must(t, exitOK, "project", "--once", "--journal", name, "--database", dsn)
	if got, want := table(t, dsn), printed(t, name); got != want || want == "" {
		t.Errorf("the table has\n%s\nwant\n%s", got, want)
	}
}

func TestProjectMistakes(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	must(t, exitOK, "refold", "migrate", "--journal", dsn)
	for args, want := range map[string]string{
		"project --journal leveldb:x":                                             "name the database with --database",
		"project --journal inmem:":                                                "name the database with --database",
		"project --workers 3 --journal " + dsn:                                    "3 workers",
		"project --database postgres://ada:sesame@127.0.0.1:1/x --journal " + dsn: "table on PostgreSQL",
		"totals --journal inmem:":                                                 "is empty at the start",
	} {
		r := call(t.Context(), "", strings.Fields(args)...)
		if r.code == exitOK || !strings.Contains(r.errout, want) || strings.Contains(r.errout, "sesame") {
			t.Errorf("bank %s: %+v, want %q", args, r, want)
		}
	}
	ctx, interrupt := context.WithCancelCause(t.Context())
	interrupt(errors.New("interrupted"))
	if code := run(ctx, []string{"totals", "--journal", dsn}, strings.NewReader(""), io.Discard, io.Discard); code != exitFailed {
		t.Errorf("interrupted totals: exit code %d, want %d", code, exitFailed)
	}
}
