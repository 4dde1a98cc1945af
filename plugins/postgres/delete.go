// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/refold-io/refold/journal"
)

// DeleteTo implements journal.Journal. Events go in transactions of 5,000, the
// oldest first; a deletion that was cut short is finished by the next one of
// that ID. Disk space is free again when the server has vacuumed the table.
//
// It first marks the numbers as used for ever, waits for the appends that may not
// have seen the mark, and only then takes events away: an append that looked
// before the deletion and stores after it would find neither the mark nor the event that it is in
// conflict with, and use a number twice. Other appends wait for nothing.
func (j *Journal) DeleteTo(ctx context.Context, id string, to uint64) error {
	if err := j.deleteTo(ctx, id, min(to, journal.MaxSequenceNr)); err != nil {
		return fmt.Errorf("postgres: delete events of %q up to %d: %w", id, to, err)
	}
	return nil
}

func (j *Journal) deleteTo(ctx context.Context, id string, to uint64) error {
	var marked uint64
	params := [][]byte{[]byte(id), int8Value(to)}
	err := j.ask(ctx, id, &j.db.sql.markDeleted, params, func(values [][]byte) error {
		marked = binary.BigEndian.Uint64(values[0])
		return nil
	})
	if err != nil || marked == 0 {
		return err
	}
	if err := j.outlive(ctx, id); err != nil {
		return err
	}
	params[1] = int8Value(min(to, marked))
	for more := true; more; {
		err := j.ask(ctx, id, &j.db.sql.deleteSome, params, func(values [][]byte) error {
			more = binary.BigEndian.Uint64(values[0]) > 0
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// The pauses between two looks at the appends in progress double from the first
// to the second.
const (
	outlivePause    = time.Millisecond
	maxOutlivePause = 50 * time.Millisecond
)

// outlive waits until the appends that are in progress now have ended.
func (j *Journal) outlive(ctx context.Context, id string) error {
	var old map[string]bool // nil before the first look
	for pause := outlivePause; ; pause = min(2*pause, maxOutlivePause) {
		left := make(map[string]bool)
		err := j.ask(ctx, id, &j.db.sql.underWay, nil, func(values [][]byte) error {
			if name := string(values[0]); old == nil || old[name] {
				left[name] = true
			}
			return nil
		})
		if err != nil || len(left) == 0 {
			return err
		}
		old = left
		if !sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}
