// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgprojection_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// BenchmarkBacklog handles a backlog of 200,000 events of 1,000 boxes, from a journal in the same
// database.
func BenchmarkBacklog(b *testing.B) {
	const boxes, each = 1000, 200
	dsn := pgtest.DSN(b)
	db, err := postgres.Open(b.Context(), dsn, postgres.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	manifest, payload, err := events().Encode(paid{N: 1})
	if err != nil {
		b.Fatal(err)
	}
	for nr := uint64(0); nr < each; nr += 10 {
		var writes []journal.Write
		for box := range boxes {
			w := journal.Write{ID: fmt.Sprintf("box|%d", box), Writer: "w", Expect: nr}
			for i := range uint64(10) {
				w.Events = append(w.Events, journal.Event{SequenceNr: nr + i + 1, Time: time.Unix(0, 0).UTC(), Manifest: manifest, Payload: payload})
			}
			writes = append(writes, w)
		}
		if errs := db.Journal().Append(b.Context(), writes); errs != nil {
			b.Fatal(errors.Join(errs...))
		}
	}
	pool, err := pgxpool.New(b.Context(), dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	exec(b, pool, createSums, "VACUUM ANALYZE refold.events")
	for b.Loop() {
		exec(b, pool, "TRUNCATE sums, refold.projections")
		if err := create(b, config(db.Journal(), handler(pool, 0))).CatchUp(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(boxes*each*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
