// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot/snapshottest"
	"github.com/refold-io/refold/store"
)

const (
	accounts = 20
	opening  = 100
)

func name(i int) string { return fmt.Sprint("a", i) }

// TestTransfers moves money between accounts while writes fail, are rejected, are stored late or
// hang, and while the runtime is closed or crashes. It checks that each transfer was credited
// exactly once, or refunded and never credited, and that the sum of money is unchanged.
func TestTransfers(t *testing.T) {
	t.Parallel()
	var refunds atomic.Int64
	t.Cleanup(func() {
		if refunds.Load() == 0 {
			t.Error("0 transfers were refunded, want at least 1")
		}
	})
	for seed := range uint64(16) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { refunds.Add(runTransfers(t, seed)) })
		})
	}
}

func runTransfers(t *testing.T, seed uint64) (refunds int64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	j := journaltest.NewFaulty(inmem.NewJournal())
	s := snapshottest.NewFaulty(inmem.NewSnapshotStore())
	cfg := eventsourcing.Config{Store: store.Of(j, s)}
	typ := accountType(&probe{})
	if seed%3 == 0 {
		typ.DisablePipelining = true
	}
	open := func() *bank[Account] { return openBank(t, cfg, typ, eventsourcing.HostOptions{}) }

	b := open()
	for i := range accounts {
		ask(t, b, name(i), Deposit{Amount: opening})
	}
	b.close(t)
	inject(j, s, rand.New(rand.NewPCG(seed, 1)))
	for phase := range uint64(4) {
		b = open()
		var clients sync.WaitGroup
		for c := range uint64(8) {
			client := rand.New(rand.NewPCG(seed, 100+10*phase+c))
			clients.Go(func() { runClient(b, client) })
		}
		time.Sleep(time.Duration(rng.IntN(60)) * time.Second)
		if rng.IntN(2) == 0 {
			b.crash(t)
		} else {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			_ = b.runtime.Close(ctx) // faults may keep it from draining in time
			cancel()
		}
		clients.Wait()
		j.Release()
	}
	j.Reset()
	s.Reset()

	b = open()
	defer b.close(t)
	for i := range accounts {
		ask(t, b, name(i), Lock{Locked: false}) // also starts the account and its deliveries
	}
	settle(t, b)
	return auditTransfers(t, b)
}

// inject makes each fault occur at random.
func inject(j *journaltest.Faulty, s *snapshottest.Faulty, rng *rand.Rand) {
	var mu sync.Mutex // the journal and the snapshot store use rng concurrently
	in := func(n int) bool {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n) == 0
	}
	for _, f := range []struct {
		do journaltest.Effect
		in int
	}{
		{journaltest.Lose, 30},
		{journaltest.Store, 30},
		{journaltest.Late, 30},
		{journaltest.Reject, 30},
		{journaltest.NotSent, 40},
		{journaltest.Conflict, 60},
		{journaltest.Stall, 100},
	} {
		j.Inject(journaltest.Fault{
			Do: f.do, Times: -1, AfterCalls: 3, WholeCall: f.do == journaltest.NotSent,
			When: func(journaltest.Call) bool { return in(f.in) },
		})
	}
	for _, op := range []journaltest.Op{journaltest.OpReplay, journaltest.OpHighest} {
		j.Inject(journaltest.Fault{Op: op, Times: -1, When: func(journaltest.Call) bool { return in(40) }})
	}
	for _, op := range []snapshottest.Op{snapshottest.OpSave, snapshottest.OpLoad, snapshottest.OpDelete} {
		s.Inject(snapshottest.Fault{Op: op, Times: -1, When: func(snapshottest.Call) bool { return in(15) }})
	}
}

// runClient sends transfers and locks an account from time to time. The audit checks the outcomes.
func runClient(b *bank[Account], rng *rand.Rand) {
	for range 40 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		from, to := name(rng.IntN(accounts)), name(rng.IntN(accounts))
		switch rng.IntN(8) {
		case 0:
			_, _ = eventsourcing.Ask(ctx, b.Ref(from), Lock{Locked: rng.IntN(3) == 0})
		default:
			_, _ = eventsourcing.Ask(ctx, b.Ref(from), Transfer{To: to, Amount: 1 + rng.IntN(opening/2)})
		}
		cancel()
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
	}
}

// settle waits until all transfers have ended.
func settle(t *testing.T, b *bank[Account]) {
	t.Helper()
	for range 100 {
		open := 0
		for i := range accounts {
			open += ask(t, b, name(i), Lookup{}).Unconfirmed
		}
		if open == 0 {
			return
		}
		time.Sleep(5 * time.Second)
	}
	t.Fatal("some transfers have not ended within the time limit of the test")
}

// transfer is the outcome of one transfer according to the events.
type transfer struct {
	amount            int
	completed, refund int
	credited, refused int
}

// auditTransfers checks all transfers and balances by the stored events alone. It returns the
// number of refunded transfers.
func auditTransfers(t *testing.T, b *bank[Account]) (refunds int64) {
	t.Helper()
	transfers := map[string]*transfer{} // by sender and number
	key := func(sender string, nr uint64) string { return fmt.Sprint(sender, " ", nr) }
	get := func(k string) *transfer {
		if transfers[k] == nil {
			transfers[k] = &transfer{}
		}
		return transfers[k]
	}
	total := 0
	for i := range accounts {
		sender, nr := "account|"+name(i)+"#Transfers", uint64(0)
		opts := eventsourcing.FoldOptions[Event]{Replace: func(_ uint64, event Event) []Event {
			switch e := event.(type) {
			case TransferStarted:
				nr++
				x := get(key(sender, nr))
				x.amount = e.Amount
			case TransferCompleted:
				get(key(sender, e.Nr)).completed++
			case TransferRefunded:
				get(key(sender, e.Nr)).refund++
			case Credited:
				get(key(e.Delivery.Sender, e.Delivery.Nr)).credited++
			case CreditRefused:
				get(key(e.Delivery.Sender, e.Delivery.Nr)).refused++
			}
			return []Event{event}
		}}
		folded, err := eventsourcing.Fold(t.Context(), b.runtime, accountType(&probe{}), name(i), opts)
		if err != nil {
			t.Fatal(err)
		}
		state := as[*Account](t, folded.State)
		total += state.Balance
		if got := ask(t, b, name(i), Lookup{}); got.Balance != state.Balance || got.InFlight != 0 || state.InFlight != 0 {
			t.Errorf("%s answers %+v, its events lead to balance %d, in flight %d", name(i), got, state.Balance, state.InFlight)
		}
	}
	if total != accounts*opening {
		t.Errorf("the balances of all accounts sum to %d, want %d", total, accounts*opening)
	}
	for k, x := range transfers {
		ok := x.amount > 0 && x.completed+x.refund == 1 && x.credited == x.completed && x.refused == x.refund
		if !ok {
			t.Errorf("transfer %s is %+v, want it credited once or refunded", k, *x)
		}
		refunds += int64(x.refund)
	}
	if len(transfers) < 20 {
		t.Errorf("%d transfers were made, want at least 20", len(transfers))
	}
	return refunds
}
