// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package testpg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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
		if err := execute(dsn, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
			tb.Error(err)
		}
	})
	return dsn
}

// Via returns a DSN that reaches the same database through another host and
// port, such as those of a proxy.
func Via(tb testing.TB, dsn, addr string) string {
	tb.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		tb.Fatal(err)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(redacted(err))
	}
	query := u.Query()
	query.Set("host", host)
	query.Set("port", port)
	query.Set("sslmode", "disable") // a proxy that counts bytes must know what they are
	u.Host, u.RawQuery = "", query.Encode()
	return u.String()
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

// withDatabase changes the database in a DSN that a developer gave, of either
// form, and makes it a URL.
func withDatabase(dsn, database string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return "", fmt.Errorf("testpg: %s must be a URL, postgres://user:password@host:port/database", Env)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("testpg: %s: %w", Env, redacted(err))
	}
	u.Path = "/" + database
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// redacted takes the DSN out of the error of parsing it.
func redacted(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

func create(dsn, name string) error {
	// template0 has never been connected to, so nobody is in the way.
	return execute(dsn, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE template0 ENCODING 'UTF8'")
}

// execute runs one statement as the DSN's user in the database postgres.
func execute(dsn, statement string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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
