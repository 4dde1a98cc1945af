// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/shardingtest"
	"github.com/refold-io/refold/snapshot"
)

// journalPlace returns nodes that share a journal. Each has its own faults.
func journalPlace(j journal.Journal, s snapshot.Store) shardingtest.Place {
	var nodes []*journaltest.Faulty
	for range 4 {
		nodes = append(nodes, journaltest.NewFaulty(j))
	}
	config := func(node int) sharding.JournalStores {
		return sharding.JournalStores{Journal: nodes[node%len(nodes)], Snapshots: s, SnapshotEvery: 3, KeepSnapshots: 1}
	}
	place := shardingtest.Place{
		Coordinators: func(node int) sharding.CoordinatorStores { return config(node) },
		Entities:     func(node int) sharding.RememberStores { return config(node) },
	}
	for name, fault := range map[string]journaltest.Fault{
		"an append is lost":                      {Do: journaltest.Lose},
		"an append is stored without a reply":    {Do: journaltest.Store},
		"an append is stored at the end":         {Do: journaltest.Late},
		"an append is stored with the next one":  {Do: journaltest.Late, AfterCalls: 1},
		"an append is stored after two calls":    {Do: journaltest.Late, AfterCalls: 2},
		"an append is stored after three calls":  {Do: journaltest.Late, AfterCalls: 3},
		"an append is rejected":                  {Do: journaltest.Reject},
		"an append is not sent":                  {Do: journaltest.NotSent},
		"an append conflicts":                    {Do: journaltest.Conflict},
		"two appends are lost":                   {Do: journaltest.Lose, Times: 2},
		"two appends are stored later":           {Do: journaltest.Late, Times: 2, AfterCalls: 2},
		"two appends are stored without replies": {Do: journaltest.Store, Times: 2},
		"a replay fails":                         {Op: journaltest.OpReplay},
		"a replay fails after an event":          {Op: journaltest.OpReplay, AfterEvents: 1},
		"reading the highest number fails":       {Op: journaltest.OpHighest},
	} {
		place.Faults = append(place.Faults, shardingtest.Fault{Name: name, Once: true, Strike: func(node int) func() {
			return nodes[node].Inject(fault).Release
		}})
	}
	for _, op := range []journaltest.Op{journaltest.OpAppend, journaltest.OpReplay, journaltest.OpHighest} {
		place.Faults = append(place.Faults, shardingtest.Fault{Name: fmt.Sprintf("operation %d hangs", op), Strike: func(node int) func() {
			nodes[node].Inject(journaltest.Fault{Op: op, Do: journaltest.Stall})
			return nodes[node].Reset
		}})
	}
	return place
}

func TestInMemory(t *testing.T) {
	t.Parallel()
	shardingtest.Run(t, shardingtest.Config{Open: func(tb testing.TB) shardingtest.Place {
		tb.Helper()
		j, s := inmem.NewJournal(), inmem.NewSnapshotStore()
		tb.Cleanup(func() { _ = j.Close(); _ = s.Close() })
		return journalPlace(j, s)
	}})
}

func TestLevelDB(t *testing.T) {
	t.Parallel()
	shardingtest.Run(t, shardingtest.Config{Open: func(tb testing.TB) shardingtest.Place {
		tb.Helper()
		db, err := leveldb.Open(tb.TempDir(), leveldb.Config{})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = db.Close() })
		return journalPlace(db.Journal(), db.Snapshots())
	}})
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t) // each check has its own schema, because creating a database takes longer than most checks
	var schemas atomic.Int64
	shardingtest.Run(t, shardingtest.Config{Open: func(tb testing.TB) shardingtest.Place {
		tb.Helper()
		db, err := postgres.Open(tb.Context(), dsn, postgres.Config{Schema: fmt.Sprint("check-", schemas.Add(1))})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = db.Close() })
		return journalPlace(db.Journal(), db.Snapshots())
	}})
}
