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

// ErrRewound says that the server no longer holds what was read from it: it was
// restored from a backup, or a standby took over that lacked transactions.
// Readers that have passed what is lost would miss what takes its place.
var ErrRewound = errors.New("postgres: server has gone back behind what was read")

// lockKeys is how many keys there are for the locks of appends: the last
// ordinal modulo this number.
const lockKeys = 1 << 31

// lockAhead is how many ordinals may be drawn between a reader's look at the
// sequence and its look at the locks before it takes the newest locks for very old
// ones. That would not be wrong, but readers would wait.
const lockAhead = 1 << 20

// mark is what a look at the server found.
type mark struct {
	// settled is the highest ordinal of an event at or below which no event
	// appears any more.
	settled int64
	// drawn is the last ordinal that was drawn.
	drawn int64
	// below is up to where no append in progress keeps settled from rising.
	below int64
	// held says that an append in progress may keep settled from rising.
	held bool
}

// watermark knows up to where the order of events is settled; decision 0012
// proves why. All readers of a journal share it: of those that ask at the same
// time one looks, for all.
type watermark struct {
	db  *DB
	sql watermarkSQL

	turn    chan struct{} // holds one token while somebody looks
	checked bool          // the sequence is sound; guarded by turn
	looked  int64         // behind which there was no event but known ones; guarded by turn

	mu    sync.Mutex
	begun uint64 // looks that were begun
	done  uint64 // the last one that succeeded
	last  mark   // what it found
}

type watermarkSQL struct{ sound, drawn, locks, highest string }

func newWatermark(db *DB) *watermark {
	class := uint32(lockClass(db.cfg.Schema)) //nolint:gosec // the same 32 bits
	return &watermark{db: db, turn: make(chan struct{}, 1), sql: watermarkSQL{
		// A value that is cached in one session is drawn later than it seems.
		sound: fmt.Sprintf(`SELECT seqcache = 1 AND seqincrement = 1 AND NOT seqcycle, (SELECT coalesce(max(ordinal), 0) FROM %s.events)
			FROM pg_sequence WHERE seqrelid = %s::regclass`, db.schema, literal(db.schema+".ordinals")),
		drawn: fmt.Sprintf(`SELECT last_value, pg_is_in_recovery() FROM %s.ordinals`, db.schema),
		locks: fmt.Sprintf(`SELECT DISTINCT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND classid = %d
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, class),
		highest: fmt.Sprintf(`SELECT coalesce(max(ordinal), 0) FROM %s.events WHERE ordinal <= $1`, db.schema),
	}}
}

// now returns what the last look found, which may be a while ago.
func (w *watermark) now() mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// refresh returns what a look finds that begins after the call of refresh.
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
	found, err := w.look(ctx, before)
	w.db.watch.took(ctx, "watermark", began)
	if err != nil {
		return mark{}, err
	}
	w.db.watch.saw(ctx, found, lockClass(w.db.cfg.Schema))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done, w.last = number, found
	return found, nil
}

// look asks the server, in this order, for the last ordinal, for the locks of
// the appends in progress and for the highest event that they leave settled. Each
// has to be a statement of its own.
func (w *watermark) look(ctx context.Context, before mark) (mark, error) {
	conn, err := w.db.acquire(ctx)
	if err != nil {
		return mark{}, w.db.fail(ctx, err)
	}
	defer w.db.release(ctx, conn)
	drawn, keys, err := w.ask(ctx, conn.Conn())
	if err != nil {
		return mark{}, err
	}
	switch {
	case drawn < before.settled: // which was committed, and so the sequence keeps it
		return mark{}, tell([]error{ErrRewound}, "%s has gone back behind what was read: the last ordinal is %d, but %d was read; open it anew", w.db.target, drawn, before.settled)
	case drawn < before.drawn:
		w.looked = 0 // a crash made the server forget draws, so there may be events now where none were
	}
	below, held := settledBelow(drawn, keys)
	settled := before.settled
	if below > max(settled, w.looked) {
		if err := conn.QueryRow(ctx, w.sql.highest, below).Scan(&settled); err != nil {
			return mark{}, w.db.fail(ctx, err)
		}
		w.looked = below
	}
	return mark{settled: max(settled, before.settled), drawn: drawn, below: below, held: held}, nil
}

// ask reads the last ordinal and then the keys of the locks that are held. The
// first time it looks at the sequence first.
func (w *watermark) ask(ctx context.Context, conn *pgx.Conn) (drawn int64, keys []int64, err error) {
	batch := &pgx.Batch{}
	if !w.checked {
		batch.Queue(w.sql.sound)
	}
	batch.Queue(w.sql.drawn)
	batch.Queue(w.sql.locks)
	results := conn.SendBatch(ctx, batch)
	defer results.Close() //nolint:errcheck // what matters was read
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
		return 0, nil, w.db.schemaError(nil, "is not as it should be: sequence ordinals must have CACHE 1, INCREMENT 1 and NO CYCLE")
	case highest > drawn:
		return 0, nil, w.db.schemaError(nil, "was restored without the value of a sequence: sequence ordinals is at %d, but there is event %d", drawn, highest)
	}
	w.checked = true
	return drawn, keys, nil
}

// onStandby is the error of reading from a standby, which knows neither the locks of
// the primary nor where its sequence stands.
func (db *DB) onStandby() error {
	return tell([]error{ErrReadOnly}, "%s is a standby, where queries could skip events: read from the primary", db.target)
}

// settledBelow returns the highest ordinal that no append in progress can still
// use, and whether that is less than all. drawn is the last ordinal, keys are the
// locks that were held later: the last ordinal when they were taken, modulo lockKeys.
func settledBelow(drawn int64, keys []int64) (settled int64, held bool) {
	settled = drawn
	for _, key := range keys {
		age := (drawn - key) & (lockKeys - 1)
		if age > lockKeys-lockAhead || age > drawn {
			continue // taken after the last ordinal was read, so what it drew is above that
		}
		settled = min(settled, drawn-age)
	}
	return settled, settled < drawn
}
