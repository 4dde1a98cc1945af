// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DSN returns the address, as a URL, of a new and empty database on the shared
// server, which is dropped when the test ends, whoever is still connected to
// it. It fails the test if there is no server.
func DSN(tb testing.TB) string {
	tb.Helper()
	name := databaseName(tb.Name())
	dsn, err := sharedDSN(name)
	if err != nil {
		tb.Fatal(err)
	}
	if err := create(dsn, name); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := drop(dsn, name); err != nil {
			tb.Error(err)
		}
	})
	return dsn
}

// drop drops a database. The server ends who is still connected, and gives up if that takes more than a few seconds.
func drop(dsn, name string) error {
	for tries := 1; ; tries++ {
		err := execute(dsn, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
		if inUse, ok := errors.AsType[*pgconn.PgError](err); !ok || inUse.Code != "55006" || tries == 20 {
			return err
		}
	}
}

// databaseName makes a name of at most 63 bytes that tells whose it is.
func databaseName(test string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(test))
	return fmt.Sprintf("refold_%.40s_%.12s", clean, strings.ToLower(rand.Text()))
}

func create(dsn, name string) error {
	// template0 has never been connected to, so nobody is in the way.
	return execute(dsn, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE template0 ENCODING 'UTF8'")
}

// execute runs one statement as the DSN's user in the database postgres.
func execute(dsn, statement string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("testpg: the DSN can't be parsed") //nolint:err113 // without the DSN in it
	}
	cfg.Database = "postgres"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("testpg: connect: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("testpg: %s: %w", statement, err)
	}
	return nil
}
