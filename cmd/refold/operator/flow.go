// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

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
