// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

// BenchmarkAppend measures a write of one event to one of 1,000 IDs, including the payload and the
// garbage collection of the growing history.
func BenchmarkAppend(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("writes=%d", batch), func(b *testing.B) {
			j := inmem.NewJournal()
			writes := make([]journal.Write, 1000)
			for i := range writes {
				writes[i] = journal.Write{ID: fmt.Sprintf("account|%d", i), Writer: "4f77462f627e223c", Events: make([]journal.Event, 1)}
			}
			now := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
			b.ReportAllocs()
			at := 0
			for n := 0; n < b.N; n += batch {
				calls := writes[at : at+batch]
				for i := range calls {
					w := &calls[i]
					w.Events[0] = journal.Event{SequenceNr: w.Expect + 1, Time: now, Manifest: "deposited", Payload: make([]byte, 48)}
				}
				if errs := j.Append(b.Context(), calls); errs != nil {
					b.Fatal(errs)
				}
				for i := range calls {
					calls[i].Expect++
				}
				if at += batch; at == len(writes) {
					at = 0
				}
			}
		})
	}
}

// BenchmarkReplay measures one event of a replay.
func BenchmarkReplay(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			j := inmem.NewJournal()
			w := journal.Write{ID: "account|1", Events: make([]journal.Event, n)}
			for i := range w.Events {
				w.Events[i] = journal.Event{SequenceNr: uint64(i + 1), Manifest: "deposited", Payload: make([]byte, 48)}
			}
			if errs := j.Append(b.Context(), []journal.Write{w}); errs != nil {
				b.Fatal(errs)
			}
			b.ReportAllocs()
			for k := 0; k < b.N; k += n {
				for _, err := range j.Replay(b.Context(), w.ID, 1, journal.MaxSequenceNr) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
