// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/refold-io/refold/journal"
)

// sender appends the writes of many IDs in groups.
type sender struct{ writer *journal.Writer }

// groupWrites is how many writes make an append. With those of all IDs there are
// a few such appends, for journals that take several at a time.
const groupWrites = 64

func newSender(j journal.Journal) (*sender, error) {
	// What waits is bounded by who waits for it.
	w, err := journal.NewWriter(j, journal.WriterConfig{MaxBatchWrites: groupWrites, MaxQueuedWrites: math.MaxInt, MaxQueuedBytes: math.MaxInt})
	if err != nil {
		return nil, err
	}
	return &sender{writer: w}, nil
}

// delivery is a write on its way.
type delivery chan error

// Written implements journal.Owner.
func (d delivery) Written(_ *journal.Request, err error) { d <- err }

// Room implements journal.Owner. There always is some.
func (d delivery) Room() {}

// append stores a write. It returns when its slices are free again.
func (s *sender) append(ctx context.Context, w journal.Write) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d := make(delivery, 1)
	s.writer.Submit(&journal.Request{Write: w, Stream: new(journal.Stream), Owner: d}) //nolint:contextcheck // what was sent is waited for
	err := <-d
	if err == nil || errors.Is(err, journal.ErrConflict) {
		return err
	}
	return fmt.Errorf("events from %d on of %q: %w", w.Expect+1, w.ID, err)
}

func (s *sender) close(ctx context.Context) error { return s.writer.Close(ctx) }

// epoch is the time of a placeholder, which no record is before.
func epoch() time.Time { return time.Unix(0, 0).UTC() }
