// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package batch reads and makes files of commands to bank accounts:
//
//	id,command,account,amount,currency,to
//	1,open,alice,,USD,Alice Chen
//	2,deposit,alice,100.00,USD,
//	3,transfer,alice,12.50,USD,bob
//	4,withdraw,alice,20,TWD,
//	5,close,alice,,,
//
// In a line with the command open, the last field is the owner. The first line may be the header
// above. A line ends at a line break even within quotes, so that a bad line does not affect the
// following ones. Blank lines are skipped, but counted.
package batch

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/refold-io/refold/examples/bank/money"
)

// Header is the first line of a file with the names of the fields.
const Header = "id,command,account,amount,currency,to"

const fields = 6

// The commands of a line.
const (
	Open     = "open"
	Deposit  = "deposit"
	Withdraw = "withdraw"
	Transfer = "transfer"
	Close    = "close"
)

// Line is a command.
type Line struct {
	// Number is the number of the line in its file, from 1.
	Number uint64
	// ID is the ID in the file. It is ignored.
	ID string
	// Command is one of the constants.
	Command string
	// Account is the ID of the account.
	Account string
	// Amount is the amount of a deposit, a withdrawal or a transfer.
	Amount money.Amount
	// Currency is the currency of the amount, or of the account to open.
	Currency money.Currency
	// To is the destination of a transfer, or the owner of the account to open.
	To string
}

// LineError reports a bad line.
type LineError struct {
	// Line is the number, and Text the line, truncated if it is long.
	Line uint64
	Text string
	// Field is the invalid field, or "" for the whole line.
	Field string
	Err   error
}

func (e *LineError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("line %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("line %d: %s: %v", e.Line, e.Field, e.Err)
}

func (e *LineError) Unwrap() error { return e.Err }

// Parse parses one line. The error is a *LineError; for an amount or a currency it wraps an error
// of package money.
func Parse(number uint64, text string) (Line, error) {
	l := Line{Number: number}
	field, err := l.parse(text)
	if err != nil {
		return Line{}, &LineError{Line: number, Text: shorten(text), Field: field, Err: err}
	}
	return l, nil
}

func (l *Line) parse(text string) (field string, err error) {
	f, err := split(text)
	if err != nil {
		return "", err
	}
	l.ID, l.Command, l.Account, l.To = f[0], f[1], f[2], f[5]
	amount, currency := f[3], f[4]
	if strings.TrimSpace(l.Account) == "" {
		return "account", errors.New("missing")
	}
	needsAmount, needsCurrency, needsTo := true, true, false
	switch l.Command {
	case Open:
		needsAmount, needsTo = false, l.To != ""
	case Deposit, Withdraw:
	case Transfer:
		needsTo = true
	case Close:
		needsAmount, needsCurrency = false, false
	default:
		return "command", fmt.Errorf("%.20q: expected open, deposit, withdraw, transfer or close", l.Command)
	}
	for _, c := range []struct {
		name, value string
		needed      bool
	}{{"amount", amount, needsAmount}, {"currency", currency, needsCurrency}, {"to", l.To, needsTo}} {
		switch {
		case c.needed && c.value == "":
			return c.name, fmt.Errorf("missing, required by %s", l.Command)
		case !c.needed && c.value != "":
			return c.name, fmt.Errorf("%.20q: not allowed with %s", c.value, l.Command)
		}
	}
	if needsCurrency {
		if l.Currency, err = money.ParseCurrency(currency); err != nil {
			return "currency", err
		}
	}
	if needsAmount {
		if l.Amount, err = money.Parse(amount, l.Currency); err != nil {
			return "amount", err
		}
	}
	return "", nil
}

func split(text string) ([]string, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("not valid UTF-8")
	}
	f := strings.Split(text, ",")
	if strings.Contains(text, `"`) {
		r := csv.NewReader(strings.NewReader(text))
		r.FieldsPerRecord = -1
		var err error
		if f, err = r.Read(); err != nil {
			if parse, ok := errors.AsType[*csv.ParseError](err); ok {
				err = parse.Err
			}
			return nil, err
		}
	}
	if len(f) != fields {
		return nil, fmt.Errorf("%d fields, expected %d: %s", len(f), fields, Header)
	}
	return f, nil
}

func shorten(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// MaxLine bounds the length of a line, in bytes.
const MaxLine = 64 << 10

var errTooLong = fmt.Errorf("longer than %d bytes", MaxLine)

// Read yields the lines of a file. It yields a *LineError for a bad line and continues. Any other
// error is the error of r, and the last element.
func Read(r io.Reader) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		b := bufio.NewReaderSize(r, MaxLine+2)
		for number := uint64(1); ; number++ {
			text, err := readLine(b)
			if errors.Is(err, io.EOF) && text == "" {
				return
			}
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errTooLong) {
				yield(Line{}, fmt.Errorf("line %d: %w", number, err))
				return
			}
			switch {
			case errors.Is(err, errTooLong):
				if !yield(Line{}, &LineError{Line: number, Text: shorten(text), Err: err}) {
					return
				}
			case strings.TrimSpace(text) == "":
			case number == 1 && strings.TrimPrefix(text, "\ufeff") == Header: // some editors write a byte order mark
			default:
				if !yield(Parse(number, text)) {
					return
				}
			}
		}
	}
}

// readLine returns the next line without its end, or the beginning of a line that is too long.
func readLine(b *bufio.Reader) (string, error) {
	line, err := b.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		beginning := string(line[:1<<10])
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = b.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		return beginning, errTooLong
	}
	return string(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})), err
}
