// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"fmt"
	"strings"

	"github.com/refold-io/refold/journal"
)

// How many rows a page looks at, at most: a page and a half of those that it
// wants, and more where what it does not want has to be told by its row.
const (
	usualRows    = pageRecords * 3 / 2
	filteredRows = 10_000
	// A tag's index leads straight to its events.
	tagWindow = 50_000
	// maxWindow bounds the ordinals that a page looks at. Those of other slices are
	// passed over in the index.
	maxWindow = 200_000
)

// shape is the statement of a query.
type shape struct {
	statement

	window int64    // ordinals, from the first that exists, so gaps cost nothing
	params [][]byte // from $4 on; before it: after, settled, window
}

// newShape chooses the index to go by. All statements have a window that the planner
// can't see through: it takes it to be small, and goes by the index however
// old its statistics are.
func newShape(schema string, q journal.Criteria) *shape {
	s := &shape{statement: statement{name: "refold_query", oids: []uint32{oidInt8, oidInt8, oidInt8}}}
	first, last := q.Slices.Bounds()
	count := last - first + 1
	var source, filter string
	if q.Type != "" {
		prefix := s.param("type", oidText, []byte(q.Type+"|"))
		filter = " AND left(e.id, char_length(" + prefix + ")) = " + prefix
	}
	if q.Tag != "" {
		s.window = tagWindow
		limit := " ORDER BY t.ordinal LIMIT " + fmt.Sprint(pageRecords)
		if q.Type != "" || count < journal.SliceCount {
			s.window = filteredRows
			s.name += "_and"
			limit = ""
		}
		tag := s.param("tag", oidText, []byte(q.Tag))
		source = `
			FROM (SELECT t.ordinal FROM {s}.tags t WHERE t.tag = ` + tag + ` AND t.ordinal > $1 AND t.ordinal <= (SELECT upto FROM w)` + limit + `) t
			CROSS JOIN LATERAL (SELECT * FROM {s}.events e WHERE e.ordinal = t.ordinal LIMIT 1) e
			WHERE true` + s.between(first, last) + filter
		return s.finish(schema, "SELECT min(ordinal) FROM {s}.tags WHERE tag = "+tag+" AND ordinal > $1", source)
	}
	rows := int64(usualRows)
	if q.Type != "" {
		rows = filteredRows
	}
	s.window = min(rows*journal.SliceCount/int64(count), maxWindow)
	source = `
		FROM {s}.events e
		WHERE e.ordinal > $1 AND e.ordinal <= (SELECT upto FROM w)` + s.between(first, last) + " AND e.manifest <> ''" + filter
	return s.finish(schema, "SELECT min(ordinal) FROM {s}.events WHERE ordinal > $1", source)
}

// finish puts the statement together. It returns at least one row, with how far
// it looked, and at most a page, with the event that exceeds it.
func (s *shape) finish(schema, start, source string) *shape {
	s.sql = strings.ReplaceAll(`
		WITH w AS MATERIALIZED (SELECT least($2, coalesce((`+start+`), $2) + $3 - 1) AS upto),
		found AS (
			SELECT e.ordinal, e.id, `+rowColumns("e")+`, octet_length(e.payload) + coalesce(octet_length(e.metadata), 0) AS size`+source+`
			ORDER BY e.ordinal LIMIT `+fmt.Sprint(pageRecords)+`),
		page AS (SELECT *, sum(size) OVER (ORDER BY ordinal ROWS UNBOUNDED PRECEDING) - size AS before FROM found)
		SELECT w.upto, pg_is_in_recovery(), page.ordinal, page.id, `+rowColumns("page")+`
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
	return s.param(name, oidInt4, []byte{0, 0, byte(slice >> 8), byte(slice)}) //nolint:gosec // below 1,024
}

// param adds a parameter and returns its place. name makes the statement's own
// differ from that of others.
func (s *shape) param(name string, oid uint32, value []byte) string {
	s.name += "_" + name
	s.oids = append(s.oids, oid)
	s.params = append(s.params, value)
	return fmt.Sprintf("$%d", len(s.oids))
}
