// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"

	"github.com/refold-io/refold/examples/bank/batch"
)

// generateCmd writes a file for apply.
type generateCmd struct {
	Accounts  int    `required:"" help:"How many accounts."`
	Commands  int    `required:"" help:"How many lines, those that open the accounts included."`
	Seed      uint64 `default:"1" help:"The same seed gives the same file."`
	Confluent bool   `help:"Leave out what depends on the order in which transfers arrive."`
	Output    string `short:"o" placeholder:"FILE" help:"Where to write. Defaults to standard output."`
}

// Run executes the command.
func (c *generateCmd) Run(app *app) (err error) {
	if c.Accounts < 1 || c.Commands < c.Accounts {
		return usageError{errors.New("--accounts has to be at least 1, and --commands at least as many")}
	}
	out := app.stdout
	if c.Output != "" {
		file, err := os.Create(c.Output)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	return batch.Generate(out, batch.Plan{Accounts: c.Accounts, Commands: c.Commands, Seed: c.Seed, Confluent: c.Confluent})
}
