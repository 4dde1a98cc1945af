// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/internal/testkit/tcpproxy"
	"github.com/refold-io/refold/plugins/postgres"
)

// TestRuntimeBehindABadNetwork breaks the connections of a runtime all the time, at any byte and in
// all ways, while clients ask and give up. What they are told is what a new runtime finds: fences
// settle what the network leaves open.
func TestRuntimeBehindABadNetwork(t *testing.T) {
	t.Parallel()
	faults := 15
	if soak() {
		faults = 3000
	}
	s := newSite(t, pgtest.DSN(t))
	proxy, db, err := s.behind(t, "bad network", postgres.Config{CheckOnly: true, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	h, b := openHouse(t, db.TestJournal(), 200*time.Millisecond), newBooks(8)
	b.run(t, []*house{h}, 20, 400*time.Millisecond, func(rng *rand.Rand) {
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
	s.gone(t, "bad network")
	found := openHouse(t, s.direct.TestJournal(), time.Minute)
	defer found.close(t)
	b.judge(t, found)
}

// pause waits for up to most, or for the end of the test.
func pause(t *testing.T, rng *rand.Rand, most time.Duration) {
	t.Helper()
	timer := time.NewTimer(time.Duration(rng.Int64N(int64(most))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// TestServerIsKilled kills the server under load, and starts it again. Nothing acknowledged is
// lost, nothing is applied twice.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	kills := 3
	if soak() {
		kills = 40
	}
	server := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	h, b := openHouse(t, db.TestJournal(), 2*time.Second), newBooks(16)
	b.run(t, []*house{h}, 20, 3*time.Second, func(rng *rand.Rand) {
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
	found := openHouse(t, db.TestJournal(), time.Minute)
	defer found.close(t)
	b.judge(t, found)
}

// TestTwoRuntimes has two runtimes work on the same entities at the same time: of two writers one
// wins, and the other one's clients are told.
func TestTwoRuntimes(t *testing.T) {
	t.Parallel()
	rounds := 30
	if soak() {
		rounds = 1000
	}
	dsn := pgtest.DSN(t)
	one, two := openStore(t, dsn, postgres.Config{}), openStore(t, dsn, postgres.Config{MaxConns: 2})
	houses := []*house{openHouse(t, one.TestJournal(), time.Minute), openHouse(t, two.TestJournal(), time.Minute)}
	b := newBooks(3)
	b.run(t, houses, rounds, time.Second, func(*rand.Rand) {})
	for _, h := range houses {
		h.close(t)
	}
	found := openHouse(t, one.TestJournal(), time.Minute)
	defer found.close(t)
	b.judge(t, found)
}
