// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/refold-io/refold/cmd/refold/operator"

// refoldCmd is what the command refold does, by a program that knows accounts:
// so it can decode their events in full and refold them.
type refoldCmd struct {
	Args []string `arg:"" optional:"" help:"As of the command refold; try help."`
}

// Run executes the command.
func (c *refoldCmd) Run(app *app) error {
	status := operator.Program{
		Name:      "bank refold",
		Entities:  []operator.Linked{operator.Entity(AccountType(nil))}, // an event holds the rate that it was made with
		Databases: databases(),
		Journal:   app.flags.Journal,
		Stdout:    app.stdout,
		Stderr:    app.stderr,
	}.Run(app.ctx, c.Args)
	if status != operator.ExitOK {
		return statusError{status}
	}
	return nil
}
