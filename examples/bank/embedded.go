// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build embedded

package main

import (
	"context"
	"errors"

	"github.com/refold-io/refold/cmd/refold/operator"
)

// The build tag "embedded" excludes PostgreSQL, HTTP and clusters from the program, which then
// compiles in a quarter of the time: see the target bank of the Makefile. The functions of this
// file replace the missing parts and return errEmbedded.

var errEmbedded = errors.New("this program was built for the embedded journal only (-tags embedded, as make bank does); " +
	"for PostgreSQL, serve and clusters use: go run ./examples/bank")

func (c *serveCmd) Run(*app) error { return errEmbedded }

func (c *probeCmd) Run(*app) error { return errEmbedded }

func (c *projectCmd) Run(*app) error { return errEmbedded }

// missingCommand is a subcommand of the full program. In this program it returns an error.
type missingCommand struct {
	Args []string `arg:"" optional:"" passthrough:""`
}

func (c *missingCommand) Run() error { return errEmbedded }

// databases returns a placeholder for PostgreSQL, whose functions return errEmbedded.
func databases() []operator.Database {
	open := func(context.Context, string) (*operator.Source, error) { return nil, errEmbedded }
	return []operator.Database{{
		Schemes: []string{"postgres", "postgresql"}, Forms: "postgres: in the full program", Open: open, OpenTarget: open,
		Commands: []operator.Command{{Name: "migrate", Help: "Create and change the tables of PostgreSQL: in the full program only.", Grammar: &missingCommand{}}},
	}}
}
