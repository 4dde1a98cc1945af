// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
)

// PostgresEnv names the variable with the address of the database that
// "postgres:" stands for.
const PostgresEnv = "REFOLD_POSTGRES"

// postgresSchemes are what the addresses of databases begin with.
func postgresSchemes() []string { return []string{"postgres", "postgresql"} }

var (
	errNoPostgres = errors.New("it is not said which database is meant: set " + PostgresEnv + " to its address, as in postgres://USER@HOST/DATABASE, or PGHOST and the other variables of psql")
	errPostgres   = errors.New("there is postgres://USER@HOST/DATABASE, or postgres: and " + PostgresEnv + " set to such an address")
)

// PostgresAddress reads the address of a journal on PostgreSQL, as all commands
// do:
//
//	postgres://USER:PASSWORD@HOST:PORT/DATABASE   also postgresql://
//	postgres:host=HOST dbname=DATABASE            keywords and values of libpq
//	postgres:                                     what REFOLD_POSTGRES says, in one of the
//	                                              forms above, or else PGHOST, PGDATABASE, ...
//
// A "schema" among the parameters of a URL, as in ?schema=NAME, is taken out and
// returned; it is empty without. What else is left out comes from the PG...
// variables. The error does not quote the address, which may hold a password.
//
// A password on a command line can be read by everybody on the machine. Keep it
// in REFOLD_POSTGRES, PGPASSWORD or a password file.
func PostgresAddress(address string) (dsn, schema string, err error) {
	dsn = address
	if scheme, rest, _ := strings.Cut(address, ":"); slices.Contains(postgresSchemes(), scheme) && rest == "" {
		dsn = os.Getenv(PostgresEnv)
		set := func(name string) bool { return os.Getenv(name) != "" }
		if dsn == "" && !slices.ContainsFunc([]string{"PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"}, set) {
			return "", "", errNoPostgres
		}
	}
	scheme, rest, _ := strings.Cut(dsn, ":")
	switch {
	case dsn == "":
		return "", "", nil // all of it is in the variables
	case !slices.Contains(postgresSchemes(), scheme):
		if !strings.Contains(scheme, "=") {
			return "", "", errPostgres
		}
		return dsn, "", nil // REFOLD_POSTGRES as keywords and values
	case strings.HasPrefix(rest, "//"):
		return cutSchema(dsn)
	case strings.Contains(rest, "="):
		return rest, "", nil
	}
	return "", "", errPostgres
}

// cutSchema takes the schema out of a URL.
func cutSchema(dsn string) (rest, schema string, err error) {
	before, query, found := strings.Cut(dsn, "?")
	if !found {
		return dsn, "", nil
	}
	// The others stay as they are: they are not ours to judge.
	var others []string
	for parameter := range strings.SplitSeq(query, "&") {
		value, ours := strings.CutPrefix(parameter, "schema=")
		if !ours {
			others = append(others, parameter)
			continue
		}
		if schema, err = url.QueryUnescape(value); err != nil || schema == "" {
			return "", "", errPostgres
		}
	}
	if len(others) > 0 {
		before += "?" + strings.Join(others, "&")
	}
	return before, schema, nil
}

// secrets are what stands for a password in text: in a URL behind the user, as
// far as it can reach, and as a keyword or parameter.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(\w://[^:/@\s"']*:)(\S*)(@)`),
	regexp.MustCompile(`((?i:password)=)('(?:[^'\\]|\\.)*'|[^\s&'"]+)()`),
}

// Redact returns text with passwords replaced: those in addresses, and behind
// "password=". The commands do not print what they know to be one, but what was
// typed in the wrong place is quoted.
func Redact(text string) string {
	for _, secret := range secrets {
		text = secret.ReplaceAllString(text, "${1}xxxxx${3}")
	}
	return text
}
