// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/refold-io/refold/journal"
)

var _ journal.Querier = (*Journal)(nil)

// Query implements journal.Querier. It is one statement. Near the end of the journal one or two
// short statements precede it, to refresh the watermark.
func (j *Journal) Query(ctx context.Context, q journal.Criteria, after journal.Offset) (page journal.Page, err error) {
	defer wrap(&err, "query")
	if err = q.Check(); err != nil {
		return journal.Page{}, err
	}
	from, err := parseOffset(after)
	if err != nil {
		return journal.Page{}, err
	}
	if !j.handle.Enter() {
		return journal.Page{}, journal.ErrClosed
	}
	defer j.handle.Leave()
	known := j.db.tail.watermark.now()
	shape := newShape(j.db.schema, q)
	if known.settled-from <= shape.window { // the page may reach the end, which must be current
		before := known.settled
		if known, err = j.db.tail.watermark.refresh(ctx); err != nil {
			return journal.Page{}, err
		}
		if known.settled > before {
			j.db.tail.poke.Set() // other readers may wait for it
		}
	}
	switch {
	case from > known.drawn:
		return journal.Page{}, fmt.Errorf("%w: %q is after the last event of schema %q of %s: it belongs to another journal, or this one was restored from a backup",
			journal.ErrOffset, after, j.db.cfg.Schema, j.db.target)
	case from >= known.settled:
		return journal.Page{Next: after}, nil
	}
	return j.page(ctx, shape, from, known.settled)
}

// End implements journal.Querier.
func (j *Journal) End(ctx context.Context) (end journal.Offset, err error) {
	defer wrap(&err, "end")
	if !j.handle.Enter() {
		return "", journal.ErrClosed
	}
	defer j.handle.Leave()
	found, err := j.db.tail.watermark.refresh(ctx)
	return formatOffset(found.settled), err
}

// page runs the statement of a shape on the events after from, up to settled.
func (j *Journal) page(ctx context.Context, s *shape, from, settled int64) (journal.Page, error) {
	params := append([][]byte{int8Value(uint64(from)), int8Value(uint64(settled)), int8Value(uint64(s.window))}, s.params...) //nolint:gosec // not negative
	var p reader
	if err := j.db.run(ctx, &s.statement, params, p.row); err != nil {
		return journal.Page{}, j.db.fail(ctx, err)
	}
	if len(p.events) >= pageRecords || p.bytes >= pageBytes {
		p.next = p.last // the page is full
	}
	return journal.Page{Events: p.events, Next: formatOffset(p.next), More: p.next < settled}, nil
}

// reader collects the rows of a page. There is at least one row. In a row without an event, all
// columns but the first are NULL.
type reader struct {
	decoder rowDecoder
	events  []journal.Envelope
	bytes   int
	next    int64 // ordinal up to which the statement has read
	last    int64 // ordinal of the last event
}

func (p *reader) row(values [][]byte) error {
	p.next = int64(binary.BigEndian.Uint64(values[0])) //nolint:gosec // from an int64
	if values[1] == nil {
		return nil
	}
	p.last = int64(binary.BigEndian.Uint64(values[1])) //nolint:gosec // from an int64
	event, err := p.decoder.row(values[3:])
	if err != nil {
		return fmt.Errorf("event at %d: %w", p.last, err)
	}
	p.bytes += len(event.Payload) + len(event.Metadata)
	p.events = append(p.events, journal.Envelope{Event: event, ID: string(values[2]), Offset: formatOffset(p.last)})
	return nil
}

// Limits on the rows that a page reads: one and a half times the wanted number, and more where rows
// must be read to be filtered out.
const (
	usualRows    = pageRecords * 3 / 2
	filteredRows = 10_000
	// tagWindow is larger because the index of tags leads directly to the events.
	tagWindow = 50_000
	// maxWindow bounds the ordinals that a page covers. Rows of other slices are skipped in the
	// index.
	maxWindow = 200_000
)

type shape struct {
	statement

	order  string   // column that orders the events
	window int64    // number of ordinals from the first existing one, so that gaps cost nothing
	params [][]byte // from $4 on; $1 to $3 are after, settled, window
}

// newShape selects the index for a query. All statements have a window whose size the planner
// cannot derive. The planner therefore assumes a small window and uses the index, even if its
// statistics are old.
func newShape(schema string, q journal.Criteria) *shape {
	s := &shape{order: "e.ordinal", statement: statement{name: "refold_query", rows: primaryRows, oids: []uint32{pgtype.Int8OID, pgtype.Int8OID, pgtype.Int8OID}}}
	first, last := q.Slices.Bounds()
	count := last - first + 1
	var source, filter string
	if len(q.Types) > 0 {
		var prefixes array
		prefixes.reset(pgtype.TextOID)
		for _, name := range q.Types {
			prefixes.text(name + "|")
		}
		filter = " AND e.id ^@ ANY (" + s.param("types", pgtype.TextArrayOID, prefixes.value()) + ")" // begins with any of them
	} else {
		filter = " AND NOT e.id ^@ '" + journal.ReservedPrefix + "'"
	}
	if q.Tag != "" {
		s.window = tagWindow
		if len(q.Types) > 0 || count < journal.SliceCount {
			s.window = filteredRows
		}
		s.order = "t.ordinal" // the order of the index, so that the statement reads no more rows than a page needs
		tag := s.param("tag", pgtype.TextOID, []byte(q.Tag))
		source = `
			FROM (SELECT t.ordinal FROM {s}.tags t WHERE t.tag = ` + tag + ` AND t.ordinal > $1 AND t.ordinal <= (SELECT upto FROM w) ORDER BY t.ordinal) t
			CROSS JOIN LATERAL (SELECT * FROM {s}.events e WHERE e.ordinal = t.ordinal LIMIT 1) e
			WHERE true` + s.between(first, last) + filter
		return s.finish(schema, "SELECT min(ordinal) FROM {s}.tags WHERE tag = "+tag+" AND ordinal > $1", source)
	}
	rows := int64(usualRows)
	if len(q.Types) > 0 {
		rows = filteredRows
	}
	s.window = min(rows*journal.SliceCount/int64(count), maxWindow)
	source = `
		FROM {s}.events e
		WHERE e.ordinal > $1 AND e.ordinal <= (SELECT upto FROM w)` + s.between(first, last) + " AND e.manifest <> ''" + filter
	return s.finish(schema, "SELECT min(ordinal) FROM {s}.events WHERE ordinal > $1", source)
}

// finish builds the statement. It returns at least one row, with the ordinal up to which it read,
// and at most a page plus the event that exceeds it.
func (s *shape) finish(schema, start, source string) *shape {
	s.sql = strings.ReplaceAll(`
		WITH w AS MATERIALIZED (SELECT least($2, coalesce((`+start+`), $2) + $3 - 1) AS upto),
		found AS (
			SELECT e.ordinal, e.id, `+rowColumns("e")+`, octet_length(e.payload) + coalesce(octet_length(e.metadata), 0) AS size`+source+`
			ORDER BY `+s.order+` LIMIT `+fmt.Sprint(pageRecords)+`),
		page AS (SELECT *, sum(size) OVER (ORDER BY ordinal ROWS UNBOUNDED PRECEDING) - size AS before FROM found)
		SELECT w.upto, page.ordinal, page.id, `+rowColumns("page")+`, pg_is_in_recovery()
		FROM w LEFT JOIN page ON page.before < `+fmt.Sprint(pageBytes)+` ORDER BY page.ordinal`, "{s}", schema)
	return s
}

// between filters by slice, which is a column of the index of ordinals.
func (s *shape) between(first, last int) string {
	if last-first+1 == journal.SliceCount {
		return ""
	}
	return " AND e.slice BETWEEN " + s.slice("first", first) + " AND " + s.slice("last", last)
}

func (s *shape) slice(name string, slice int) string {
	return s.param(name, pgtype.Int4OID, []byte{0, 0, byte(slice >> 8), byte(slice)}) //nolint:gosec // below 1,024
}

// param adds a parameter and returns its placeholder. name becomes part of the statement's name.
func (s *shape) param(name string, oid uint32, value []byte) string {
	s.name += "_" + name
	s.oids = append(s.oids, oid)
	s.params = append(s.params, value)
	return fmt.Sprintf("$%d", len(s.oids))
}

// offsetPrefix begins an offset and identifies the plugin and the version of the format. The
// ordinal follows, in decimal without leading zeros, so that each position has one offset and
// offsets can be compared.
const offsetPrefix = "pg1:"

func formatOffset(ordinal int64) journal.Offset {
	if ordinal <= 0 {
		return ""
	}
	return journal.Offset(offsetPrefix + strconv.FormatInt(ordinal, 10))
}

func parseOffset(o journal.Offset) (int64, error) {
	if o == "" {
		return 0, nil
	}
	digits, ok := strings.CutPrefix(string(o), offsetPrefix)
	ordinal, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || formatOffset(ordinal) != o {
		return 0, fmt.Errorf("%w: %.64q, want %q and a number", journal.ErrOffset, string(o), offsetPrefix)
	}
	return ordinal, nil
}
