// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// smallDisk is the maximum size of a file of a server with a full disk. A segment of its log has 4
// MiB.
const smallDisk = 6 << 20

// noise returns incompressible bytes.
func noise(n int) []byte {
	b, random := make([]byte, n), rand.NewChaCha8([32]byte{})
	_, _ = random.Read(b) // it never fails
	return b
}

// TestFullDisk appends until the disk is full, and again when there is space. Errors contain the
// reason. Acknowledged events are readable at all times.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{MaxFileSize: smallDisk})
	db := openStore(t, server.DSN(t), postgres.Config{})
	j, payload := db.TestJournal(), noise(100_000)
	large := func(expect uint64) journal.Write {
		w := eventsOf("a", expect, 1)
		w.Events[0].Payload = payload
		return w
	}
	stored, failures := uint64(0), 0
	for failures < 5 {
		errs := j.Append(t.Context(), []journal.Write{large(stored), eventsOf(fmt.Sprint("b", stored, "/", failures), 0, 1)})
		if errs == nil {
			if stored++; failures > 0 || stored > smallDisk/100_000 {
				t.Fatalf("event %d was stored on a full disk", stored)
			}
			continue
		}
		failures++
		for _, err := range errs {
			if !strings.Contains(fmt.Sprint(err), "could not extend file") {
				t.Fatalf("after %d events Append returned %v, want \"could not extend file\"", stored, err)
			}
		}
		if got, err := j.HighestSequenceNr(t.Context(), "a"); got != stored || err != nil {
			t.Fatalf("%d events were acknowledged, but the highest sequence number is %d, %v", stored, got, err)
		}
	}
	server.SetMaxFileSize(0)
	server.Restart(t)
	until(t, "an append after the restart", func() bool { // the pool must first detect the broken connections
		errs := j.Append(t.Context(), []journal.Write{large(stored)})
		return errs == nil || errors.Is(errs[0], journal.ErrConflict)
	})
	n := uint64(0)
	for e, err := range j.Replay(t.Context(), "a", 1, journal.MaxSequenceNr) {
		if n++; err != nil || e.SequenceNr != n || len(e.Payload) != len(payload) {
			t.Fatalf("event %d has the number %d and %d bytes, %v, want %d bytes", n, e.SequenceNr, len(e.Payload), err, len(payload))
		}
	}
	if n != stored+1 {
		t.Errorf("%d events, want %d", n, stored+1)
	}
}

// TestRuntimeOnAFullDisk runs clients that send commands while the disk becomes full and while it
// is replaced.
func TestRuntimeOnAFullDisk(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{MaxFileSize: smallDisk})
	db := openStore(t, server.DSN(t), postgres.Config{})
	j := db.TestJournal()
	h, b := openLedgers(t, j, 2*time.Second), newOperations(4)
	b.padding = noise(50_000)
	b.run(t, []*ledgerRuntime{h}, 10, 2*time.Second, func(*rand.Rand) {
		probe := 0
		until(t, "a full disk", func() bool {
			probe++
			w := eventsOf(fmt.Sprint("probe", probe), 0, 1)
			w.Events[0].Payload = b.padding
			return j.Append(t.Context(), []journal.Write{w}) != nil
		})
		server.SetMaxFileSize(0)
		server.Restart(t)
		pause(t, rand.New(rand.NewPCG(1, 1)), time.Second)
	})
	h.close(t)
	found := openLedgers(t, j, time.Minute)
	defer found.close(t)
	b.checkResults(t, found)
}
