// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/refold-io/refold/journal"
)

// maxAttempts is how often a group of writes is sent as a whole before conflicts with other writers
// split it.
const maxAttempts = 3

// Append implements journal.Journal. A call is one statement and one round trip, or several if its
// writes exceed 64 MiB, or if a write conflicts with stored events. Each statement is a transaction.
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
	errs := b.errs
	b.release()
	return errs
}

// store stores a group of chains. If another writer inserts an event after the statement has
// checked its ID, the whole group is aborted. The next attempt finds the event of the other writer.
func (j *Journal) store(ctx context.Context, b *batch, chains []chain) {
	for attempt := 1; ; attempt++ {
		conflicts, err := j.db.send(ctx, b, chains, attempt)
		switch {
		case err == nil:
			j.settle(b, chains, conflicts)
			return
		case !isConflict(err):
			err = j.db.appendError(ctx, err)
			for i := range chains {
				b.failChain(&chains[i], err)
			}
			return
		case attempt < maxAttempts:
		case len(chains) == 1:
			b.failChain(&chains[0], &journal.ConflictError{ID: chains[0].id, Expected: chains[0].expect})
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
func (j *Journal) settle(b *batch, chains []chain, conflicts []conflict) {
	for _, found := range conflicts {
		c := &chains[found.chain]
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

// send stores chains with one statement if there is no conflict. Without an error, all chains
// without a conflict are stored.
func (db *DB) send(ctx context.Context, b *batch, chains []chain, attempt int) (conflicts []conflict, err error) {
	if len(chains) == 1 && chains[0].events == 1 {
		return db.sendOne(ctx, &b.writes[b.order[chains[0].from].write])
	}
	if attempt == 1 {
		stored, err := db.sendBatch(ctx, b, chains)
		if stored || err != nil {
			return nil, err
		}
	}
	return db.sendMany(ctx, b, chains)
}

// sendBatch stores chains with one statement unless there is a conflict. If the epoch is not that of
// the server, as in the first append, sendBatch sends the statement again with the server's epoch.
func (db *DB) sendBatch(ctx context.Context, b *batch, chains []chain) (stored bool, err error) {
	e := getEncoder()
	defer putEncoder(e)
	for range maxAttempts {
		epoch := db.own.find(chains)
		e.reset()
		for i := range chains {
			if !chains[i].own {
				e.head(&chains[i])
			}
			e.events(i, b, &chains[i])
		}
		current := epoch
		err = db.run(ctx, &db.sql.appendBatch, e.batchParams(epoch), func(values [][]byte) error {
			if stored = values[0] == nil; !stored {
				current = string(values[0])
			}
			return nil
		})
		switch {
		case err != nil:
			return false, err
		case stored:
			db.own.add(epoch, chains)
			return true, nil
		case current == "":
			return false, nil
		}
		db.own.start(current)
	}
	return false, nil
}

// sendMany stores the chains without a conflict with one statement.
func (db *DB) sendMany(ctx context.Context, b *batch, chains []chain) (conflicts []conflict, err error) {
	e := getEncoder()
	defer putEncoder(e)
	for i := range chains {
		e.head(&chains[i])
		e.events(i, b, &chains[i])
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
	id       string
	from, to int    // the range in batch.order
	expect   uint64 // of the first write
	next     uint64 // expected by a further write
	events   int
	size     int
	own      bool // set by ownEvents.find
}

type batch struct {
	writes []journal.Write
	errs   []error // nil until a write has failed
	order  []position
	chains []chain
}

// position is the place of a write in the order of a batch. The key has the first bytes of the ID
// after the prefix that all IDs of the batch have in common, so most comparisons need no ID.
type position struct {
	key   uint64
	write int
}

var batches = sync.Pool{New: func() any { return new(batch) }} //nolint:gochecknoglobals // a cache of memory

// release makes the batch reusable.
func (b *batch) release() {
	clear(b.chains)
	*b = batch{order: b.order[:0], chains: b.chains[:0]}
	batches.Put(b)
}

// newBatch rejects writes that can never be stored, and puts the others in chains, ordered by ID.
// The order prevents deadlocks between transactions that wait for each other's rows.
func newBatch(writes []journal.Write) *batch {
	b, _ := batches.Get().(*batch)
	b.writes = writes
	b.sort()
	for from := 0; from < len(b.order); {
		from = b.link(from)
	}
	return b
}

// sort sorts the writes by ID. The writes of one ID keep their order.
func (b *batch) sort() {
	first := b.writes[0].ID
	common := len(first)
	for i := range b.writes {
		id := b.writes[i].ID
		common = min(common, len(id))
		for id[:common] != first[:common] {
			common--
		}
	}
	for i := range b.writes {
		var key [8]byte
		copy(key[:], b.writes[i].ID[common:])
		b.order = append(b.order, position{key: binary.BigEndian.Uint64(key[:]), write: i})
	}
	slices.SortFunc(b.order, func(x, y position) int {
		if x.key != y.key {
			return cmp.Compare(x.key, y.key)
		}
		return cmp.Or(strings.Compare(b.writes[x.write].ID, b.writes[y.write].ID), cmp.Compare(x.write, y.write))
	})
}

// link puts the writes of one ID in chains. It returns the position of the next ID.
func (b *batch) link(from int) int {
	id := b.writes[b.order[from].write].ID
	var last *chain
	broken := false // a write was rejected, so further writes are skipped
	for at := from; at < len(b.order); at++ {
		i := b.order[at].write
		w := &b.writes[i]
		if at > from && w.ID != id {
			return at
		}
		if broken {
			b.fail(i, journal.ErrSkipped)
			continue
		}
		size, err := checkWrite(w)
		if err == nil && last != nil && w.Expect != last.next {
			err = &journal.ConflictError{ID: id, Expected: w.Expect, Highest: last.next}
		}
		if err != nil {
			broken = true
			b.fail(i, err)
			continue
		}
		if last == nil || last.size+size > maxPart {
			b.chains = append(b.chains, chain{id: id, from: at, expect: w.Expect})
			last = &b.chains[len(b.chains)-1]
		}
		last.to = at + 1
		last.events += len(w.Events)
		last.size += size
		last.next = w.Expect + uint64(len(w.Events))
	}
	return len(b.order)
}

// parts yields groups of chains, each for one statement. Two chains of one ID are never in one
// group, because an ID has a second chain only if its writes are too large for one statement.
func (b *batch) parts(yield func([]chain) bool) {
	rest := b.chains
	for len(rest) > 0 {
		n, size := 1, rest[0].size
		for n < len(rest) && size+rest[n].size <= maxPart {
			size += rest[n].size
			n++
		}
		part := rest[:n]
		if b.errs != nil { // an earlier chain of the same ID may have failed
			part = slices.DeleteFunc(slices.Clone(part), func(c chain) bool { return b.errs[b.order[c.from].write] != nil })
		}
		if len(part) > 0 && !yield(part) {
			return
		}
		rest = rest[n:]
	}
}

func (b *batch) fail(i int, err error) {
	if b.errs == nil {
		b.errs = make([]error, len(b.writes))
	}
	b.errs[i] = err
}

// failChain sets the error of a chain that was not stored, or whose outcome is unknown, and skips
// the following writes of its ID.
func (b *batch) failChain(c *chain, err error) {
	for at := c.from; at < len(b.order); at++ {
		i := b.order[at].write
		if b.writes[i].ID != c.id {
			return
		}
		// The writes of a chain were stored or lost together.
		if at == c.from || at < c.to && (!journal.NotStored(err) || errors.Is(err, journal.ErrNotSent)) {
			b.fail(i, err)
		} else {
			b.fail(i, journal.ErrSkipped)
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
