// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgjournal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/plugins/postgres"
)

type migrateCommand struct {
	Journal string `help:"The database: postgres://USER@HOST/DATABASE, with ?schema=NAME for a schema other than refold; or postgres: for the database in REFOLD_POSTGRES or the PG... variables." default:"postgres:" env:"REFOLD_JOURNAL" placeholder:"ADDRESS"`
	Check   bool   `help:"Change nothing: list the missing steps, and exit with status 1 if there are any."`
	Print   bool   `help:"Print the SQL of all steps, for psql, and connect to nothing."`
	Schema  string `help:"With --print: the name of the schema. Defaults to refold." placeholder:"NAME"`
}

// Help explains the command.
func (c *migrateCommand) Help() string {
	return `Creates and changes tables so that this version of Refold can use them. A program does the same when it opens the
journal, unless it is configured to check only. Several programs may migrate one database at the same time.

To migrate by hand, run the SQL that --print prints:

    refold migrate --print | psql --single-transaction --set ON_ERROR_STOP=1`
}

// Validate checks the flags.
func (c *migrateCommand) Validate() error {
	switch {
	case c.Check && c.Print:
		return errors.New("--check and --print exclude each other")
	case c.Schema != "" && !c.Print:
		return errors.New("--schema needs --print; without --print, the address contains the schema, as in postgres://USER@HOST/DATABASE?schema=NAME")
	}
	return nil
}

// Run applies or lists the steps.
func (c *migrateCommand) Run(ctx context.Context, env *operator.Env) error {
	if c.Print {
		return c.print(env)
	}
	if scheme, _, _ := strings.Cut(c.Journal, ":"); !slices.Contains(schemes(), scheme) {
		return fmt.Errorf("journal %q has nothing to migrate: it is not on PostgreSQL", operator.Redact(c.Journal))
	}
	dsn, schema, err := ParseAddress(c.Journal)
	if err != nil {
		return fmt.Errorf("journal %q: %w", operator.Redact(c.Journal), err)
	}
	steps, err := postgres.Migrate(ctx, dsn, postgres.Config{Schema: schema, CheckOnly: c.Check})
	if err != nil {
		return err
	}
	for _, step := range steps {
		state := "applied"
		if c.Check {
			state = "missing"
		}
		if _, err = fmt.Fprintf(env.Stdout, "%s: %s\n", state, step.Name); err != nil {
			return err
		}
	}
	if len(steps) == 0 {
		_, err = fmt.Fprintln(env.Stdout, "up to date")
	} else if c.Check {
		return operator.ErrProblems
	}
	return err
}

func (c *migrateCommand) print(env *operator.Env) error {
	quoted := cmp.Or(c.Schema, "refold")
	if quoted != "refold" {
		quoted = `"` + strings.ReplaceAll(c.Schema, `"`, `""`) + `"`
	}
	var b strings.Builder
	// CREATE SCHEMA IF NOT EXISTS needs the right to create schemas even if the schema exists.
	fmt.Fprintf(&b, "SET search_path = pg_catalog, pg_temp;\nDO $do$ BEGIN\n    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = '%s') THEN CREATE SCHEMA %s; END IF;\nEND $do$;\n",
		strings.ReplaceAll(cmp.Or(c.Schema, "refold"), "'", "''"), quoted)
	for _, step := range postgres.Migrations() {
		fmt.Fprintf(&b, "\n-- %s. Skip this step if the table migrations already lists it.\n%s", step.Name, strings.ReplaceAll(step.SQL, "refold.", quoted+"."))
	}
	_, err := fmt.Fprint(env.Stdout, b.String())
	return err
}
