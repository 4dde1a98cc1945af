// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/batch"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/store"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1   // a failure, or a difference found by the audit
	exitUsage       = 2   // wrong flags or arguments
	exitBadLines    = 3   // apply executed all lines except unreadable ones
	exitInterrupted = 130 // apply was interrupted; another run executes the rest
)

// exitError is an error with an exit code. If error is nil, the command has already printed the
// failure.
type exitError struct {
	error

	code int
}

func (e exitError) Unwrap() error { return e.error }

func usageError(err error) error { return exitError{err, exitUsage} }

type commandLine struct {
	Journal    string        `default:"leveldb:./bank-data" placeholder:"ADDRESS" help:"The journal: leveldb:DIR; postgres://USER@HOST/DATABASE, with ?schema=NAME for a schema other than refold; postgres: for the database in REFOLD_POSTGRES or the PG... variables; or inmem:. Defaults to leveldb:./bank-data."`
	Rates      string        `placeholder:"FILE" help:"JSON file of exchange rates. The bank reads it again when it changes. Defaults to built-in rates."`
	MaxRateAge time.Duration `placeholder:"DURATION" help:"Refuse conversions at rates older than this. Defaults to no limit."`
	Verbose    bool          `short:"v" help:"Log to standard error."`

	Serve     serveCmd     `cmd:"" help:"Serve the HTTP API."`
	Probe     probeCmd     `cmd:"" help:"Request /ready of a branch, for containers without a shell."`
	Shell     shellCmd     `cmd:"" help:"Read commands from a prompt."`
	Apply     applyCmd     `cmd:"" help:"Execute a file of commands."`
	Audit     auditCmd     `cmd:"" help:"Check the books, from the journal alone."`
	Lookup    lookupCmd    `cmd:"" help:"Print an account: its present state, a past state, or the state without some events."`
	Statement statementCmd `cmd:"" help:"Print the history of an account."`
	Generate  generateCmd  `cmd:"" help:"Write a file of random commands."`
	Project   projectCmd   `cmd:"" help:"Maintain a PostgreSQL table of totals by day and currency."`
	Totals    totalsCmd    `cmd:"" help:"Print the totals by day and currency."`
	Refold    refoldCmd    `cmd:"" passthrough:"" help:"Inspect the journal: events, snapshots, verify, rebuild, tail, copy, migrate."`
}

// app is the environment of all commands.
type app struct {
	ctx            context.Context //nolint:containedctx // ends with the program
	stdin          io.Reader
	stdout, stderr io.Writer
	logger         *slog.Logger
	flags          *commandLine
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal terminates the program immediately
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var flags commandLine
	exited, help := -1, stdout
	if len(args) == 0 {
		args, help = []string{"--help"}, stderr
	} else if args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	parser, err := kong.New(&flags,
		kong.Name("bank"),
		kong.Description("A bank with an audit of its books: the example of Refold.\n\nExit codes: 0 success; 1 failure, or a difference found by the audit; 2 wrong usage; 3 success except for bad lines; 130 interrupted."),
		kong.Vars{"header": batch.Header},
		kong.Writers(help, stderr),
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		printf(stderr, "bank: %v\n", err)
		return exitFailed
	}
	command, err := parser.Parse(args)
	switch {
	case exited >= 0 && help == stdout: // the user asked for help
		return exited
	case exited >= 0:
		return exitUsage
	}
	if err != nil {
		printf(stderr, "bank: %s\n", operator.Redact(err.Error())) // the error quotes arguments
		return exitUsage
	}
	a := &app{ctx: ctx, stdin: stdin, stdout: stdout, stderr: stderr, flags: &flags, logger: slog.New(slog.DiscardHandler)}
	if flags.Verbose {
		a.logger = slog.New(slog.NewTextHandler(stderr, nil))
	}
	err = command.Run(a)
	if err == nil {
		return exitOK
	}
	code := exitFailed
	if e, ok := errors.AsType[exitError](err); ok {
		if code = e.code; e.error == nil {
			return code
		}
	}
	printf(stderr, "bank: %v\n", err)
	return code
}

// open opens the bank for a command that changes accounts, and returns a function that closes it.
func (a *app) open(events *eventLog, observers ...eventsourcing.Observer) (*bank, func() error, error) {
	r, stopRates, err := a.rates()
	if err != nil {
		return nil, nil, err
	}
	s, err := openStore(a.ctx, a.flags.Journal, false)
	if err != nil {
		stopRates()
		return nil, nil, err
	}
	s = store.Of(events.watch(s.Journal()), s.Snapshots())
	b, err := openBank(s, r, a.logger, eventsourcing.Tee(append(observers, events.observer())...))
	if err != nil {
		stopRates()
		return nil, nil, errors.Join(err, s.Close())
	}
	ctx, cancel := context.WithCancel(a.ctx)
	var background sync.WaitGroup
	background.Go(func() {
		started, err := b.wake(ctx)
		if err != nil && ctx.Err() == nil {
			a.logger.WarnContext(ctx, "accounts with pending transfers not started", slog.Any("error", err))
		}
		a.logger.InfoContext(ctx, "accounts with pending transfers started", slog.Int("accounts", started))
	})
	return b, func() error {
		cancel()
		background.Wait()
		err := errors.Join(b.close(), s.Close())
		stopRates()
		return err
	}, nil
}

// read opens the bank for a command that only reads, calls do and closes the bank.
func (a *app) read(do func(*bank) error) (err error) {
	r, stopRates, err := a.rates()
	if err != nil {
		return err
	}
	defer stopRates()
	s, err := openStore(a.ctx, a.flags.Journal, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b, err := openBank(s, r, a.logger, eventsourcing.Observer{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return do(b)
}

// rates returns the exchange rates, and a function that stops reading their file.
func (a *app) rates() (rates.Rates, func(), error) {
	if a.flags.Rates == "" {
		table, err := rates.Parse(builtInRates)
		if err != nil {
			return nil, nil, err
		}
		return table.WithMaxAge(a.flags.MaxRateAge), func() {}, nil
	}
	file, err := rates.Open(a.flags.Rates, rates.Config{MaxAge: a.flags.MaxRateAge, Logger: a.logger})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		file.Run(ctx)
	}()
	return file, func() { cancel(); <-done }, nil
}

// printf writes to the output and ignores write errors.
func printf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

type generateCmd struct {
	Accounts  int    `required:"" help:"Number of accounts."`
	Commands  int    `required:"" help:"Number of lines, including those that open the accounts."`
	Seed      uint64 `default:"1" help:"Random seed. Equal seeds give equal files."`
	Confluent bool   `help:"Generate no commands whose outcome depends on the order in which transfers arrive."`
	Output    string `short:"o" placeholder:"FILE" help:"Output file. Defaults to standard output."`
}

func (c *generateCmd) Run(app *app) (err error) {
	if c.Accounts < 1 || c.Commands < c.Accounts {
		return usageError(errors.New("--accounts must be at least 1, and --commands at least as many"))
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

// refoldCmd runs the commands of refold in a program that contains the type of accounts. It can
// therefore decode their events and replay them.
type refoldCmd struct {
	Args []string `arg:"" optional:"" help:"Arguments of the command refold; see bank refold help."`
}

func (c *refoldCmd) Run(app *app) error {
	status := operator.Program{
		Name:      "bank refold",
		Entities:  []operator.Linked{operator.Entity(AccountType(nil))}, // events contain their exchange rate
		Databases: databases(),
		Journal:   app.flags.Journal,
		Stdout:    app.stdout,
		Stderr:    app.stderr,
	}.Run(app.ctx, c.Args)
	if status != operator.ExitOK {
		return exitError{code: status}
	}
	return nil
}
