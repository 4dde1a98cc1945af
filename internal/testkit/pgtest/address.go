// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgtest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Via returns a DSN that reaches the same database through another host and
// port, such as those of a proxy.
func Via(tb testing.TB, dsn, addr string) string {
	tb.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		tb.Fatal(err)
	}
	return With(tb, dsn, map[string]string{"host": host, "port": port, "sslmode": "disable"}) // what counts bytes must know what they are
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
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // a plus is a plus in a DSN
	return u.String()
}

// Upstream returns where the server of a DSN listens: a host and port, or the
// path of a socket.
func Upstream(tb testing.TB, dsn string) string {
	tb.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		tb.Fatal("testpg: the DSN can't be parsed")
	}
	if strings.HasPrefix(cfg.Host, "/") {
		return fmt.Sprintf("%s/.s.PGSQL.%d", cfg.Host, cfg.Port)
	}
	return net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
}

// withDatabase changes the database in a DSN that a developer gave.
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
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	return u.String(), nil
}

// redacted takes the DSN out of the error of parsing it.
func redacted(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}
