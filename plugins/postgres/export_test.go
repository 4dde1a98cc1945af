// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"hash/maphash"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/refold-io/refold/journal"
)

// Certain reports whether a statement that failed with an error is certainly not committed.
func Certain(err error) bool { return certain(err) }

// WithCancelGrace returns a Config with another time to wait for the outcome of a canceled
// statement.
func (c Config) WithCancelGrace(d time.Duration) Config {
	c.grace = d
	return c
}

// PoolSize returns the maximum number of connections of the pool.
func (db *DB) PoolSize() int { return int(db.pool.Config().MaxConns) }

// SessionState returns the number of objects in the only session of a pool that could affect a
// later transaction.
func (db *DB) SessionState(ctx context.Context) (held int, err error) {
	conn, err := db.acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer db.release(ctx, conn)
	err = conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_prepared_statements) + (SELECT count(*) FROM pg_listening_channels())
		+ (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')
		+ (SELECT count(*) FROM pg_settings WHERE source = 'session')
		+ (SELECT count(*) FROM pg_cursors WHERE name <> '')`).Scan(&held)
	return held, err
}

// Parts returns the IDs of each statement of an append.
func Parts(writes []journal.Write) (parts [][]string) {
	for part := range newBatch(writes).parts {
		var ids []string
		for _, c := range part {
			ids = append(ids, c.id)
		}
		parts = append(parts, ids)
	}
	return parts
}

// DecodeConflicts decodes the result of append_many and returns the number of conflicts.
func DecodeConflicts(b []byte, chains int) (int, error) {
	conflicts, err := decodeConflicts(b, chains)
	return len(conflicts), err
}

// TestJournal returns the journal with its concrete type, for tests of its optional interfaces.
func (db *DB) TestJournal() *Journal { return db.Journal().(*Journal) } //nolint:errcheck,forcetypeassert // it is one

// TestSnapshots returns the snapshot store with its concrete type.
func (db *DB) TestSnapshots() *SnapshotStore { return db.Snapshots().(*SnapshotStore) } //nolint:errcheck,forcetypeassert // it is one

// ReportAll reports every call as slow and every stall immediately. It must be called before all
// other methods.
func (db *DB) ReportAll() { db.watch.slowCall, db.watch.longStall = 0, 0 }

// ReportNoCall reports no call as slow.
func (db *DB) ReportNoCall() { db.watch.slowCall = 1<<63 - 1 }

// Stall detects stalls from a sequence of watermarks.
type Stall struct{ stall stall }

// Observe adds a watermark. It returns "lasts" or "over" with the age if a report is due.
func (s *Stall) Observe(now time.Time, below int64, held bool) string {
	age, lasts, over := s.stall.saw(now, mark{below: below, held: held}, longStall)
	switch {
	case lasts:
		return "lasts " + age.String()
	case over:
		return "over " + age.String()
	}
	return ""
}

// LockKeys is the number of keys of the locks of appends.
const LockKeys = lockKeys

// SettledBelow returns the highest settled ordinal for the last drawn ordinal and the keys of the
// held locks.
func SettledBelow(drawn int64, keys []int64) (settled int64, held bool) {
	return settledBelow(drawn, keys)
}

// LockClass returns the class of the locks of a schema's appends.
func LockClass(schema string) int32 { return lockClass(schema) }

// ParseOffset returns the ordinal of an offset.
func ParseOffset(o journal.Offset) (int64, error) { return parseOffset(o) }

// FormatOffset returns the offset of an ordinal.
func FormatOffset(ordinal int64) journal.Offset { return formatOffset(ordinal) }

// QueryStatement returns the statement of a query and its parameters, for the events after one
// position up to another one.
func (db *DB) QueryStatement(q journal.Criteria, from, settled int64) (sql string, params []any) {
	s := newShape(db.schema, q)
	params = []any{from, settled, s.window}
	for i, p := range s.params {
		switch s.oids[3+i] {
		case pgtype.Int4OID:
			params = append(params, int32(p[2])<<8|int32(p[3]))
		case pgtype.TextArrayOID:
			prefixes := make([]string, len(q.Types))
			for k, name := range q.Types {
				prefixes[k] = name + "|"
			}
			params = append(params, prefixes)
		default:
			params = append(params, string(p))
		}
	}
	return s.sql, params
}

// Refresh refreshes the watermark.
func (db *DB) Refresh(ctx context.Context) error {
	_, err := db.tail.watermark.refresh(ctx)
	return err
}

// Refreshes returns the number of refreshes of the watermark.
func (db *DB) Refreshes() uint64 {
	w := db.tail.watermark
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// AppendIn appends in a transaction, which it does not commit.
func (db *DB) AppendIn(ctx context.Context, tx pgx.Tx, writes ...journal.Write) error {
	if len(writes) == 1 && len(writes[0].Events) == 1 {
		w, event := &writes[0], &writes[0].Events[0]
		var highest *int64 // not NULL after a conflict
		err := tx.QueryRow(ctx, db.sql.appendOne.sql, w.ID, int64(w.Expect), journal.SliceOf(w.ID), event.Time, w.Writer, event.Manifest,
			notNull(event.Payload), event.Tags, event.Metadata).Scan(&highest)
		if err == nil && highest != nil && *highest != int64(w.Expect) {
			err = errors.New("conflict")
		}
		return err
	}
	e, b := getEncoder(), newBatch(writes)
	for i := range b.chains {
		e.head(&b.chains[i])
		e.events(i, b, &b.chains[i])
	}
	st, epoch := &db.sql.appendBatch, ""
	for {
		result := tx.Conn().PgConn().ExecParams(ctx, st.sql, e.batchParams(epoch), st.oids, []int16{1}, []int16{1}).Read()
		switch {
		case result.Err != nil:
			return result.Err
		case result.Rows[0][0] == nil:
			return nil
		case len(result.Rows[0][0]) == 0:
			return errors.New("conflict")
		}
		epoch = string(result.Rows[0][0])
	}
}

// OwnEvents returns the number of IDs that an append does not check.
func (db *DB) OwnEvents() (n int) {
	for _, slot := range db.own.slots {
		if slot.id != "" {
			n++
		}
	}
	return n
}

// SameSlot returns another ID with the same slot of ownEvents.
func (db *DB) SameSlot(id string) string {
	for n := 0; ; n++ {
		if other := strconv.Itoa(n); other != id && db.own.slot(other) == db.own.slot(id) {
			return other
		}
	}
}

// AddToFormerEpoch adds an event that was stored in a former epoch. It reports whether the current
// epoch contains it.
func AddToFormerEpoch() bool {
	o := ownEvents{seed: maphash.MakeSeed()}
	o.start("former")
	epoch := o.find(nil)
	o.start("current")
	o.add(epoch, []chain{{id: "a", next: 1}})
	return o.slots != nil
}

// MigrationLock returns the key of the lock under which a schema is migrated.
func MigrationLock(schema string) int64 { return migrationLock(schema) }

// Channel returns the name of the notification channel of a schema.
func Channel(schema string) string { return channel(schema) }

// Gatherer is a gatherer of statements with one parameter of type text and one column of type text.
type Gatherer struct {
	g        *gatherer
	one      statement
	attempts atomic.Int64
}

// Gatherer returns a gatherer for the statements of one caller and of many.
func (db *DB) Gatherer(one, many string) *Gatherer {
	many1 := &statement{name: "many", sql: many, oids: []uint32{pgtype.TextArrayOID}}
	return &Gatherer{g: newGatherer(db, many1), one: statement{name: "one", sql: one, oids: []uint32{pgtype.TextOID}}}
}

// SetOne replaces the statement of one caller.
func (g *Gatherer) SetOne(sql string) { g.one.sql = sql }

// Run executes the statement. bad makes the rows of the first attempt malformed.
func (g *Gatherer) Run(ctx context.Context, param string, bad bool) (string, error) {
	var value string
	attempts := 0
	err := g.g.run(ctx, &g.one, [][]byte{[]byte(param)}, func() {
		if attempts++; attempts == 2 {
			g.attempts.Add(1)
		}
		value = ""
	}, func(values [][]byte) error {
		if bad && attempts == 2 { // the first reset precedes the wait
			bad = false
		} else if bad {
			return errRow
		}
		value += string(values[0])
		return nil
	})
	if err != nil {
		return "", err
	}
	return value, nil
}

// Hold makes all further calls wait until release is called.
func (g *Gatherer) Hold() (release func()) { return hold(g.g, g.g.flights) }

// Occupy counts statements as in flight. Land ends one of them. Further ones start after a time.
func (g *Gatherer) Occupy(statements int, patience time.Duration) {
	g.g.patience = patience
	hold(g.g, statements)
}

// Land ends a statement of Occupy.
func (g *Gatherer) Land() { g.g.landed() }

// Waiting returns the number of waiting calls.
func (g *Gatherer) Waiting() int { return waiting(g.g) }

// Wait waits for the statements of many callers.
func (g *Gatherer) Wait() { g.g.running.Wait() }

// Attempts returns the number of calls that repeat a failed statement, or wait to do so.
func (g *Gatherer) Attempts() int { return int(g.attempts.Load()) }

// Repeats returns the number of repeated statements in flight.
func (g *Gatherer) Repeats() int { return len(g.g.repeats) }

// SetLook replaces the statement that returns the appends in progress.
func (db *DB) SetLook(sql string) { db.sql.underWay.sql = sql }

// LimitLooks sets the time limit of the looks that begin from now on.
func (db *DB) LimitLooks(limit time.Duration) {
	db.looks.mu.Lock()
	defer db.looks.mu.Unlock()
	db.looks.limit = limit
}

// WaitingDeletions returns the number of deletions that wait for appends.
func (db *DB) WaitingDeletions() int {
	db.looks.mu.Lock()
	defer db.looks.mu.Unlock()
	return len(db.looks.waiting)
}

// WaitForAppends is the wait of a deletion after its mark.
func (j *Journal) WaitForAppends(ctx context.Context) error { return j.waitForAppends(ctx) }

// Looked reports whether a deletion has ever waited for a look.
func (db *DB) Looked() bool {
	db.looks.mu.Lock()
	defer db.looks.mu.Unlock()
	return db.looks.waiting != nil
}

// AwaitLooks waits until no look is in flight.
func (db *DB) AwaitLooks() { db.looks.running.Wait() }

// HoldReads makes recoveries wait until release is called.
func (db *DB) HoldReads() (release func()) {
	all := []func(){hold(db.highest, db.highest.flights), hold(db.replay, db.replay.flights), hold(db.load, db.load.flights)}
	return func() {
		for _, f := range all {
			f()
		}
	}
}

// WaitingReads returns the number of recoveries that wait.
func (db *DB) WaitingReads() int { return waiting(db.highest) + waiting(db.replay) + waiting(db.load) }

func hold(g *gatherer, flights int) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight = flights
	return func() {
		for range flights {
			g.landed()
		}
	}
}

func waiting(g *gatherer) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}
