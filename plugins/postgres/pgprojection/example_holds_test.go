// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgprojection_test

import (
	"testing"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// TestExampleHolds runs the code of Example with an interruption. Each event counts once, before
// and after a rebuild.
func TestExampleHolds(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), pgtest.DSN(t)
	db, err := postgres.Open(ctx, dsn, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	pool := connect(t, dsn, nil)
	exec(t, pool, `CREATE TABLE balances (account text PRIMARY KEY, amount bigint NOT NULL)`)
	manifest, payload, err := codec.Types(codec.Name[Deposited]("deposited")).Encode(Deposited{Amount: 7})
	if err != nil {
		t.Fatal(err)
	}
	for round := range uint64(3) {
		write := journal.Write{ID: "account|ann", Writer: "w", Expect: round, Events: []journal.Event{{SequenceNr: round + 1, Manifest: manifest, Payload: payload}}}
		if errs := db.Journal().Append(ctx, []journal.Write{write}); errs != nil {
			t.Fatal(errs)
		}
		p, err := balances(db.Journal(), pool)
		if err != nil {
			t.Fatal(err)
		}
		if round == 2 {
			err = p.Rebuild(ctx)
		}
		if err == nil {
			err = p.CatchUp(ctx)
		}
		var got uint64
		if err == nil {
			err = pool.QueryRow(ctx, `SELECT amount FROM balances WHERE account = 'ann'`).Scan(&got)
		}
		if want := 7 * (round + 1); err != nil || got != want {
			t.Errorf("after %d deposits the table has %d and err is %v, want %d", round+1, got, err, want)
		}
	}
}
