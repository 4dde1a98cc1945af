// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/delivery"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/store"
)

func TestOutput(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), t.TempDir(), &out); err != nil || out.String() != "o1: completed\no2: cancelled\no3: completed\n" {
		t.Errorf("the output is %q, error %v", out.String(), err)
	}
}

// world is a shop whose process can crash at any write. Time is that of a synctest bubble.
type world struct {
	*testing.T
	shop

	dir     string
	db      *leveldb.DB
	journal *journaltest.Faulty
}

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, dir: dir}
		w.start()
		ask(w, w.wallets.Ref("ann"), Add[money]{Amount: 100})
		ask(w, w.stocks.Ref("tea"), Add[units]{Amount: 3})
		f(w)
		w.crashAll()
		time.Sleep(time.Minute) // a goroutine of goleveldb ends 30 s after the database is closed
	})
}

func ask[S, R any](w *world, to es.Ref[S], c es.Request[S, R]) R {
	w.Helper()
	r, err := es.Ask(w.Context(), to, c)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) start(faults ...journaltest.Fault) {
	w.Helper()
	var err error
	if w.db, err = leveldb.Open(w.dir, leveldb.Config{NoSync: true}); err != nil {
		w.Fatal(err)
	}
	w.journal = journaltest.NewFaulty(w.db.Journal())
	for _, f := range faults {
		w.journal.Inject(f)
	}
	if w.shop, err = open(w.Context(), store.Of(w.journal, w.db.Snapshots())); err != nil {
		w.Fatal(err)
	}
}

func (w *world) crashAll() {
	w.crash()
	if err := w.db.Close(); err != nil {
		w.Error(err)
	}
}

// dieAt loses all writes from the n-th on, except that the n-th itself is stored if stored is true.
// The returned channel is closed at the n-th write.
func (w *world) dieAt(n int, stored bool) <-chan struct{} {
	seen, dead := 0, make(chan struct{})
	w.journal.Inject(journaltest.Fault{Do: journaltest.Store, Times: -1, When: func(journaltest.Call) bool {
		if seen++; seen == n {
			close(dead)
		}
		return seen == n && stored
	}})
	w.journal.Inject(journaltest.Fault{Do: journaltest.Lose, Times: -1, When: func(journaltest.Call) bool { return seen >= n }})
	return dead
}

var orders = map[string]Place{
	"o1": {Customer: "ann", Product: "tea", Price: 60, Quantity: 1},
	"o2": {Customer: "ann", Product: "tea", Price: 30, Quantity: 2},
	"o3": {Customer: "ann", Product: "tea", Price: 40, Quantity: 1},  // the three cannot all be paid
	"o4": {Customer: "ann", Product: "tea", Price: 1, Quantity: 5},   // so many units never exist
	"o5": {Customer: "ann", Product: "tea", Price: 500, Quantity: 1}, // so much money neither
}

// place places all orders. The writes may fail.
func (w *world) place() {
	for id, p := range orders {
		_ = es.Tell(w.Context(), w.orders.Ref(id), p)
	}
}

// check checks by the stored events that all orders have ended, and that the money and the units
// are those of the completed orders.
func (w *world) check() (completed int) {
	w.Helper()
	spent, sold := 0, 0
	for id, p := range orders {
		o := fold(w, OrderType, id)
		if !o.ended() {
			w.Errorf("%s has not ended: %+v", id, o)
		}
		if o.Decision == Completed {
			completed, spent, sold = completed+1, spent+p.Price, sold+p.Quantity
		}
	}
	ann, tea := fold(w, partnerType[money]("wallet"), "ann"), fold(w, partnerType[units]("stock"), "tea")
	if ann.Free != 100-spent || ann.Taken != spent || tea.Free != 3-sold || tea.Taken != sold || len(ann.Holds)+len(tea.Holds) > 0 {
		w.Errorf("the completed orders take %d and %d units, but the partners are %+v and %+v", spent, sold, ann, tea)
	}
	return completed
}

func fold[S, E any](w *world, typ es.Type[S, E], id string) *S {
	w.Helper()
	f, err := es.Fold(w.Context(), w.rt, typ, id, es.FoldOptions[E]{})
	if err != nil {
		w.Fatal(err)
	}
	return f.State
}

// TestCrashes crashes the process at each write, before or after it is stored, and then up to three
// times while the orders continue. Without further commands, all orders end.
func TestCrashes(t *testing.T) {
	t.Parallel()
	writes := 0
	t.Run("none", func(t *testing.T) {
		inWorld(t, func(w *world) {
			before := w.journal.Writes()
			w.place()
			time.Sleep(time.Minute)
			if writes = w.journal.Writes() - before; w.check() == 0 {
				w.Error("no order is completed")
			}
		})
	})
	step := effort.Count(8, 2, 1)
	for at := 1; at <= writes; at += step {
		for _, stored := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, stored %v", at, stored), func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) { w.crashesAt(at, stored) })
			})
		}
	}
}

func (w *world) crashesAt(at int, stored bool) {
	random := rand.New(rand.NewPCG(uint64(at), 0))
	for range 1 + random.IntN(4) {
		dead := w.dieAt(at, stored)
		w.place() // a customer repeats the command
		select {
		case <-dead:
		case <-time.After(time.Minute):
		}
		w.crashAll()
		w.start()
		at, stored = 1+random.IntN(10), random.IntN(2) == 0
	}
	time.Sleep(time.Minute)
	for id, err := range w.orders.IDs(w.Context()) {
		if o := fold(w, OrderType, id); err != nil || !o.ended() {
			w.Errorf("after the crash and without a command, %s has not ended: %+v, error %v", id, o, err)
		}
	}
	w.place()
	time.Sleep(time.Minute)
	w.check()
	for id := range orders {
		w.repeat(id)
	}
	w.check()
}

// repeat delivers late copies of the requests of an order. The partners answer the copies, so the
// order is not needed.
func (w *world) repeat(id string) {
	o := fold(w, OrderType, id)
	for nr, do := range []action{hold, map[Outcome]action{Completed: take, Cancelled: release}[o.Decision]} {
		h := delivery.Header{Nr: uint64(nr) + 1, Floor: uint64(nr) + 1}
		h.Sender = "order|" + id + "#Wallet"
		_, _ = es.Ask(w.Context(), w.wallets.Ref("ann"), MoneyRequest{Header: h, Do: do, Amount: o.Placed.Price, Until: o.Placed.Until})
		h.Sender = "order|" + id + "#Stock"
		_, _ = es.Ask(w.Context(), w.stocks.Ref("tea"), UnitsRequest{Header: h, Do: do, Amount: o.Placed.Quantity, Until: o.Placed.Until})
	}
}

// TestTimeOut checks that an order is cancelled at its deadline if the wallet or the order itself
// can't store anything for that long. The process crashes in the meantime.
func TestTimeOut(t *testing.T) {
	t.Parallel()
	for _, fault := range []journaltest.Fault{
		{ID: "wallet|ann", Times: -1},
		{ID: "order|o1", Times: -1, When: func(c journaltest.Call) bool { return c.Write.Events[0].Manifest == "answered" }},
	} {
		t.Run(fault.ID, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) { w.timesOut(fault) })
		})
	}
}

func (w *world) timesOut(fault journaltest.Fault) {
	w.journal.Inject(fault)
	ask(w, w.orders.Ref("o1"), orders["o1"])
	time.Sleep(time.Minute)
	if p := fold(w, partnerType[units]("stock"), "tea"); len(p.Holds) != 1 {
		w.Errorf("the stock is %+v, want a hold", p)
	}
	w.crashAll()
	time.Sleep(patience)
	w.start(fault)
	time.Sleep(time.Minute)
	if o := fold(w, OrderType, "o1"); !o.Late || o.ended() {
		w.Errorf("after the deadline the order is %+v; want it late and not ended", o)
	}
	w.journal.Reset()
	if got := ask(w, w.orders.Ref("o1"), Await{}); got != Cancelled {
		w.Errorf("the order is %s, want %s", got, Cancelled)
	}
	ann, tea := fold(w, partnerType[money]("wallet"), "ann"), fold(w, partnerType[units]("stock"), "tea")
	if ann.Free != 100 || tea.Free != 3 || len(ann.Holds)+len(tea.Holds) > 0 {
		w.Errorf("the wallet is %+v and the stock %+v, want them unchanged", ann, tea)
	}
}

// TestForget checks that partners forget orders a day after their end, also in a recovery, and that
// late copies of the requests of a forgotten order change nothing.
func TestForget(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		for day := range 10 {
			for _, id := range []string{"completed", "refused"} {
				p := Place{Customer: "ann", Product: "tea", Price: 1, Quantity: 1}
				if id == "refused" {
					p.Price, p.Quantity = 500, 500
				}
				id = fmt.Sprint(id, day)
				ask(w, w.stocks.Ref("tea"), Add[units]{Amount: 1})
				ask(w, w.orders.Ref(id), p)
				ask(w, w.orders.Ref(id), Await{})
			}
			time.Sleep(keep + time.Hour)
		}
		sizes := func() (of [2]int) {
			w.Helper()
			ann, tea := fold(w, partnerType[money]("wallet"), "ann"), fold(w, partnerType[units]("stock"), "tea")
			if ann.Free != 90 || ann.Taken != 10 || tea.Free != 13 || tea.Taken != 10 || len(ann.Holds)+len(tea.Holds) > 0 {
				w.Errorf("the wallet is %+v and the stock %+v after 10 orders of 1", ann, tea)
			}
			return [2]int{ann.Orders.Senders(), tea.Orders.Senders()}
		}
		if got := sizes(); got != [2]int{2, 2} {
			w.Errorf("the partners remember %v orders, want those of the last day", got)
		}
		for day := range 10 {
			w.repeat(fmt.Sprint("completed", day))
			w.repeat(fmt.Sprint("refused", day))
		}
		sizes()
		w.crashAll()
		w.start()
		sizes()
	})
}
