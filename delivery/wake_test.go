// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// TestWake checks that deliveries which a crash interrupted arrive without a new command, and that
// entities without deliveries are not started.
func TestWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := eventsourcing.Config{Store: store.Of(inmem.NewJournal(), inmem.NewSnapshotStore())}
		p := &probe{}
		p.ignores.Store(true)
		b := openBank(t, cfg, accountType(p), eventsourcing.HostOptions{})
		for _, id := range []string{"alice", "carol", "dave"} {
			ask(t, b, id, Deposit{Amount: 100})
		}
		ask(t, b, "alice", Transfer{To: "bob", Amount: 10})
		ask(t, b, "carol", Transfer{To: "bob", Amount: 5})
		b.crash(t)

		b = openBank(t, cfg, accountType(&probe{}), eventsourcing.HostOptions{})
		defer b.close(t)
		if n, err := b.Wake(t.Context()); n != 2 || err != nil {
			t.Errorf("Wake = %d, %v, want 2", n, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := b.Resident(); n != 3 {
			t.Errorf("%d accounts are in memory, want alice, bob and carol", n)
		}
		if got := ask(t, b, "bob", Lookup{}); got.Balance != 15 {
			t.Errorf("bob has %+v, want the balance 15", got)
		}
		if n, err := b.Wake(t.Context()); n != 0 || err != nil {
			t.Errorf("the second Wake = %d, %v, want 0", n, err)
		}
	})
}
