// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"fmt"
	"time"

	"github.com/refold-io/refold/journal"
)

// write returns a write of n events behind expect, each with a payload that
// tells where it belongs.
func write(id, writer string, expect uint64, n int) journal.Write {
	w := journal.Write{ID: id, Writer: writer, Expect: expect, Events: make([]journal.Event, n)}
	for i := range w.Events {
		seqNr := expect + 1 + uint64(i)
		w.Events[i] = journal.Event{
			SequenceNr: seqNr,
			Time:       at(seqNr),
			Manifest:   "journaltest/event",
			Payload:    fmt.Appendf(nil, "%.40s/%d by %s", id, seqNr, writer),
		}
	}
	return w
}

// fence returns the write that settles whether lost can still land.
func fence(lost journal.Write) journal.Write {
	seqNr := lost.Expect + 1
	return journal.Write{
		ID: lost.ID, Writer: lost.Writer, Expect: lost.Expect,
		Events: []journal.Event{{SequenceNr: seqNr, Time: at(seqNr)}},
	}
}

// at returns a time for the event of a number.
func at(seqNr uint64) time.Time {
	day := time.Date(2026, time.March, 1, 12, 30, 0, 123_456_000, time.UTC)
	return day.Add(time.Duration(seqNr%1_000_000) * time.Microsecond)
}

// eventsOf returns the events of some writes as a replay yields them.
func eventsOf(writes ...journal.Write) []journal.Event {
	var events []journal.Event
	for _, w := range writes {
		for _, e := range w.Events {
			e.Writer = w.Writer
			events = append(events, e)
		}
	}
	return events
}
