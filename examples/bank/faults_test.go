// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/examples/bank/batch"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/store"
)

// The journal loses some writes, stores others although it returns an error, stores others late,
// and rejects others. Each line is still executed once, and the balances equal the balances with a
// journal without faults.
func TestFaultyJournal(t *testing.T) {
	t.Parallel()
	fences, seeds := 0, uint64(3)
	if effort.Soak() {
		seeds = 8
	}
	for seed := range seeds {
		file := generated(t, batch.Plan{Accounts: 8, Commands: 300, Seed: seed, Confluent: true})
		calm := newBank(t, testRates)
		lines, events, money := applyPart(t, calm, file, -1).done, applied(t, calm), balances(t, calm)
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1)) // protected by the journal's lock
			s := newStore(t, "inmem:")
			faulty := journaltest.NewFaulty(s.Journal())
			s = store.Of(faulty, s.Snapshots())
			for _, f := range []journaltest.Fault{
				{Do: journaltest.Lose},
				{Do: journaltest.Store},
				{Do: journaltest.Late, AfterCalls: 3},
				{Do: journaltest.Reject},
				{Do: journaltest.Lose, WholeCall: true},
				{Do: journaltest.Store, WholeCall: true},
			} {
				f.Times = -1
				f.When = func(journaltest.Call) bool { return random.IntN(150) == 0 }
				faulty.Inject(f)
			}
			b := startBank(t, s, testRates)
			got := applyPart(t, b, file, -1)
			faulty.Reset()
			time.Sleep(2 * time.Minute) // apply stops waiting before the longest back-off ends
			if got.done+got.repeated != lines {
				t.Errorf("seed %d: %+v, want %d done", seed, got, lines)
			}
			if n := applied(t, b); n != events {
				t.Errorf("seed %d: %d lines left events, want %d", seed, n, events)
			}
			for id, want := range money {
				balance(t, b, id, want)
			}
			audited(t, b)
			for _, id := range accounts(t, b) {
				for _, e := range records(t, b, id) {
					if e.IsFence() {
						fences++
					}
				}
			}
			stopBank(t, b)
		})
	}
	if fences == 0 {
		t.Error("no write had an unknown outcome, want at least 1 fence")
	}
}
