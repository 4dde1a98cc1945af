// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package console prints tables and a status line for people, and JSON lines for programs. It
// escapes all characters that are not printable, because a terminal may act on them.
package console

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/refold-io/refold/internal/jsontext"
)

// Synchronized returns a writer that passes one Write at a time to w.
func Synchronized(w io.Writer) io.Writer { return &synchronized{w: w} }

type synchronized struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *synchronized) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// Table prints a list: a table, or JSON lines. The widths of columns only grow, because rows that
// are already written cannot be aligned again.
type Table struct {
	// MaxWidth bounds the width of a column, in characters. Longer cells are not aligned. Defaults
	// to no bound.
	MaxWidth int

	w      io.Writer
	json   bool
	rows   [][]string // not written yet
	widths []int
}

// block is the number of rows that are buffered and aligned together.
const block = 1000

// NewTable returns a list with the titles of the columns.
func NewTable(w io.Writer, asJSON bool, heads ...string) *Table {
	t := &Table{w: w, json: asJSON, widths: make([]int, len(heads))}
	if !asJSON {
		t.rows = append(t.rows, heads)
	}
	return t
}

// Add adds an element: as a line of JSON, or as the cells of a row.
func (t *Table) Add(object func() any, cells func() []string) error {
	if t.json {
		return jsontext.WriteJSON(t.w, object())
	}
	return t.Row(cells()...)
}

// Row adds a row to a table.
func (t *Table) Row(cells ...string) error {
	if t.rows = append(t.rows, cells); len(t.rows) < block {
		return nil
	}
	return t.Flush()
}

// Flush writes the added rows.
func (t *Table) Flush() error {
	for _, cells := range t.rows {
		for i := range cells {
			cells[i] = jsontext.Printable(cells[i])
			if n := utf8.RuneCountInString(cells[i]); t.MaxWidth == 0 || n <= t.MaxWidth {
				t.widths[i] = max(t.widths[i], n)
			} else {
				t.widths[i] = max(t.widths[i], t.MaxWidth)
			}
		}
	}
	var b bytes.Buffer
	for _, cells := range t.rows {
		last := len(cells) - 1
		for i, cell := range cells[:last] {
			b.WriteString(cell + strings.Repeat(" ", max(t.widths[i]-utf8.RuneCountInString(cell), 0)+2))
		}
		b.WriteString(cells[last] + "\n")
	}
	t.rows = t.rows[:0]
	_, err := b.WriteTo(t.w)
	return err
}

// Status is a line on a terminal that the next text replaces. It is safe for concurrent use.
type Status struct {
	w        io.Writer // nil without a terminal
	interval time.Duration

	mu    sync.Mutex
	shown time.Time // zero if the line is empty
}

// NewStatus returns an empty line on w. The line shows nothing unless terminal is true. A text that
// follows another text within the interval is dropped.
func NewStatus(w io.Writer, terminal bool, interval time.Duration) *Status {
	if !terminal {
		w = nil
	}
	return &Status{w: w, interval: interval}
}

// Show replaces the text.
func (s *Status) Show(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.w != nil && now.Sub(s.shown) >= s.interval {
		s.shown = now
		_, _ = fmt.Fprintf(s.w, "\r\x1b[K%s", jsontext.Printable(fmt.Sprintf(format, args...)))
	}
}

// Clear removes the text.
func (s *Status) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shown.IsZero() {
		s.shown = time.Time{}
		_, _ = fmt.Fprint(s.w, "\r\x1b[K")
	}
}
