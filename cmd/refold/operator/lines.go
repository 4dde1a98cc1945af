// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// lines prints one thing a line: a table for people or JSON for programs.
type lines struct {
	env   *Env
	json  bool
	table *tabwriter.Writer
	rows  int
}

// tableBlock is how many rows are aligned together, and held in memory.
const tableBlock = 1000

// lines begins a list, with the heads of the table's columns.
func (e *Env) lines(asJSON bool, heads ...string) *lines {
	l := &lines{env: e, json: asJSON, table: tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)}
	if !asJSON {
		_ = l.row(heads) // held back, so it can't fail yet
	}
	return l
}

// add prints a line: an object as JSON, or the cells of the table's row.
func (l *lines) add(object func() any, cells func() []string) error {
	if l.json {
		return writeJSON(l.env.Stdout, object())
	}
	return l.row(cells())
}

func (l *lines) row(cells []string) error {
	var b strings.Builder
	for i, cell := range cells {
		if i > 0 {
			b.WriteByte('\t')
		}
		b.WriteString(printable(cell))
	}
	if _, err := io.WriteString(l.table, b.String()+"\n"); err != nil {
		return err
	}
	if l.rows++; l.rows%tableBlock == 0 {
		return l.table.Flush()
	}
	return nil
}

func (l *lines) end() error { return l.table.Flush() }

// note tells people something that is no part of the output.
func (e *Env) note(format string, args ...any) {
	_, _ = fmt.Fprintf(e.Stderr, "%s: %s\n", e.Name, printable(Redact(fmt.Sprintf(format, args...))))
}

// stamp writes a time in full, in the same length each time.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// count writes a number with a noun.
func count[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
