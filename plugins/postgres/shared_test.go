// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/postgres"
	db "github.com/refold-io/refold/store"
)

// openReplica opens a runtime with its own connections, as a further process would.
func openReplica(tb testing.TB, dsn string, opts eventsourcing.HostOptions, snapshots eventsourcing.Snapshots[ledger, entry]) *ledgerRuntime {
	tb.Helper()
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: openStore(tb, dsn, postgres.Config{})})
	if err != nil {
		tb.Fatal(err)
	}
	typ := ledgerType()
	typ.Snapshots = snapshots
	ledgers, err := eventsourcing.HostWith(rt, typ, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return &ledgerRuntime{rt, ledgers}
}

// TestSharedJournal checks that two runtimes with HostOptions.SharedJournal on one database appear to
// handle the commands one after the other, also while retention deletes events, and that no caller
// receives a conflict.
func TestSharedJournal(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	shared := eventsourcing.HostOptions{SharedJournal: true}
	snapshots := eventsourcing.Snapshots[ledger, entry]{Every: 20, Keep: 2, DeleteEvents: true}
	replicas := []*ledgerRuntime{openReplica(t, dsn, shared, snapshots), openReplica(t, dsn, shared, snapshots)}
	defer replicas[0].close(t)
	defer replicas[1].close(t)
	ctx, cancel := withHangTimeout(t)
	defer cancel()
	for history := range effort.Count(2, 5, 50) {
		id := fmt.Sprint(history)
		var clock, next atomic.Int64
		var mu sync.Mutex
		var operations []porcupine.Operation
		var clients sync.WaitGroup
		for c := range 4 {
			clients.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(history), uint64(c)))
				for range 50 {
					ref := replicas[rng.IntN(2)].ledgers.Ref(id)
					o := porcupine.Operation{ClientId: c, Call: clock.Add(1)}
					var err error
					if rng.IntN(2) == 0 {
						o.Input = list{}
						o.Output, err = eventsourcing.Ask(ctx, ref, list{})
					} else {
						p := post{Op: int(next.Add(1)), Count: 1 + rng.IntN(2)}
						o.Input = p
						o.Output, err = eventsourcing.Ask(ctx, ref, p)
					}
					if o.Return = clock.Add(1); err != nil {
						t.Errorf("history %d: %v", history, err)
						return
					}
					mu.Lock()
					operations = append(operations, o)
					mu.Unlock()
				}
			})
		}
		clients.Wait()
		log, err := eventsourcing.Ask(ctx, replicas[0].ledgers.Ref(id), list{})
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := porcupine.CheckOperationsVerbose(logModel(log), operations, time.Minute); got != porcupine.Ok {
			t.Errorf("history %d: the search for an order of %d operations ended with %q, want %q", history, len(operations), got, porcupine.Ok)
		}
	}
}

// logModel is a model of a ledger whose operations are known in advance. Its state is the number of
// entries so far.
func logModel(log []int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, output any) (bool, any) {
			n := state.(int) //nolint:errcheck,forcetypeassert // always an int
			p, posts := input.(post)
			if !posts {
				return slices.Equal(output.([]int), log[:n]), n //nolint:errcheck,forcetypeassert // the reply to list
			}
			after := n + p.Count
			return output == after && after <= len(log) && slices.Equal(log[n:after], slices.Repeat([]int{p.Op}, p.Count)), after
		},
	}
}

// BenchmarkSharedJournal measures the cost of HostOptions.SharedJournal: commands with it and without
// it in one runtime, and in two runtimes that handle the commands for the same entities in turn.
func BenchmarkSharedJournal(b *testing.B) {
	open := func(b *testing.B, dsn string, shared bool, memory db.DB) *ledgerRuntime {
		b.Helper()
		opts := eventsourcing.HostOptions{SharedJournal: shared}
		if memory != nil {
			rt, err := eventsourcing.Open(eventsourcing.Config{Store: memory})
			if err != nil {
				b.Fatal(err)
			}
			ledgers, err := eventsourcing.HostWith(rt, ledgerType(), opts)
			if err != nil {
				b.Fatal(err)
			}
			return &ledgerRuntime{rt, ledgers}
		}
		return openReplica(b, dsn, opts, eventsourcing.Snapshots[ledger, entry]{})
	}
	for _, journal := range []string{"inmem", "postgres"} {
		for _, mode := range []string{"alone", "shared", "two"} {
			for _, load := range []struct {
				name    string
				callers int
				reads   bool
			}{{"read", 1, true}, {"write", 1, false}, {"reads", 64, true}, {"writes", 64, false}} {
				b.Run(journal+"/"+mode+"/"+load.name, func(b *testing.B) {
					var dsn string
					var memory db.DB
					if journal == "inmem" {
						var err error
						if memory, err = inmem.Open(); err != nil {
							b.Fatal(err)
						}
					} else {
						dsn = pgtest.DSN(b)
					}
					replicas := []*ledgerRuntime{open(b, dsn, mode != "alone", memory)}
					if mode == "two" {
						replicas = append(replicas, open(b, dsn, true, memory))
					}
					defer func() {
						for _, r := range replicas {
							if err := r.rt.Close(context.Background()); err != nil {
								b.Error(err)
							}
						}
					}()
					ctx := context.Background()
					for c := range load.callers {
						if _, err := eventsourcing.Ask(ctx, replicas[0].ledgers.Ref(fmt.Sprint(c)), post{Count: 1}); err != nil {
							b.Fatal(err)
						}
					}
					b.ResetTimer()
					var callers sync.WaitGroup
					for c := range load.callers {
						callers.Go(func() {
							for n := c; n < b.N; n += load.callers {
								ref := replicas[n/load.callers%len(replicas)].ledgers.Ref(fmt.Sprint(c))
								var err error
								if load.reads {
									_, err = eventsourcing.Ask(ctx, ref, list{})
								} else {
									_, err = eventsourcing.Ask(ctx, ref, post{Op: n, Count: 1})
								}
								if err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					callers.Wait()
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "asks/s")
				})
			}
		}
	}
}
