// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// logRecorder records log output.
type logRecorder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logRecorder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logRecorder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logRecorder) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// has waits until the log contains a text.
func (l *logRecorder) has(t *testing.T, text string) {
	t.Helper()
	if !until(t, "a log record with "+text, func() bool { return strings.Contains(l.String(), text) }) {
		t.Logf("logged:\n%s", l)
	}
}

func TestLogOfNotifications(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	var log logRecorder
	j := openStore(t, dsn, postgres.Config{Logger: log.logger(), PollInterval: never}).TestJournal()
	done := make(chan error, 1)
	go func() { done <- j.Await(t.Context(), "") }()
	pid := listening(t, dsn)
	if strings.Contains(log.String(), "notifications") { // slow statements may be logged
		t.Errorf("the log contains %s, want no such record", &log)
	}
	execute(t, connect(t, dsn), "SELECT pg_terminate_backend($1, 60000)", pid)
	log.has(t, `level=WARN msg="no notifications from the server, polling instead" reason="FATAL: terminating connection`)
	log.has(t, `level=INFO msg="notifications restored" after=`)
	store(t, j, eventsOf("a", 0, 1))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLogContainsNoSecret(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse"
	server := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)
	var log logRecorder
	j := openStore(t, dsn, postgres.Config{
		Logger: log.logger(), PollInterval: time.Millisecond,
		NotifyDSN: pgtest.Via(t, pgtest.With(t, dsn, map[string]string{"password": secret}), server.Addr()),
	}).TestJournal()
	done := make(chan error, 1)
	go func() { done <- j.Await(t.Context(), "") }()
	log.has(t, "password authentication failed")
	store(t, j, eventsOf("a", 0, 1))
	if err := <-done; err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Contains(text, secret) || strings.Count(text, "no notifications") != 1 {
		t.Errorf("want one record about notifications without the password; logged:\n%s", text)
	}
}

func TestLogOfAStall(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	var log logRecorder
	db := openStore(t, dsn, postgres.Config{Logger: log.logger(), DisableNotify: true})
	db.ReportAll()
	conn := connect(t, dsn)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.AppendIn(t.Context(), tx, eventsOf("slow", 0, 1)); err != nil {
		t.Fatal(err)
	}
	end := func() {
		t.Helper()
		if _, err := db.TestJournal().End(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	end() // the first observation of a stall is not logged
	if strings.Contains(log.String(), "blocks all queries") {
		t.Errorf("the stall was logged immediately:\n%s", &log)
	}
	end()
	end()
	if text := log.String(); strings.Count(text, `level=WARN msg="an append that does not end blocks all queries" age=`) != 1 {
		t.Errorf("want one record about the stall; logged:\n%s", text)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	end()
	if text := log.String(); strings.Count(text, `level=INFO msg="queries are no longer blocked" after=`) != 1 {
		t.Errorf("want one record about the end of the stall; logged:\n%s", text)
	}
}

func TestLogOfSlowCalls(t *testing.T) {
	t.Parallel()
	var log logRecorder
	db := openStore(t, pgtest.DSN(t), postgres.Config{Logger: log.logger(), DisableNotify: true})
	db.ReportNoCall()
	store(t, db.TestJournal(), eventsOf("a", 0, 1))
	if log.String() != "" {
		t.Errorf("the log contains %s, want no such record", &log)
	}
	db.ReportAll()
	for i := range uint64(3) {
		store(t, db.TestJournal(), eventsOf("a", 1+i, 1))
	}
	if text := log.String(); strings.Count(text, `level=WARN msg="slow statement" statement=refold_append_one took=`) != 1 {
		t.Errorf("want one record about the slow statement; logged:\n%s", text)
	}
}

func TestStalls(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var s postgres.Stall
	for _, c := range []struct {
		second int
		below  int64
		held   bool
		want   string
	}{
		{0, 10, false, ""},
		{10, 10, false, ""}, // no append
		{20, 12, true, ""},
		{24, 12, true, ""},
		{25, 13, true, ""}, // another append
		{29, 13, true, ""},
		{30, 13, true, "lasts 5s"},
		{89, 13, true, ""},
		{90, 13, true, "lasts 1m5s"},
		{100, 14, true, "over 1m15s"},
		{106, 14, true, ""}, // reported less than a minute ago
		{107, 20, false, ""},
		{108, 21, true, ""},
		{170, 21, true, "lasts 1m2s"},
		{171, 30, false, "over 1m3s"},
		{172, 30, false, ""},
	} {
		if got := s.Observe(now.Add(time.Duration(c.second)*time.Second), c.below, c.held); got != c.want {
			t.Errorf("after %d s, below %d, held: %v: reports %q, want %q", c.second, c.below, c.held, got, c.want)
		}
	}
}

// Settings of a role or a database do not affect the encoding of texts.
func TestClientEncodingIsPinned(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)
	admin := connect(t, dsn)
	execute(t, admin, "CREATE ROLE odd SUPERUSER LOGIN")
	execute(t, admin, "ALTER ROLE odd SET client_encoding = 'LATIN1'")
	write := eventsOf("größe|1", 0, 2, "ärger")
	store(t, openStore(t, dsn, postgres.Config{}).TestJournal(), write)
	execute(t, admin, "ALTER DATABASE "+name(t, dsn)+" SET client_encoding = 'SQL_ASCII'")
	for i, dsn := range []string{dsn, pgtest.With(t, dsn, map[string]string{"user": "odd"}), pgtest.With(t, dsn, map[string]string{"client_encoding": "WIN1252"})} {
		j := openStore(t, dsn, postgres.Config{}).TestJournal()
		write := eventsOf("größe|1", uint64(2+i), 1, "ärger")
		write.Writer, write.Events[0].Manifest = "knöterich", "→"
		store(t, j, write)
		events, _ := readAll(t, j, journal.Criteria{Types: []string{"größe"}, Tag: "ärger"}, "")
		if len(events) != 3+i || events[2+i].Manifest != "→" || events[2+i].Writer != "knöterich" || events[0].ID != "größe|1" {
			t.Errorf("read %+v, want the event with the manifest → and the writer knöterich", events)
		}
	}
	var odd int
	if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM refold.events WHERE id <> 'größe|1' OR writer NOT IN ('w', 'knöterich') OR tags <> '{ärger}'").Scan(&odd); err != nil || odd != 0 {
		t.Errorf("%d rows have a wrong encoding, %v", odd, err)
	}
}
