// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgjournal

import (
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Env names the environment variable with the address that "postgres:" stands for.
const Env = "REFOLD_POSTGRES"

func schemes() []string { return []string{"postgres", "postgresql"} }

var (
	errNoAddress  = errors.New("no database is named: set " + Env + " to an address such as postgres://USER@HOST/DATABASE, or set PGHOST and the other variables of psql")
	errBadAddress = errors.New("the address is malformed: expected postgres://USER@HOST/DATABASE, or postgres: with " + Env + " set to such an address")
)

// ParseAddress parses the address of a journal on PostgreSQL, for example:
//
//	postgres://USER:PASSWORD@HOST:PORT/DATABASE   or postgresql://
//	postgres:host=HOST dbname=DATABASE            keywords and values of libpq
//	postgres:                                     the address in REFOLD_POSTGRES, in one of the
//	                                              forms above, or else PGHOST, PGDATABASE, ...
//
// ParseAddress removes the parameter "schema" from a URL (?schema=NAME) and returns it; without the
// parameter, schema is empty. The PG... variables supply the parts that the address omits. The
// error does not quote the address, because the address may contain a password.
//
// Every user of a machine can read a password on a command line. Keep it in REFOLD_POSTGRES,
// PGPASSWORD or a password file.
func ParseAddress(address string) (dsn, schema string, err error) {
	dsn = address
	if scheme, rest, _ := strings.Cut(address, ":"); slices.Contains(schemes(), scheme) && rest == "" {
		dsn = os.Getenv(Env)
		set := func(name string) bool { return os.Getenv(name) != "" }
		if dsn == "" && !slices.ContainsFunc([]string{"PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"}, set) {
			return "", "", errNoAddress
		}
	}
	scheme, rest, _ := strings.Cut(dsn, ":")
	switch {
	case dsn == "":
		return "", "", nil // the PG... variables contain the whole address
	case !slices.Contains(schemes(), scheme):
		if !strings.Contains(scheme, "=") {
			return "", "", errBadAddress
		}
		return dsn, "", nil // REFOLD_POSTGRES contains keywords and values
	case strings.HasPrefix(rest, "//"):
		return cutSchema(dsn)
	case strings.Contains(rest, "="):
		return rest, "", nil
	}
	return "", "", errBadAddress
}

func cutSchema(dsn string) (rest, schema string, err error) {
	before, query, found := strings.Cut(dsn, "?")
	if !found {
		return dsn, "", nil
	}
	// The other parameters pass unchanged to the driver.
	var others []string
	for parameter := range strings.SplitSeq(query, "&") {
		value, ours := strings.CutPrefix(parameter, "schema=")
		if !ours {
			others = append(others, parameter)
			continue
		}
		if schema, err = url.QueryUnescape(value); err != nil || schema == "" {
			return "", "", errBadAddress
		}
	}
	if len(others) > 0 {
		before += "?" + strings.Join(others, "&")
	}
	return before, schema, nil
}
