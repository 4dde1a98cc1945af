// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/plugin"
	"github.com/refold-io/refold/journal"
)

// Replay implements journal.Journal. It reads pages, each with one statement on any free
// connection. Concurrent replays of at most 100 events may share a statement. The payloads of a page
// share memory: a payload that is kept keeps the memory of the whole page. Copy payloads that are kept
// for long.
func (j *Journal) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		if err := journal.CheckID(id); err != nil {
			yield(journal.Event{}, fmt.Errorf("postgres: replay %q: %w", id, err))
			return
		}
		next, last := max(from, 1), min(to, journal.MaxSequenceNr)
		var p replayPage
		for next != 0 && next <= last {
			if err := j.readPage(ctx, &p, id, next, last); err != nil {
				yield(journal.Event{}, fmt.Errorf("postgres: replay %q: %w", id, err))
				return
			}
			next = p.next
			for i := range p.events {
				if !yield(p.events[i], nil) {
					return
				}
			}
		}
	}
}

// replayPage is the result of one statement of a replay. The next statement reuses its buffers.
type replayPage struct {
	events  []journal.Event
	decoder rowDecoder
	next    uint64 // begin of the next page, or 0
	large   bool   // the next page may contain large events
	cut     bool   // the page ends before a large event
}

// readPage reads the events of the next range of numbers, or as many as fit a page.
func (j *Journal) readPage(ctx context.Context, p *replayPage, id string, from, to uint64) error {
	reset := func() {
		clear(p.events)
		p.events, p.next, p.cut = p.events[:0], 0, false
	}
	end := to
	if to-from >= pageRecords {
		end = from + pageRecords - 1
	}
	st := &j.db.sql.replay
	if p.large {
		st = &j.db.sql.replayLarge
	}
	params := [][]byte{[]byte(id), int8Value(from), int8Value(end), int8Value(to)}
	row := func(values [][]byte) error {
		if err := p.row(values); err != nil {
			return &journal.CorruptError{File: j.db.target, Offset: -1, Detail: fmt.Sprintf("an event of %q: %v", id, err)}
		}
		return nil
	}
	var err error
	if to-from < gatherRecords && !p.large {
		err = j.gather(ctx, id, j.db.replay, st, params, reset, row)
	} else {
		reset()
		err = j.readRows(ctx, id, st, params, row)
	}
	if err != nil {
		return err
	}
	n := len(p.events)
	switch {
	case p.cut:
		p.large = true
		p.next = from
		if n > 0 {
			p.next = p.events[n-1].SequenceNr + 1
		}
	case p.large && n > 0 && p.events[n-1].SequenceNr < end:
		p.next = p.events[n-1].SequenceNr + 1 // more events may follow that did not fit
	case n == pageRecords:
		p.large = false
	}
	return nil
}

func (p *replayPage) row(values [][]byte) (err error) {
	if len(values) == 7 && values[1] == nil { // the first row of statements.replay
		if b := values[6]; len(b) == 8 {
			p.next = binary.BigEndian.Uint64(b)
		}
		return nil
	}
	if len(values) == 8 {
		if b := values[7]; len(b) == 8 {
			p.next = binary.BigEndian.Uint64(b)
		}
		values = values[:7]
	}
	if len(values) != 7 {
		return errRow
	}
	if values[0] == nil || p.cut { // no event, or after a large event
		return nil
	}
	if p.cut = values[4] == nil; p.cut {
		return nil
	}
	e, err := p.decoder.row(values)
	if err == nil {
		p.events = append(p.events, e)
	}
	return err
}

var errRow = errors.New("postgres: malformed row")

// rowColumns returns the columns that rowDecoder expects, qualified by the name or alias of a
// table.
func rowColumns(alias string) string {
	return strings.ReplaceAll("{a}.seq_nr, {a}.at, {a}.writer, {a}.manifest, {a}.payload, {a}.tags, {a}.metadata", "{a}", alias)
}

// rowDecoder decodes the rows of a result. It allocates payloads in blocks, and reuses the strings
// of the previous row.
type rowDecoder struct {
	writer, manifest string
	arena            plugin.Arena
}

// row decodes the columns of rowColumns. It copies the values.
func (d *rowDecoder) row(values [][]byte) (journal.Event, error) {
	if len(values) != 7 || len(values[0]) != 8 || len(values[1]) != 8 {
		return journal.Event{}, errRow
	}
	tags, err := decodeTexts(values[5])
	if err != nil {
		return journal.Event{}, err
	}
	if string(values[2]) != d.writer {
		d.writer = string(values[2])
	}
	if string(values[3]) != d.manifest {
		d.manifest = string(values[3])
	}
	return journal.Event{
		SequenceNr: binary.BigEndian.Uint64(values[0]),
		Time:       decodeTime(values[1]),
		Writer:     d.writer,
		Manifest:   d.manifest,
		Payload:    d.arena.Keep(values[4]),
		Tags:       tags,
		Metadata:   d.arena.Keep(values[6]),
	}, nil
}

// decodeTexts decodes an array of texts; see array for the format.
func decodeTexts(b []byte) ([]string, error) {
	if len(b) < 12 || binary.BigEndian.Uint32(b) == 0 {
		return nil, nil
	}
	if len(b) < arrayHeader || binary.BigEndian.Uint32(b) != 1 {
		return nil, errRow
	}
	count := int(binary.BigEndian.Uint32(b[12:]))
	b = b[arrayHeader:]
	if count > len(b)/4 {
		return nil, errRow
	}
	texts := make([]string, count)
	for i := range texts {
		if len(b) < 4 {
			return nil, errRow
		}
		length := int64(int32(binary.BigEndian.Uint32(b))) //nolint:gosec // its bits
		b = b[4:]
		if length < 0 || length > int64(len(b)) {
			return nil, errRow
		}
		texts[i], b = string(b[:length]), b[length:]
	}
	return texts, nil
}

const (
	// gatherFlights is the number of statements of a gatherer that are in flight at most, without those
	// that are repeated for one caller.
	gatherFlights = 4
	// gatherCalls is the number of callers that one statement serves at most.
	gatherCalls = 100
	// gatherRecords is the number of events that one caller reads at most through a gatherer, each of
	// them small. Longer replays have a statement of their own.
	gatherRecords = 100
	// gatherSnapshot is the size of the largest snapshot that is read through a gatherer, in bytes.
	gatherSnapshot = 64 << 10
)

// gatherer executes a read-only statement for many callers. While fewer than a number of its statements
// are in flight, a caller executes the statement itself, without a wait. Further callers wait, and the
// statement many reads for all of them at once. It starts after their calls, so that it sees what was
// committed before them.
//
// The parameters of many are arrays of the parameters of the callers. Its rows have the number of the
// caller, from 1, before the columns of the caller's own statement. If many fails, or if the rows of a
// caller can't be decoded, the caller executes its own statement. So an error concerns only the callers
// whose own statement fails.
type gatherer struct {
	db      *DB
	many    *statement
	flights int
	running sync.WaitGroup // statements for many callers

	mu       sync.Mutex
	inFlight int
	waiting  []*gathered // empty while a further statement may start
}

// gathered is a waiting call.
type gathered struct {
	params [][]byte
	row    func(values [][]byte) error
	bad    bool          // a row could not be decoded
	failed bool          // the caller must execute its own statement; valid when done is closed
	done   chan struct{} // closed with the end of the statement
	group  *group        // nil before the statement begins; guarded by gatherer.mu
}

// group is the callers of one statement.
type group struct {
	calls  []*gathered
	left   int             // callers that wait for the result; guarded by gatherer.mu
	ctx    context.Context //nolint:containedctx // ends when no caller waits any more
	cancel context.CancelFunc
}

func newGatherer(db *DB, many *statement) *gatherer {
	return &gatherer{db: db, many: many, flights: min(gatherFlights, int(db.pool.Config().MaxConns))}
}

// run executes a statement like DB.run. It calls reset before each attempt to read the rows. It returns
// when ctx ends; row may then still be called, on another goroutine.
func (g *gatherer) run(ctx context.Context, st *statement, params [][]byte, reset func(), row func(values [][]byte) error) error {
	reset()
	g.mu.Lock()
	if g.inFlight < g.flights {
		g.inFlight++
		g.mu.Unlock()
		defer g.landed()
		return g.db.run(ctx, st, params, row)
	}
	c := &gathered{params: params, row: row, done: make(chan struct{})}
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()
	began := time.Now()
	select {
	case <-c.done:
		if !c.failed {
			g.db.watch.logSlow(ctx, st.name, began)
			return nil
		}
		reset()
		return g.db.run(ctx, st, params, row)
	case <-ctx.Done():
		g.leave(c)
		return notStarted(ctx)
	}
}

// leave removes a caller whose context has ended. The last caller of a statement ends the statement.
func (g *gatherer) leave(c *gathered) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.group != nil {
		if c.group.left--; c.group.left == 0 {
			c.group.cancel()
		}
		return
	}
	for i, w := range g.waiting {
		if w == c {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return
		}
	}
}

// landed is called at the end of a caller's own statement.
func (g *gatherer) landed() {
	if next := g.next(); next != nil {
		g.running.Go(func() {
			for next != nil {
				next = g.send(next)
			}
		})
	}
}

// next returns the callers of the next statement, nil if none wait.
func (g *gatherer) next() *group {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), gatherCalls)
	if n == 0 {
		g.inFlight--
		return nil
	}
	next := &group{calls: g.waiting[:n:n], left: n}
	next.ctx, next.cancel = context.WithCancel(context.Background())
	for _, c := range next.calls {
		c.group = next
	}
	g.waiting = append([]*gathered(nil), g.waiting[n:]...)
	return next
}

// send executes the statement for a group, and returns the next group.
func (g *gatherer) send(now *group) *group {
	defer now.cancel()
	err := g.db.run(now.ctx, g.many, g.arrays(now.calls), func(values [][]byte) error {
		if len(values) < 2 || len(values[0]) != 8 {
			return errRow
		}
		n := binary.BigEndian.Uint64(values[0])
		if n < 1 || n > uint64(len(now.calls)) {
			return errRow
		}
		c := now.calls[n-1]
		c.bad = c.bad || c.row(values[1:]) != nil
		return nil
	})
	next := g.next()
	for _, c := range now.calls {
		c.failed = err != nil || c.bad
		close(c.done)
	}
	return next
}

// arrays returns the parameters of many.
func (g *gatherer) arrays(calls []*gathered) [][]byte {
	params := make([][]byte, len(g.many.oids))
	for i := range params {
		var a array
		a.reset(elementOID(g.many.oids[i]))
		for _, c := range calls {
			a.bytes(c.params[i], false)
		}
		params[i] = a.value()
	}
	return params
}
