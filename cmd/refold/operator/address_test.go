// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"strings"
	"testing"

	"github.com/refold-io/refold/cmd/refold/operator"
)

func TestPostgresAddress(t *testing.T) {
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
		t.Setenv(operator.PostgresEnv, c.env)
		dsn, schema, err := operator.PostgresAddress(c.address)
		if err != nil || dsn != c.dsn || schema != c.schema {
			t.Errorf("%q with %q: %q, %q, %v", c.address, c.env, dsn, schema, err)
		}
	}
	for _, c := range []struct{ env, address, want string }{
		{"", "postgres:", "set REFOLD_POSTGRES"},
		{"", "postgres:x", "there is postgres://"},
		{"secret", "postgres:", "there is postgres://"},
		{"mongo://u:secret@h", "postgres:", "there is postgres://"},
		{"", "postgres://h/secret?schema=", "there is postgres://"},
		{"", "postgres://h/secret?schema=%", "there is postgres://"},
	} {
		t.Setenv(operator.PostgresEnv, c.env)
		_, _, err := operator.PostgresAddress(c.address)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q with %q: %v", c.address, c.env, err)
		}
	}
	t.Setenv(operator.PostgresEnv, "")
	t.Setenv("PGHOST", "/tmp")
	if dsn, _, err := operator.PostgresAddress("postgres:"); dsn != "" || err != nil {
		t.Errorf("with PGHOST: %q, %v", dsn, err)
	}
}

func TestPasswordsAreNotPrinted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`no persistence ID "postgres://ada:secret@h/d"`: `no persistence ID "postgres://ada:xxxxx@h/d"`,
		"postgresql://ada:se@cr:et@h:5432/d x":          "postgresql://ada:xxxxx@h:5432/d x",
		"host=h password=secret dbname=d":               "host=h password=xxxxx dbname=d",
		"host=h PASSWORD='se cr\\'et' dbname=d":         "host=h PASSWORD=xxxxx dbname=d",
		"postgres://h/d?password=secret&user=ada":       "postgres://h/d?password=xxxxx&user=ada",
		"postgres://ada@h:5432/d":                       "postgres://ada@h:5432/d",
		"a: b@c":                                        "a: b@c",
	} {
		if got := operator.Redact(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for _, args := range []string{
		"events postgres://ada:secret@h/d",
		"verify --journal postgre://ada:secret@h/d",
		"verify --journal postgres:password=secret",
		"verify --journal postgres://ada:secret@127.0.0.1:1/d",
		"verify --journal postgres://ada:sec/ret@127.0.0.1:1/d",
		"verify --journal postgres://ada:secret@127.0.0.1:x/d",
		"copy postgres://ada:secret@127.0.0.1:1/d leveldb:/nonexistent",
		"tail x postgres://ada:secret@h/d",
		"frobnicate postgres://ada:secret@h/d",
	} {
		o := start(t, operator.Program{}, strings.Fields(args)...)
		if o.status != operator.ExitFailed || strings.Contains(o.stdout+o.err, "secret") || strings.Contains(o.err, "ret@") || o.err == "" {
			t.Errorf("%s: %+v", args, o)
		}
	}
}
