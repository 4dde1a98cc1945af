// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrRewound reports that the server no longer holds data that was read from it: the server was
// restored from a backup, or a standby without the last transactions took over. Readers that have
// passed the lost events would miss the events that replace them.
var ErrRewound = errors.New("postgres: server lost events that were read")

// lockKeys is the number of lock keys of appends. A key is the last ordinal modulo this number.
const lockKeys = 1 << 31

// lockAhead is the number of ordinals that may be drawn between reading the sequence and reading
// the locks. If more are drawn, the newest locks count as very old, which delays readers but skips
// no event.
const lockAhead = 1 << 20

type mark struct {
	// settled is the highest ordinal of an event at or below which no further event can appear.
	settled int64
	// drawn is the last ordinal that was drawn.
	drawn int64
	// below is the ordinal up to which no append in progress delays settled.
	below int64
	// held reports that an append in progress may delay settled.
	held bool
}

// watermark is the ordinal up to which the order of events is settled; decision 0012 contains the
// proof. All readers of a journal share it: one refresh serves all readers that request one at the
// same time.
type watermark struct {
	db  *DB
	sql watermarkSQL

	turn    chan struct{} // holds one token during a refresh
	checked bool          // the sequence was checked; guarded by turn

	mu    sync.Mutex
	begun uint64 // number of refreshes that began
	done  uint64 // number of the last successful one
	last  mark   // its result
}

type watermarkSQL struct{ sound, drawn, locks, highest string }

func newWatermark(db *DB) *watermark {
	class := uint32(lockClass(db.cfg.Schema)) //nolint:gosec // the same 32 bits
	return &watermark{db: db, turn: make(chan struct{}, 1), sql: watermarkSQL{
		// A session that caches values would use them out of order.
		sound: fmt.Sprintf(`SELECT seqcache = 1 AND seqincrement = 1 AND NOT seqcycle, (SELECT coalesce(max(ordinal), 0) FROM %s.events)
			FROM pg_sequence WHERE seqrelid = %s::regclass`, db.schema, literal(db.schema+".ordinals")),
		drawn: fmt.Sprintf(`SELECT last_value, pg_is_in_recovery() FROM %s.ordinals`, db.schema),
		locks: fmt.Sprintf(`SELECT DISTINCT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND classid = %d
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, class),
		highest: fmt.Sprintf(`SELECT coalesce(max(ordinal), 0) FROM %s.events WHERE ordinal <= $1`, db.schema),
	}}
}

// now returns the result of the last refresh, which may be old.
func (w *watermark) now() mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// refresh returns the result of a refresh that begins after the call.
func (w *watermark) refresh(ctx context.Context) (mark, error) {
	w.mu.Lock()
	begun := w.begun
	w.mu.Unlock()
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return mark{}, context.Cause(ctx)
	}
	w.mu.Lock()
	if w.done > begun {
		defer w.mu.Unlock()
		return w.last, nil
	}
	w.begun++
	number, before := w.begun, w.last
	w.mu.Unlock()
	began := time.Now()
	found, err := w.read(ctx, before)
	w.db.watch.logSlow(ctx, "watermark", began)
	if err != nil {
		return mark{}, err
	}
	w.db.watch.logStall(ctx, found, lockClass(w.db.cfg.Schema))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done, w.last = number, found
	return found, nil
}

// read reads, in this order, the last ordinal, the locks of the appends in progress, and the
// highest event that they leave settled. Each must be a separate statement.
func (w *watermark) read(ctx context.Context, before mark) (mark, error) {
	conn, err := w.db.acquire(ctx)
	if err != nil {
		return mark{}, w.db.fail(ctx, err)
	}
	defer w.db.release(ctx, conn)
	drawn, keys, err := w.readLocks(ctx, conn.Conn())
	if err != nil {
		return mark{}, err
	}
	if drawn < before.settled { // settled events are committed, so the sequence keeps their ordinals
		return mark{}, describe([]error{ErrRewound}, "%s lost events that were read: the last ordinal is %d, but %d was read; reopen the journal", w.db.target, drawn, before.settled)
	}
	below, held := settledBelow(drawn, keys)
	settled := before.settled
	if below > settled { // a crash may undo draws, so events may appear below an ordinal that had none
		if err := conn.QueryRow(ctx, w.sql.highest, below).Scan(&settled); err != nil {
			return mark{}, w.db.fail(ctx, err)
		}
	}
	return mark{settled: max(settled, before.settled), drawn: drawn, below: below, held: held}, nil
}

// readLocks reads the last ordinal and then the keys of the held locks. The first call also checks
// the sequence.
func (w *watermark) readLocks(ctx context.Context, conn *pgx.Conn) (drawn int64, keys []int64, err error) {
	batch := &pgx.Batch{}
	if !w.checked {
		batch.Queue(w.sql.sound)
	}
	batch.Queue(w.sql.drawn)
	batch.Queue(w.sql.locks)
	results := conn.SendBatch(ctx, batch)
	defer results.Close() //nolint:errcheck // all results were read
	sound, highest := true, int64(0)
	if !w.checked {
		if err = results.QueryRow().Scan(&sound, &highest); err != nil {
			return 0, nil, w.db.fail(ctx, err)
		}
	}
	var standby bool
	if err = results.QueryRow().Scan(&drawn, &standby); err != nil {
		return 0, nil, w.db.fail(ctx, err)
	}
	rows, err := results.Query()
	if err == nil {
		keys, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err == nil {
		err = results.Close()
	}
	switch {
	case err != nil:
		return 0, nil, w.db.fail(ctx, err)
	case standby:
		return 0, nil, w.db.onStandby()
	case !sound:
		return 0, nil, w.db.schemaError(nil, "is invalid: sequence ordinals must have CACHE 1, INCREMENT 1 and NO CYCLE")
	case highest > drawn:
		return 0, nil, w.db.schemaError(nil, "was restored without the value of a sequence: sequence ordinals is at %d, but there is event %d", drawn, highest)
	}
	w.checked = true
	return drawn, keys, nil
}

// onStandby returns the error of a read from a standby. A standby may lack events, and has neither
// the locks nor the sequence of the primary.
func (db *DB) onStandby() error {
	return describe([]error{ErrReadOnly}, "%s is a standby, which may lack events: connect to the primary", db.target)
}

// settledBelow returns the highest ordinal that no append in progress can still use, and whether
// that is below the last ordinal. drawn is the last ordinal. keys are the locks that were held
// later: the last ordinal when the lock was taken, modulo lockKeys.
func settledBelow(drawn int64, keys []int64) (settled int64, held bool) {
	settled = drawn
	for _, key := range keys {
		age := (drawn - key) & (lockKeys - 1)
		if age > lockKeys-lockAhead || age > drawn {
			continue // taken after drawn was read, so its ordinals are higher
		}
		settled = min(settled, drawn-age)
	}
	return settled, settled < drawn
}
