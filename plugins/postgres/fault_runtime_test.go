// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/internal/testkit/tcpproxy"
	"github.com/refold-io/refold/plugins/postgres"
)

// TestRuntimeOnABadNetwork breaks the connections of a runtime at random bytes and in all ways,
// while clients send commands with time-outs. The replies agree with the state in a new runtime.
func TestRuntimeOnABadNetwork(t *testing.T) {
	t.Parallel()
	faults := 15
	if effort.Soak() {
		faults = 500
	}
	s := newTarget(t, pgtest.DSN(t))
	proxy, db, err := s.openThroughProxy(t, "bad network", postgres.Config{CheckOnly: true, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	h, b := openLedgers(t, db.TestJournal(), 200*time.Millisecond), newOperations(8)
	b.run(t, []*ledgerRuntime{h}, 20, 400*time.Millisecond, func(rng *rand.Rand) {
		for range faults {
			if rng.IntN(8) == 0 {
				proxy.SetDown(true)
				pause(t, rng, 60*time.Millisecond)
				proxy.SetDown(false)
			}
			armed := proxy.Arm(tcpproxy.Fault{
				Direction: tcpproxy.Direction(rng.IntN(2)), After: rng.Int64N(6000), Action: tcpproxy.Action(rng.IntN(4)), Both: rng.IntN(2) == 0,
			})
			<-armed.Struck()
			pause(t, rng, 300*time.Millisecond)
			armed.Release()
		}
	})
	h.close(t)
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	s.awaitSessionsEnded(t, "bad network")
	found := openLedgers(t, s.direct.TestJournal(), time.Minute)
	defer found.close(t)
	b.checkResults(t, found)
}

// pause waits for a random time below most, or until the end of the test.
func pause(t *testing.T, rng *rand.Rand, most time.Duration) {
	t.Helper()
	timer := time.NewTimer(time.Duration(rng.Int64N(int64(most))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// TestServerIsKilled kills and restarts the server under load. No acknowledged operation is lost
// and none is applied twice.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	kills := 3
	if effort.Soak() {
		kills = 40
	}
	server := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	h, b := openLedgers(t, db.TestJournal(), 2*time.Second), newOperations(16)
	b.run(t, []*ledgerRuntime{h}, 20, 3*time.Second, func(rng *rand.Rand) {
		for i := range kills {
			pause(t, rng, 600*time.Millisecond)
			if i%4 == 3 {
				server.Stop()
			} else {
				server.Kill()
			}
			pause(t, rng, 300*time.Millisecond)
			server.Restart(t)
		}
		pause(t, rng, 300*time.Millisecond)
	})
	h.close(t)
	found := openLedgers(t, db.TestJournal(), time.Minute)
	defer found.close(t)
	b.checkResults(t, found)
}

// TestTwoRuntimes lets two runtimes write to the same entities concurrently. One of the two writers
// wins, and the clients of the other writer receive errors.
func TestTwoRuntimes(t *testing.T) {
	t.Parallel()
	rounds := 30
	if effort.Soak() {
		rounds = 1000
	}
	dsn := pgtest.DSN(t)
	one, two := openStore(t, dsn, postgres.Config{}), openStore(t, dsn, postgres.Config{MaxConns: 2})
	runtimes := []*ledgerRuntime{openLedgers(t, one.TestJournal(), time.Minute), openLedgers(t, two.TestJournal(), time.Minute)}
	b := newOperations(3)
	b.run(t, runtimes, rounds, time.Second, func(*rand.Rand) {})
	for _, h := range runtimes {
		h.close(t)
	}
	found := openLedgers(t, one.TestJournal(), time.Minute)
	defer found.close(t)
	b.checkResults(t, found)
}
