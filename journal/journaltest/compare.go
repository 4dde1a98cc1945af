// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/journal"
)

// diff says in what an event differs from the one that was stored, "" if in
// nothing. Nil and empty are the same.
func diff(got, want *journal.Event) string {
	var d []string
	note := func(field string, got, want any) {
		d = append(d, fmt.Sprintf("%s is %.60q, want %.60q", field, fmt.Sprint(got), fmt.Sprint(want)))
	}
	if got.SequenceNr != want.SequenceNr {
		note("SequenceNr", got.SequenceNr, want.SequenceNr)
	}
	if !got.Time.Equal(want.Time) || got.Time.Location() != time.UTC {
		note("Time", got.Time, want.Time)
	}
	if got.Writer != want.Writer {
		note("Writer", got.Writer, want.Writer)
	}
	if got.Manifest != want.Manifest {
		note("Manifest", got.Manifest, want.Manifest)
	}
	if !bytes.Equal(got.Payload, want.Payload) {
		note(fmt.Sprintf("Payload of %d bytes", len(got.Payload)), got.Payload[:min(60, len(got.Payload))], want.Payload[:min(60, len(want.Payload))])
	}
	if !slices.Equal(got.Tags, want.Tags) {
		note("Tags", got.Tags, want.Tags)
	}
	if !bytes.Equal(got.Metadata, want.Metadata) {
		note("Metadata", got.Metadata, want.Metadata)
	}
	return strings.Join(d, ", ")
}

// numbers returns the sequence numbers of events.
func numbers(events []journal.Event) []uint64 {
	out := make([]uint64, len(events))
	for i := range events {
		out[i] = events[i].SequenceNr
	}
	return out
}

// brief prints ascending numbers as ranges: "1-3, 5".
func brief(nrs []uint64) string {
	var out []string
	for i := 0; i < len(nrs); {
		k := i
		for k+1 < len(nrs) && nrs[k+1] == nrs[k]+1 {
			k++
		}
		if k == i {
			out = append(out, fmt.Sprint(nrs[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", nrs[i], nrs[k]))
		}
		if i = k + 1; len(out) == 20 {
			out = append(out, "...")
			break
		}
	}
	if out == nil {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// counted returns from, from+1 and so on up to to.
func counted(from, to uint64) []uint64 {
	var out []uint64
	for n := from; n <= to; n++ {
		out = append(out, n)
	}
	return out
}
