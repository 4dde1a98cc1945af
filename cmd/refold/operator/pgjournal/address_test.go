// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgjournal_test

import (
	"strings"
	"testing"

	"github.com/refold-io/refold/cmd/refold/operator/pgjournal"
)

func TestParseAddress(t *testing.T) {
	for _, name := range []string{"PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"} {
		t.Setenv(name, "")
	}
	for _, c := range []struct{ env, address, dsn, schema string }{
		{"", "postgres://u:p@h:1/d", "postgres://u:p@h:1/d", ""},
		{"", "postgresql://h/d?sslmode=disable", "postgresql://h/d?sslmode=disable", ""},
		{"", "postgres://h/d?schema=my%20own", "postgres://h/d", "my own"},
		{"", "postgres://h/d?sslmode=disable&schema=own&host=%2Ftmp", "postgres://h/d?sslmode=disable&host=%2Ftmp", "own"},
		{"", "postgres:host=/tmp dbname=d", "host=/tmp dbname=d", ""},
		{"postgres://e/d?schema=s", "postgres:", "postgres://e/d", "s"},
		{"postgres:host=/tmp", "postgresql:", "host=/tmp", ""},
		{"host=/tmp dbname=d", "postgres:", "host=/tmp dbname=d", ""},
		{"postgres://e/d", "postgres://h/d", "postgres://h/d", ""},
	} {
		t.Setenv(pgjournal.Env, c.env)
		dsn, schema, err := pgjournal.ParseAddress(c.address)
		if err != nil || dsn != c.dsn || schema != c.schema {
			t.Errorf("ParseAddress(%q) with REFOLD_POSTGRES=%q = %q, %q, error %v; want %q, %q", c.address, c.env, dsn, schema, err, c.dsn, c.schema)
		}
	}
	for _, c := range []struct{ env, address, want string }{
		{"", "postgres:", "set REFOLD_POSTGRES"},
		{"", "postgres:x", "expected postgres://"},
		{"secret", "postgres:", "expected postgres://"},
		{"mongo://u:secret@h", "postgres:", "expected postgres://"},
		{"", "postgres://h/secret?schema=", "expected postgres://"},
		{"", "postgres://h/secret?schema=%", "expected postgres://"},
	} {
		t.Setenv(pgjournal.Env, c.env)
		_, _, err := pgjournal.ParseAddress(c.address)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseAddress(%q) with REFOLD_POSTGRES=%q: error %v, want %q without the password", c.address, c.env, err, c.want)
		}
	}
	t.Setenv(pgjournal.Env, "")
	t.Setenv("PGHOST", "/tmp")
	if dsn, _, err := pgjournal.ParseAddress("postgres:"); dsn != "" || err != nil {
		t.Errorf("ParseAddress with PGHOST = %q, error %v; want an empty DSN", dsn, err)
	}
}
