// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/refold-io/refold/internal/plugin"
	"github.com/refold-io/refold/journal"
)

// Journal is the journal of a DB. It implements journal.Journal, journal.IDLister, journal.Parallel
// and journal.Querier.
//
// The journal rejects the writes that journal.CheckWrite rejects, and a time before the year -4000 or
// after the year 200,000.
type Journal struct {
	handle *plugin.Handle
	db     *DB
}

var (
	_ journal.Journal  = (*Journal)(nil)
	_ journal.IDLister = (*Journal)(nil)
	_ journal.Parallel = (*Journal)(nil)
)

// Close implements journal.Journal. See DB.Journal.
func (j *Journal) Close() error {
	err := j.db.handles.Close(j.handle, j.db.Close)
	j.db.tail.close() // calls of Await do not hold the handle, so they are ended here
	return err
}

// MaxAppends implements journal.Parallel. See Config.MaxAppends.
func (j *Journal) MaxAppends() int {
	return max(1, min(j.db.cfg.MaxAppends, int(j.db.pool.Config().MaxConns)))
}

// HighestSequenceNr implements journal.Journal.
func (j *Journal) HighestSequenceNr(ctx context.Context, id string) (highest uint64, err error) {
	defer wrap(&err, "highest sequence number of %q", id)
	var found uint64 // not the result, because a gatherer may set it later
	err = j.gather(ctx, id, j.db.highest, &j.db.sql.highest, [][]byte{[]byte(id)}, func() {}, func(values [][]byte) error {
		if len(values[0]) != 8 {
			return errRow
		}
		found = binary.BigEndian.Uint64(values[0])
		return nil
	})
	if err != nil {
		return 0, err
	}
	return found, nil
}

// gather is readRows through a gatherer.
func (j *Journal) gather(ctx context.Context, id string, g *gatherer, st *statement, params [][]byte, reset func(), row func(values [][]byte) error) error {
	if err := journal.CheckID(id); err != nil {
		return err
	}
	if !j.handle.Enter() {
		return journal.ErrClosed
	}
	defer j.handle.Leave()
	return j.db.fail(ctx, g.run(ctx, st, params, reset, row))
}

func (j *Journal) readRows(ctx context.Context, id string, st *statement, params [][]byte, row func(values [][]byte) error) error {
	if err := journal.CheckID(id); err != nil {
		return err
	}
	return j.run(ctx, st, params, row)
}

func (j *Journal) run(ctx context.Context, st *statement, params [][]byte, row func(values [][]byte) error) error {
	if !j.handle.Enter() {
		return journal.ErrClosed
	}
	defer j.handle.Leave()
	return j.db.fail(ctx, j.db.run(ctx, st, params, row))
}

// PersistenceIDs implements journal.IDLister. An ID that is written for the first time during the
// iteration may or may not be listed.
func (j *Journal) PersistenceIDs(ctx context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for from := textPrefix(after); ; {
			var ids []string
			err := j.run(ctx, &j.db.sql.ids, [][]byte{[]byte(from)}, func(values [][]byte) error {
				if values[0] != nil {
					ids = append(ids, string(values[0]))
				}
				return nil
			})
			if err != nil {
				yield("", fmt.Errorf("postgres: persistence IDs: %w", err))
				return
			}
			for _, id := range ids {
				if id > after && !yield(id, nil) {
					return
				}
			}
			if len(ids) < idPage {
				return
			}
			from = ids[len(ids)-1]
		}
	}
}

// textPrefix cuts s before the first character that PostgreSQL cannot store in a value of type
// text. The caller must skip the IDs between the result and s.
func textPrefix(s string) string {
	for i, r := range s {
		if _, size := utf8.DecodeRuneInString(s[i:]); r == 0 || r == utf8.RuneError && size == 1 {
			return s[:i]
		}
	}
	return s
}

// noMark is a result of the statement deleteSome.
const noMark = 2

var errNoMark = errors.New("the mark of the deletion is gone from the table deletions: a program other than Refold has removed it, or the database was restored; delete again")

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
	if err := j.waitForAppends(ctx); err != nil {
		return err
	}
	params[1] = int8Value(min(to, marked))
	for more := true; more; {
		err := j.readRows(ctx, id, &j.db.sql.deleteSome, params, func(values [][]byte) error {
			result := binary.BigEndian.Uint64(values[0])
			if more = result > 0; result == noMark {
				return errNoMark
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// waitForAppends waits until the appends that are in progress at the call have ended.
func (j *Journal) waitForAppends(ctx context.Context) error {
	if !j.handle.Enter() {
		return journal.ErrClosed
	}
	w := j.db.looks.wait()
	j.handle.Leave() // Close does not wait for appends
	select {
	case <-w.done:
		return j.db.fail(ctx, w.err)
	case <-ctx.Done():
		j.db.looks.leave(w)
		return context.Cause(ctx)
	case <-j.handle.Done():
		j.db.looks.leave(w)
		return journal.ErrClosed
	}
}
