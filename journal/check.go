// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import "fmt"

const (
	// MaxEventSize is the size of the largest event, in bytes of its payload and
	// metadata.
	MaxEventSize = 16 << 20
	// MaxWriteSize is that of the largest write.
	MaxWriteSize = 64 << 20
)

// CheckWrite returns a *RejectedError unless a write is such as a journal may
// store: it has events, they are numbered as Expect says, and neither they nor all
// of them are too large. It returns the size of the write as MaxWriteSize counts.
// It is for plugins, in Append; the ID is left to CheckID.
func CheckWrite(w *Write) (size int, err error) {
	reject := func(seqNr uint64, format string, args ...any) (int, error) {
		return 0, &RejectedError{ID: w.ID, SequenceNr: seqNr, Reason: fmt.Errorf(format, args...)}
	}
	if len(w.Events) == 0 {
		return reject(0, "%w: the write holds no event", ErrInvalid)
	}
	if n := uint64(len(w.Events)); n > MaxSequenceNr || w.Expect > MaxSequenceNr-n {
		return reject(0, "%w: there are no %d sequence numbers above %d", ErrInvalid, n, w.Expect)
	}
	for i := range w.Events {
		e := &w.Events[i]
		want := w.Expect + 1 + uint64(i)
		if e.SequenceNr != want {
			return reject(want, "%w: event %d of the write has sequence number %d", ErrInvalid, i, e.SequenceNr)
		}
		n := len(e.Payload) + len(e.Metadata)
		if n > MaxEventSize {
			return reject(want, "it has %d bytes, at most %d are allowed", n, MaxEventSize)
		}
		size += n
	}
	if size > MaxWriteSize {
		return reject(0, "it has %d bytes, at most %d are allowed", size, MaxWriteSize)
	}
	return size, nil
}
