// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/refold-io/refold/journal"
)

// DeleteTo implements journal.Journal. Events are deleted in transactions of 5,000, oldest first. A
// later deletion of the same ID, up to the same or a higher number, completes an interrupted one.
// Disk space is free again when the server has vacuumed the table.
//
// DeleteTo first marks the sequence numbers as used, then waits for the appends that may not have
// seen the mark, and only then deletes events. Without the wait, an append could check the ID
// before the mark is set and store its event after the deletion. It would find neither the mark nor
// a conflicting event, and reuse a sequence number. Appends never wait for a deletion.
func (j *Journal) DeleteTo(ctx context.Context, id string, to uint64) (err error) {
	defer wrap(&err, "delete events of %q up to %d", id, to)
	to = min(to, journal.MaxSequenceNr)
	var marked uint64
	params := [][]byte{[]byte(id), int8Value(to)}
	err = j.readRows(ctx, id, &j.db.sql.markDeleted, params, func(values [][]byte) error {
		marked = binary.BigEndian.Uint64(values[0])
		return nil
	})
	if err != nil || marked == 0 {
		return err
	}
	if err := j.waitForAppends(ctx, id); err != nil {
		return err
	}
	params[1] = int8Value(min(to, marked))
	for more := true; more; {
		err := j.readRows(ctx, id, &j.db.sql.deleteSome, params, func(values [][]byte) error {
			more = binary.BigEndian.Uint64(values[0]) > 0
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// The pause between two checks of the appends in progress doubles from waitPause to maxWaitPause.
const (
	waitPause    = time.Millisecond
	maxWaitPause = 50 * time.Millisecond
)

// waitForAppends waits until the appends that are in progress at the call have ended.
func (j *Journal) waitForAppends(ctx context.Context, id string) error {
	var old map[string]bool // nil before the first check
	for pause := waitPause; ; pause = min(2*pause, maxWaitPause) {
		left := make(map[string]bool)
		err := j.readRows(ctx, id, &j.db.sql.underWay, nil, func(values [][]byte) error {
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
