// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"
)

// rebuilt is a state beside the present one.
type rebuilt struct {
	id             string
	whatIf         bool
	name           string // of the other state
	present, other folded
	equal          bool
	unused         uint64 // a snapshot that could not be read, 0 for none
	differences    differences
}

// wrong tells whether there is something to worry about.
func (r *rebuilt) wrong() bool { return !r.whatIf && !r.equal || r.unused > 0 }

// foldLine is a folded state as JSON.
type foldLine struct {
	SequenceNr uint64 `json:"sequence_nr"`
	Time       string `json:"time"`
	SnapshotNr uint64 `json:"snapshot_nr"`
	Records    uint64 `json:"records"`
	rendered
}

func (f *folded) line() foldLine {
	return foldLine{f.seqNr, stamp(f.time), f.snapshotNr, f.records, renderLine(formatOfState(f.manifest, f.payload), f.payload)}
}

// String tells where the state comes from.
func (f *folded) String() string {
	from := "from " + count(f.records, "record")
	if f.snapshotNr > 0 {
		from = fmt.Sprintf("from the snapshot at %d and %s", f.snapshotNr, count(f.records, "record"))
	}
	return fmt.Sprintf("at %d, %s, %s", f.seqNr, stamp(f.time), from)
}

func (c *rebuildCommand) print(env *Env, r *rebuilt) error {
	if c.JSON {
		return writeJSON(env.Stdout, struct {
			ID             string       `json:"id"`
			Equal          bool         `json:"equal"`
			UnusedSnapshot uint64       `json:"unused_snapshot,omitempty"`
			Present        foldLine     `json:"present"`
			Rebuilt        foldLine     `json:"rebuilt"`
			Differences    []difference `json:"differences,omitempty"`
			Omitted        int          `json:"differences_omitted,omitempty"`
		}{r.id, r.equal, r.unused, r.present.line(), r.other.line(), r.differences.list, r.differences.omitted})
	}
	return r.print(env)
}

// print prints the comparison for people.
func (r *rebuilt) print(env *Env) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", printable(r.id))
	fmt.Fprintf(&b, "present: %v\n", &r.present)
	fmt.Fprintf(&b, "%s: %v\n", r.name, &r.other)
	if r.unused > 0 {
		fmt.Fprintf(&b, "The snapshot at %d can't be read or decoded and was not used; verify says why.\n", r.unused)
	}
	if r.equal {
		b.WriteString("The states are equal:\n")
	} else {
		r.differences.print(&b, r.name)
	}
	if _, err := fmt.Fprint(env.Stdout, b.String()); err != nil || !r.equal {
		return err
	}
	text, err := formatOfState(r.other.manifest, r.other.payload).render(r.other.payload, stateLength)
	if err != nil {
		_, err = fmt.Fprintf(env.Stdout, "(%s: %v)\n", count(len(r.other.payload), "byte"), err)
		return err
	}
	return printState(env, text, false)
}

// print prints the differences as a table.
func (d *differences) print(b *strings.Builder, other string) {
	if len(d.list) == 0 {
		fmt.Fprintf(b, "The states differ, but not in what can be shown of them: %s.\n", d.why)
		return
	}
	b.WriteString("The states differ:\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(t, "FIELD\tPRESENT\t%s\n", strings.ToUpper(other))
	for _, x := range d.list {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", printable(x.Field), side(x.Present), side(x.Rebuilt))
	}
	_ = t.Flush() // to a strings.Builder
	if d.omitted > 0 {
		fmt.Fprintf(b, "(%d more)\n", d.omitted)
	}
}

// side shows one side of a difference, which is not there if the field is only
// on the other.
func side(value json.RawMessage) string {
	if value == nil {
		return "–"
	}
	return shorten(string(value), cellLength/2)
}

// exported makes a Go name of the name of a type.
func exported(name string) string {
	upper := true
	return strings.Map(func(r rune) rune {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			upper = true
			return -1
		case upper:
			upper = false
			return unicode.ToUpper(r)
		}
		return r
	}, name)
}
