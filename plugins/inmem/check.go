// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"fmt"

	"github.com/refold-io/refold/journal"
)

// The largest event and the largest write, in bytes of payload and metadata.
const (
	maxEventSize = 16 << 20
	maxWriteSize = 64 << 20
)

// checkEvents returns a *journal.RejectedError unless the events of a write are
// such as a journal may store.
func checkEvents(w *journal.Write) error {
	reject := func(seqNr uint64, reason error) error {
		return &journal.RejectedError{ID: w.ID, SequenceNr: seqNr, Reason: reason}
	}
	if len(w.Events) == 0 {
		return reject(0, fmt.Errorf("%w: the write holds no event", journal.ErrInvalid))
	}
	if w.Expect > journal.MaxSequenceNr-uint64(len(w.Events)) {
		return reject(0, fmt.Errorf("%w: there are no %d sequence numbers above %d", journal.ErrInvalid, len(w.Events), w.Expect))
	}
	size := 0
	for i := range w.Events {
		e := &w.Events[i]
		want := w.Expect + 1 + uint64(i)
		if e.SequenceNr != want {
			return reject(want, fmt.Errorf("%w: event %d of the write has sequence number %d", journal.ErrInvalid, i, e.SequenceNr))
		}
		n := len(e.Payload) + len(e.Metadata)
		if n > maxEventSize {
			return reject(want, fmt.Errorf("it has %d bytes, at most %d are allowed", n, maxEventSize))
		}
		size += n
	}
	if size > maxWriteSize {
		return reject(0, fmt.Errorf("it has %d bytes, at most %d are allowed", size, maxWriteSize))
	}
	return nil
}
