// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DSN returns the address, as a URL, of a new and empty database on the shared server. The database
// is dropped when the test ends, even if it has open connections. DSN fails the test if no server
// is available.
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

// drop drops a database. The server closes the connections to the database. The attempt fails after
// a few seconds.
func drop(dsn, name string) error {
	for tries := 1; ; tries++ {
		err := execute(dsn, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
		if inUse, ok := errors.AsType[*pgconn.PgError](err); !ok || inUse.Code != "55006" || tries == 20 {
			return err
		}
	}
}

// databaseName returns a name of at most 63 bytes that contains the name of the test.
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
	// template0 accepts no connections, so no session blocks the copy.
	return execute(dsn, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE template0 ENCODING 'UTF8'")
}

// execute runs one statement as the DSN's user in the database postgres.
func execute(dsn, statement string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("pgtest: the DSN can't be parsed") //nolint:err113 // the text must not contain the DSN
	}
	cfg.Database = "postgres"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("pgtest: connect: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("pgtest: %s: %w", statement, err)
	}
	return nil
}

// Via returns a DSN of the same database through another host and port, such as those of a proxy.
func Via(tb testing.TB, dsn, addr string) string {
	tb.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		tb.Fatal(err)
	}
	return With(tb, dsn, map[string]string{"host": host, "port": port, "sslmode": "disable"}) // a proxy that counts bytes must see them unencrypted
}

// With returns a DSN with other parameters.
func With(tb testing.TB, dsn string, parameters map[string]string) string {
	tb.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(redacted(err))
	}
	query := u.Query()
	for name, value := range parameters {
		query.Set(name, value)
	}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // a DSN does not decode a plus sign as a space
	return u.String()
}

// Upstream returns the address of the server in a DSN: a host and port, or the path of a socket.
func Upstream(tb testing.TB, dsn string) string {
	tb.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		tb.Fatal("pgtest: invalid DSN")
	}
	if strings.HasPrefix(cfg.Host, "/") {
		return fmt.Sprintf("%s/.s.PGSQL.%d", cfg.Host, cfg.Port)
	}
	return net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
}

// withDatabase replaces the database in the DSN of REFOLD_POSTGRES.
func withDatabase(dsn, database string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return "", fmt.Errorf("pgtest: %s must be a URL, postgres://user:password@host:port/database", Env)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("pgtest: %s: %w", Env, redacted(err))
	}
	u.Path = "/" + database
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	return u.String(), nil
}

// redacted removes the DSN from a parse error.
func redacted(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}
