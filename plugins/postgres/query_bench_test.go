// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"fmt"
	"testing"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// BenchmarkQuery reads pages in the middle and at the end of 200,000 events of 5,000 IDs.
func BenchmarkQuery(b *testing.B) {
	const events = 200_000
	dsn := pgtest.DSN(b)
	db := openStore(b, dsn, postgres.Config{})
	conn := connect(b, dsn)
	execute(b, conn, `INSERT INTO refold.events (id, seq_nr, ordinal, slice, at, writer, manifest, payload, tags)
		SELECT (CASE WHEN i % 1000 = 0 THEN 'rare|' ELSE 'usual|' END) || i % 5000, i / 5000 + 1, i, (i % 5000 * 7919) % 1024, now(), 'w', 'm',
		decode(repeat('ab', 150), 'hex'), CASE WHEN i % 10 = 0 THEN array['tag'] END FROM generate_series(1, $1::int) i`, events)
	execute(b, conn, `INSERT INTO refold.tags SELECT 'tag', i FROM generate_series(10, $1::int, 10) i`, events)
	execute(b, conn, `SELECT setval('refold.ordinals', $1)`, events)
	execute(b, conn, "VACUUM ANALYZE refold.events, refold.tags")
	for _, q := range []journal.Criteria{
		{},
		{Types: []string{"usual"}},
		{Types: []string{"rare"}},
		{Tag: "tag"},
		{Tag: "tag", Types: []string{"usual"}},
		{Slices: journal.Slices{First: 3, Count: 1}},
		{Slices: journal.Slices{First: 64, Count: 64}},
		{Slices: journal.Slices{First: 128, Count: 128}},
		{Slices: journal.Slices{First: 256, Count: 256}},
	} {
		for _, behind := range []int64{events / 2, events - 10} {
			b.Run(fmt.Sprintf("types=%s/tag=%s/slices=%v/behind=%d", q.Types, q.Tag, q.Slices, behind), func(b *testing.B) {
				read := 0
				for b.Loop() {
					page, err := db.TestJournal().Query(b.Context(), q, postgres.FormatOffset(behind))
					if err != nil {
						b.Fatal(err)
					}
					read += len(page.Events)
				}
				b.ReportMetric(float64(read)/float64(b.N), "events/page")
			})
		}
	}
	b.Run("end", func(b *testing.B) {
		for b.Loop() {
			if _, err := db.TestJournal().End(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
