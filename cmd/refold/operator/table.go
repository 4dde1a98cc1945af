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

// lines prints a list: a table for people, or JSON lines for programs.
type lines struct {
	env   *Env
	json  bool
	table *tabwriter.Writer
	rows  int
}

// tableBlock is the number of rows that are buffered and aligned together.
const tableBlock = 1000

// lines starts a list. The heads are the column titles of the table.
func (e *Env) lines(asJSON bool, heads ...string) *lines {
	l := &lines{env: e, json: asJSON, table: tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)}
	if !asJSON {
		_ = l.row(heads) // buffered, so it cannot fail
	}
	return l
}

// add prints an element: as an object, or as the cells of a row.
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

// note prints a message for people to standard error.
func (e *Env) note(format string, args ...any) {
	_, _ = fmt.Fprintf(e.Stderr, "%s: %s\n", e.Name, printable(Redact(fmt.Sprintf(format, args...))))
}

// stamp formats a time with a fixed length.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// count formats a number with a noun.
func count[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// flow prints a table whose rows must appear at once, so later rows cannot align earlier ones:
// columns only grow.
type flow struct {
	env    *Env
	json   bool
	buffer bytes.Buffer
	rows   [][]string // not written yet
	widths []int      // nil before the first row
}

// maxWidth bounds the width of a column, in characters.
const maxWidth = 40

func (e *Env) flow(asJSON bool) *flow { return &flow{env: e, json: asJSON} }

// add adds an element: as an object, or as the cells of a row.
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

// flush writes the added elements.
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
