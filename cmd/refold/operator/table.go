// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
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

// flow prints lines that have to be seen at once, so that a table can't be
// aligned by what comes later: its columns only grow.
type flow struct {
	env    *Env
	json   bool
	buffer bytes.Buffer
	rows   [][]string // not written yet
	widths []int      // nil before the first row
}

// maxWidth is how wide a column grows.
const maxWidth = 40

func (e *Env) flow(asJSON bool) *flow { return &flow{env: e, json: asJSON} }

// add prints a line: an object as JSON, or the cells of the table's row.
func (f *flow) add(object func() any, cells func() []string) error {
	if f.json {
		return writeJSON(&f.buffer, object())
	}
	if f.widths == nil {
		f.row(tailHeads())
	}
	f.row(cells())
	return nil
}

func (f *flow) row(cells []string) {
	if f.widths == nil {
		f.widths = make([]int, len(cells))
	}
	for i, cell := range cells {
		cells[i] = printable(cell)
		f.widths[i] = max(f.widths[i], min(utf8.RuneCountInString(cells[i]), maxWidth))
	}
	f.rows = append(f.rows, cells)
}

// flush writes what was printed.
func (f *flow) flush() error {
	for _, cells := range f.rows {
		for i, cell := range cells[:len(cells)-1] {
			f.buffer.WriteString(cell)
			f.buffer.WriteString(strings.Repeat(" ", max(f.widths[i]-utf8.RuneCountInString(cell), 0)+2))
		}
		f.buffer.WriteString(cells[len(cells)-1] + "\n")
	}
	f.rows = f.rows[:0]
	_, err := f.buffer.WriteTo(f.env.Stdout)
	return err
}
