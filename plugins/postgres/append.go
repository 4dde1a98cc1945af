// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/refold-io/refold/journal"
)

// maxAttempts is how often a group of writes is sent as one before it is split
// because of other writers.
const maxAttempts = 3

// Append implements journal.Journal. A call is one statement and one round trip,
// or several if it is larger than 64 MiB. The statement is a transaction of
// its own.
//
// An error that the server reported before its commit, or that came before
// anything was sent, matches journal.ErrNotSent. When ctx ends, the server is asked to
// cancel the statement and has one second to answer.
func (j *Journal) Append(ctx context.Context, writes []journal.Write) []error {
	if len(writes) == 0 {
		return nil
	}
	if !j.enter() {
		return fill(len(writes), fmt.Errorf("postgres: append: %w", notStored(journal.ErrClosed)))
	}
	defer j.leave()
	b := newBatch(writes)
	for part := range b.parts {
		j.store(ctx, b, part)
	}
	return b.errs
}

func fill(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// store stores a group of chains. One that another writer got in the way of, after the
// statement had looked and before it stored, takes the whole group back with it; the
// next attempt sees what the other writer stored.
func (j *Journal) store(ctx context.Context, b *batch, chains []*chain) {
	for attempt := 1; ; attempt++ {
		conflicts, err := j.db.send(ctx, b.writes, chains)
		switch {
		case err == nil:
			j.settle(b, chains, conflicts)
			return
		case !isConflict(err):
			err = j.db.appendError(ctx, err)
			for _, c := range chains {
				b.failChain(c, err)
			}
			return
		case attempt < maxAttempts:
		case len(chains) == 1:
			b.failChain(chains[0], &journal.ConflictError{ID: chains[0].id, Expected: chains[0].expect})
			return
		default:
			half := len(chains) / 2
			j.store(ctx, b, chains[:half])
			j.store(ctx, b, chains[half:])
			return
		}
	}
}

// settle sets the outcomes of a group that was stored but for conflicts.
func (j *Journal) settle(b *batch, chains []*chain, conflicts []conflict) {
	for _, found := range conflicts {
		c := chains[found.chain]
		if found.highest == c.expect {
			found.highest = 0 // it has changed since
		}
		b.failChain(c, &journal.ConflictError{ID: c.id, Expected: c.expect, Highest: found.highest})
	}
	if len(conflicts) < len(chains) {
		j.db.appended()
	}
}

// isConflict reports whether the server refused a row because there was one with
// its ID and number.
func isConflict(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == codeUniqueViolation && pg.TableName != "tags" && certain(err)
}

// appendError says what became of a statement that failed.
func (db *DB) appendError(ctx context.Context, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == codeRewound && certain(err) {
		return fmt.Errorf("postgres: append: %w", notStored(db.schemaError(err, "was restored without the value of a sequence: %s", pg.Message)))
	}
	if certainly(err) {
		return fmt.Errorf("postgres: append: %w", notStored(db.translate(ctx, err)))
	}
	return fmt.Errorf("postgres: append: outcome unknown: %w", db.translate(ctx, err))
}

// notStored says of an append's error that nothing was stored.
func notStored(err error) error { return tell([]error{journal.ErrNotSent, err}, "not stored: %v", err) }

var errResult = errors.New("a result that is not as it should be")

// conflict is a chain that was not stored, by its index.
type conflict struct {
	chain   int
	highest uint64
}

// send stores chains with one statement. If there is no error, all are stored
// but those that are in conflict.
func (db *DB) send(ctx context.Context, writes []journal.Write, chains []*chain) (conflicts []conflict, err error) {
	if len(chains) == 1 && chains[0].events == 1 {
		return db.sendOne(ctx, &writes[chains[0].writes[0]])
	}
	e := getEncoder()
	defer putEncoder(e)
	for i, c := range chains {
		e.chain(i, c, writes)
	}
	err = db.run(ctx, &db.sql.appendMany, e.params(), func(values [][]byte) (err error) {
		if values[0] != nil {
			conflicts, err = decodeConflicts(values[0], len(chains))
		}
		return err
	})
	return conflicts, err
}

func (db *DB) sendOne(ctx context.Context, w *journal.Write) (conflicts []conflict, err error) {
	event := &w.Events[0]
	params := [][]byte{
		[]byte(w.ID), int8Value(w.Expect), int2Value(journal.SliceOf(w.ID)), int8Value(timestamp(event.Time)),
		[]byte(w.Writer), []byte(event.Manifest), notNull(event.Payload), nil, nil,
	}
	if len(event.Tags) > 0 {
		var tags array
		tags.reset(oidText)
		for _, tag := range event.Tags {
			tags.text(tag)
		}
		params[7] = tags.value()
	}
	if len(event.Metadata) > 0 {
		params[8] = event.Metadata
	}
	err = db.run(ctx, &db.sql.appendOne, params, func(values [][]byte) error {
		switch {
		case values[0] == nil:
			return nil
		case len(values[0]) != 8:
			return errResult
		}
		conflicts = []conflict{{highest: binary.BigEndian.Uint64(values[0])}}
		return nil
	})
	return conflicts, err
}

// notNull returns b as a value that is not NULL.
func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// decodeConflicts reads an array with one element for each of so many chains:
// NULL for those that are stored, and the highest number for the others.
func decodeConflicts(b []byte, chains int) ([]conflict, error) {
	if len(b) < arrayHeader || binary.BigEndian.Uint32(b) != 1 || int(binary.BigEndian.Uint32(b[12:])) != chains {
		return nil, errResult
	}
	b = b[arrayHeader:]
	var conflicts []conflict
	for i := range chains {
		const length, null = 4, 0xffff_ffff
		switch {
		case len(b) >= length && binary.BigEndian.Uint32(b) == null:
			b = b[length:]
		case len(b) >= length+8 && binary.BigEndian.Uint32(b) == 8:
			conflicts = append(conflicts, conflict{chain: i, highest: binary.BigEndian.Uint64(b[length:])})
			b = b[length+8:]
		default:
			return nil, errResult
		}
	}
	if len(b) > 0 {
		return nil, errResult
	}
	return conflicts, nil
}
