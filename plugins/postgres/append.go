// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/refold-io/refold/journal"
)

// maxAttempts is how often a group of writes is sent as a whole before conflicts with other writers
// split it.
const maxAttempts = 3

// Append implements journal.Journal. A call is one statement and one round trip, or several if its
// writes exceed 64 MiB. Each statement is a transaction.
//
// An error matches journal.ErrNotSent if the server reported it before the commit, or if it
// occurred before anything was sent. When ctx ends, the server is requested to cancel the statement
// and has one second to answer.
func (j *Journal) Append(ctx context.Context, writes []journal.Write) []error {
	if len(writes) == 0 {
		return nil
	}
	if !j.handle.Enter() {
		return slices.Repeat([]error{fmt.Errorf("postgres: append: %w", notStored(journal.ErrClosed))}, len(writes))
	}
	defer j.handle.Leave()
	b := newBatch(writes)
	for part := range b.parts {
		j.store(ctx, b, part)
	}
	return b.errs
}

// store stores a group of chains. If another writer inserts an event after the statement has
// checked its ID, the whole group is aborted. The next attempt finds the event of the other writer.
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

// settle sets the outcomes of a group that was stored except for conflicts.
func (j *Journal) settle(b *batch, chains []*chain, conflicts []conflict) {
	for _, found := range conflicts {
		c := chains[found.chain]
		if found.highest == c.expect {
			found.highest = 0 // the highest number has changed since
		}
		b.failChain(c, &journal.ConflictError{ID: c.id, Expected: c.expect, Highest: found.highest})
	}
	if len(conflicts) < len(chains) {
		j.db.appended()
	}
}

// isConflict reports whether the server rejected a row because its ID and number exist.
func isConflict(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == codeUniqueViolation && pg.TableName != "tags" && certain(err)
}

// appendError converts the error of a failed append. The result shows the outcome: it matches
// journal.ErrNotSent if nothing was stored.
func (db *DB) appendError(ctx context.Context, err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Code == codeRewound && certain(err) {
		return fmt.Errorf("postgres: append: %w", notStored(db.schemaError(err, "was restored without the value of a sequence: %s", pg.Message)))
	}
	if certain(err) {
		return fmt.Errorf("postgres: append: %w", notStored(db.translate(ctx, err)))
	}
	return fmt.Errorf("postgres: append: outcome unknown: %w", db.translate(ctx, err))
}

// notStored marks an error of an append that stored nothing.
func notStored(err error) error {
	return describe([]error{journal.ErrNotSent, err}, "not stored: %v", err)
}

var errResult = errors.New("postgres: malformed result")

// conflict identifies a chain that was not stored.
type conflict struct {
	chain   int
	highest uint64
}

// send stores chains with one statement. Without an error, all chains without a conflict are
// stored.
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
	slice := binary.BigEndian.AppendUint16(nil, uint16(journal.SliceOf(w.ID))) //nolint:gosec // small
	params := [][]byte{
		[]byte(w.ID), int8Value(w.Expect), slice, int8Value(timestamp(event.Time)),
		[]byte(w.Writer), []byte(event.Manifest), notNull(event.Payload), nil, nil,
	}
	if len(event.Tags) > 0 {
		var tags array
		tags.reset(pgtype.TextOID)
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

// notNull returns b as a value other than NULL.
func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// decodeConflicts decodes an array with one element per chain: NULL for a stored chain, the highest
// number for a conflict.
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

const (
	// maxPart is the size of a statement in bytes, unless a single write is larger.
	maxPart = 64 << 20
	// maxSent is the largest size of a single write.
	maxSent = 256 << 20
	// rowOverhead is the size of an event in addition to its data.
	rowOverhead = 64
)

// chain is the consecutive writes of one ID in one call. Only the first write can conflict with
// stored events, so all writes of a chain are stored together or not at all.
type chain struct {
	id     string
	writes []int  // indexes in the call
	one    [1]int // storage of writes in the usual case
	expect uint64 // of the first write
	next   uint64 // expected by a further write
	events int
	size   int
	broken bool // a write was rejected, so further writes are skipped
}

type batch struct {
	writes []journal.Write
	errs   []error // nil until a write has failed
	chains []*chain
	last   map[string]*chain // last chain of each ID
}

// newBatch rejects writes that can never be stored, and puts the others in chains, ordered by ID.
// The order prevents deadlocks between transactions that wait for each other's rows.
func newBatch(writes []journal.Write) *batch {
	b := &batch{writes: writes, chains: make([]*chain, 0, len(writes))}
	if len(writes) > 1 {
		b.last = make(map[string]*chain, len(writes))
	}
	for i := range writes {
		if err := b.add(i, &writes[i]); err != nil {
			b.fail(i, err)
		}
	}
	slices.SortStableFunc(b.chains, func(x, y *chain) int { return strings.Compare(x.id, y.id) })
	return b
}

// add adds a write to a chain, or returns the reason why it cannot be stored.
func (b *batch) add(i int, w *journal.Write) error {
	before := b.last[w.ID]
	if before != nil && before.broken {
		return journal.ErrSkipped
	}
	size, err := checkWrite(w)
	if err == nil && before != nil && w.Expect != before.next {
		err = &journal.ConflictError{ID: w.ID, Expected: w.Expect, Highest: before.next}
	}
	switch {
	case err != nil && before != nil:
		before.broken = true
		return err
	case err != nil:
		if b.last != nil {
			b.last[w.ID] = &chain{broken: true}
		}
		return err
	case before == nil || before.size+size > maxPart:
		before = &chain{id: w.ID, expect: w.Expect}
		before.writes = before.one[:0]
		b.chains = append(b.chains, before)
		if b.last != nil {
			b.last[w.ID] = before
		}
	}
	before.writes = append(before.writes, i)
	before.events += len(w.Events)
	before.size += size
	before.next = w.Expect + uint64(len(w.Events))
	return nil
}

// parts yields groups of chains, each for one statement. Two chains of one ID are never in one
// group, because an ID has a second chain only if its writes are too large for one statement.
func (b *batch) parts(yield func([]*chain) bool) {
	rest := b.chains
	for len(rest) > 0 {
		n, size := 1, rest[0].size
		for n < len(rest) && size+rest[n].size <= maxPart {
			size += rest[n].size
			n++
		}
		if part := slices.DeleteFunc(slices.Clone(rest[:n]), b.failed); len(part) > 0 && !yield(part) {
			return
		}
		rest = rest[n:]
	}
}

// failed reports whether an earlier chain of the same ID has failed.
func (b *batch) failed(c *chain) bool { return b.errs != nil && b.errs[c.writes[0]] != nil }

func (b *batch) fail(i int, err error) {
	if b.errs == nil {
		b.errs = make([]error, len(b.writes))
	}
	b.errs[i] = err
}

// failChain sets the error of a chain that was not stored, or whose outcome is unknown, and skips
// the following writes of its ID.
func (b *batch) failChain(c *chain, err error) {
	first := c.writes[0]
	if b.last != nil {
		for i := first + 1; i < len(b.writes); i++ {
			if b.writes[i].ID == c.id {
				b.fail(i, journal.ErrSkipped)
			}
		}
	}
	b.fail(first, err)
	if !journal.NotStored(err) || errors.Is(err, journal.ErrNotSent) {
		for _, i := range c.writes { // they were stored or lost together
			b.fail(i, err)
		}
	}
}

// checkWrite returns the approximate size of a write, or the reason why it cannot be stored.
func checkWrite(w *journal.Write) (int, error) {
	reject := func(seqNr uint64, reason error) (int, error) {
		return 0, &journal.RejectedError{ID: w.ID, SequenceNr: seqNr, Reason: reason}
	}
	if err := journal.CheckID(w.ID); err != nil {
		return reject(0, err)
	}
	sent, err := journal.CheckWrite(w)
	if err != nil {
		return 0, err
	}
	for i := range w.Events {
		e := &w.Events[i]
		if year := e.Time.Year(); year < minYear || year > maxYear {
			return reject(e.SequenceNr, fmt.Errorf("%w: time %v is not between the years %d and %d", journal.ErrInvalid, e.Time, minYear, maxYear))
		}
		sent += len(w.ID) + len(w.Writer) + len(e.Manifest) + rowOverhead
		for _, tag := range e.Tags {
			sent += len(tag)
		}
	}
	if sent > maxSent {
		return reject(0, fmt.Errorf("%d events with names have %d bytes, limit %d", len(w.Events), sent, maxSent))
	}
	return sent, nil
}
