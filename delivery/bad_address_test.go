// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// TestInvalidAddresses checks that deliveries to invalid IDs stay unconfirmed, are reported, and do
// not hold back other deliveries.
func TestInvalidAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := eventsourcing.Config{Store: store.Of(inmem.NewJournal(), inmem.NewSnapshotStore())}
		reported := map[string]error{}
		p := &probe{signal: func(_ string, s eventsourcing.Signal) {
			if u, ok := s.(delivery.Unconfirmed[Credit]); ok {
				for _, d := range u.Deliveries {
					reported[d.To.ID] = d.Err
				}
			}
		}}
		bad := []string{"", " ", "\xff", "a\x00b", strings.Repeat("x", 600)}
		good := []string{"a|b", "a\nb", "\u202e"}
		b := openBank(t, cfg, accountType(p), eventsourcing.HostOptions{})
		ask(t, b, "alice", Deposit{Amount: 100})
		for _, id := range append(bad, good...) {
			ask(t, b, "alice", Transfer{To: id, Amount: 1})
		}
		b.crash(t)
		b = openBank(t, cfg, accountType(p), eventsourcing.HostOptions{})
		defer b.close(t)
		if n, err := b.Wake(t.Context()); n != 1 || err != nil {
			t.Errorf("Wake = %d, %v, want 1", n, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := ask(t, b, "alice", Lookup{}); got.Unconfirmed != len(bad) || got.InFlight != len(bad) {
			t.Errorf("alice has %+v, want %d unconfirmed deliveries", got, len(bad))
		}
		for _, id := range good {
			if got := ask(t, b, id, Lookup{}); got.Balance != 1 {
				t.Errorf("%q has %+v, want the balance 1", id, got)
			}
		}
		for _, id := range bad {
			if err := reported[id]; err == nil || eventsourcing.StatusOf(err).HTTP != 400 {
				t.Errorf("the delivery to %.10q is reported with %v, want ErrArgument", id, err)
			}
		}
	})
}
