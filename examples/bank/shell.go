// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/batch"
	"github.com/refold-io/refold/examples/bank/money"
)

type shellCmd struct{}

const shellHelp = `open ACCOUNT CURRENCY [OWNER]
deposit ACCOUNT AMOUNT CURRENCY
withdraw ACCOUNT AMOUNT CURRENCY
transfer ACCOUNT TO AMOUNT CURRENCY
look up ACCOUNT [in CURRENCY]
statement ACCOUNT
close ACCOUNT
help
quit
`

func (c *shellCmd) Run(app *app) (err error) {
	b, done, err := app.open(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	s := &shell{bank: b, out: app.stdout}
	if isTerminal(app.stdin) {
		s.prompt = "bank> "
		printf(app.stdout, "Enter \"help\" for a list of commands.\n")
	}
	return s.run(app.ctx, app.stdin)
}

type shell struct {
	bank   *bank
	out    io.Writer
	prompt string
}

// run executes lines until the input or ctx ends, or a line is "quit". It continues after errors.
func (s *shell) run(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines, errs := readLines(ctx, in)
	for {
		printf(s.out, "%s", s.prompt)
		select {
		case <-ctx.Done():
			return nil
		case line, ok := <-lines:
			words := strings.Fields(line)
			switch {
			case !ok:
				return <-errs
			case len(words) == 0:
				continue
			case words[0] == "quit" || words[0] == "exit":
				return nil
			}
			if err := s.execute(ctx, words); err != nil {
				printf(s.out, "error: %v\n", err)
			}
		}
	}
}

// readLines reads in the background, because reading a terminal cannot be interrupted.
func readLines(ctx context.Context, in io.Reader) (<-chan string, <-chan error) {
	lines, errs := make(chan string), make(chan error, 1)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		for scanner.Scan() {
			select {
			case lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
		errs <- scanner.Err()
	}()
	return lines, errs
}

var errUsage = errors.New(`unknown command or wrong arguments; enter "help" for a list`)

func (s *shell) execute(ctx context.Context, words []string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if len(words) > 1 && words[0] == "look" && words[1] == "up" {
		words = slices.Concat([]string{"lookup"}, words[2:])
	}
	command, args := words[0], words[1:]
	switch {
	case command == "help":
		_, err := io.WriteString(s.out, shellHelp)
		return err
	case command == "lookup" && len(args) == 1:
		return s.lookup(ctx, args[0], "")
	case command == "lookup" && len(args) == 3 && args[1] == "in":
		in, err := parseIn(args[2])
		if err != nil {
			return err
		}
		return s.lookup(ctx, args[0], in)
	case command == "statement" && len(args) == 1:
		return s.bank.printStatement(ctx, s.out, args[0], time.Time{}, time.Time{})
	}
	line, err := parseWords(command, args)
	if err != nil {
		return err
	}
	receipt, err := s.bank.execute(ctx, line, "")
	if err != nil {
		return err
	}
	if receipt.Transfer != 0 {
		printf(s.out, "transfer %d, ", receipt.Transfer)
	}
	printf(s.out, "balance %v\n", receipt.Balance)
	return nil
}

func parseWords(command string, args []string) (batch.Line, error) {
	line := batch.Line{Command: command}
	var amount, currency string
	switch {
	case command == batch.Open && len(args) >= 2:
		line.Account, currency, line.To = args[0], args[1], strings.Join(args[2:], " ")
	case (command == batch.Deposit || command == batch.Withdraw) && len(args) == 3:
		line.Account, amount, currency = args[0], args[1], args[2] //nolint:gosec // there are three
	case command == batch.Transfer && len(args) == 4:
		line.Account, line.To, amount, currency = args[0], args[1], args[2], args[3] //nolint:gosec // there are four
	case command == batch.Close && len(args) == 1:
		line.Account = args[0]
		return line, nil
	default:
		return line, errUsage
	}
	var err error
	if line.Currency, err = money.ParseCurrency(currency); err != nil {
		return line, err
	}
	if command != batch.Open {
		line.Amount, err = money.Parse(amount, line.Currency)
	}
	return line, err
}

func (s *shell) lookup(ctx context.Context, id string, in money.Currency) error {
	view, err := eventsourcing.Ask(ctx, s.bank.account(id), Lookup{In: in})
	if err != nil {
		return err
	}
	glimpse{view: view}.print(s.out, id)
	return nil
}
