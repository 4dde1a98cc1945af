// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package durabletest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/refold-io/refold/ddata/durable"
)

func lifecycleChecks() []check {
	return []check{
		{name: "InvalidID", rule: "an invalid ID is rejected", run: func(f *fixture) {
			for _, id := range []durable.ID{
				{},
				{Node: "a:1"},
				{Replicator: "carts"},
				{Node: "a/b", Replicator: "carts"},
				{Node: "a:1", Replicator: "../carts"},
				{Node: strings.Repeat("n", 129), Replicator: "carts"},
				{Node: "a:1", Replicator: "a\x00"},
			} {
				f.wantOpenError(id, func(err error) bool { return errors.Is(err, durable.ErrInvalid) }, "ErrInvalid")
			}
		}},
		{name: "Persist", rule: "a store that is opened again contains all stored records", run: func(f *fixture) {
			s := f.open(carts())
			all := content{}
			for round := range 3 {
				for i := range 50 {
					key, data := fmt.Sprint("key-", i), fmt.Sprint(round, i)
					if (i+round)%5 == 0 {
						delete(all, key)
						f.write(s, put(key, ""))
						continue
					}
					all[key] = data
					f.write(s, put(key, data))
				}
				s = f.reopen(s)
				f.want(s, fmt.Sprintf("opened again, %d", round), all.records()...)
			}
		}},
		{name: "Apart", rule: "each ID has its own store", run: func(f *fixture) {
			var open []durable.Store
			for _, id := range ids() {
				s := f.open(id)
				f.want(s, "never opened: "+id.String())
				f.write(s, put("a", id.String()))
				open = append(open, s)
			}
			for i, id := range ids() {
				f.want(open[i], id.String(), put("a", id.String()))
				f.close(open[i])
			}
			for _, id := range ids() {
				f.want(f.open(id), "opened again: "+id.String(), put("a", id.String()))
			}
		}},
		{name: "InUse", rule: "an open store cannot be opened again until it is closed", run: func(f *fixture) {
			s := f.open(carts())
			f.wantOpenError(carts(), func(err error) bool { return errors.Is(err, durable.ErrInUse) }, "ErrInUse")
			f.write(s, put("a", "1"))
			f.open(durable.ID{Node: carts().Node, Replicator: "others"})
			f.open(durable.ID{Node: "b:1", Replicator: carts().Replicator})
			later := f.reopen(s)
			f.close(s) // the second Close must not release the store that was opened after the first
			f.wantOpenError(carts(), func(err error) bool { return errors.Is(err, durable.ErrInUse) }, "ErrInUse")
			f.want(later, "opened again", put("a", "1"))
		}},
		{name: "Stop", rule: "a loop over Load can be left and started again", run: func(f *fixture) {
			s := f.open(carts())
			f.write(s, put("a", "1"), put("b", "2"), put("c", "3"))
			loop := s.Load(f.ctx)
			for range 3 {
				n := 0
				for r, err := range loop {
					if n++; err != nil || r.Key != string("ab"[n-1]) {
						f.Errorf("record %d: %q, %v", n, r.Key, err)
					}
					if n == 2 {
						break
					}
				}
			}
			f.write(s, put("d", "4"))
			n := 0
			for _, err := range loop {
				if n++; err != nil {
					f.Errorf("second loop: %v", err)
				}
			}
			if n != 4 {
				f.Errorf("second loop: %d records, want 4", n)
			}
			f.close(s)
		}},
		{name: "View", rule: "Load yields the records as of the start of the loop", run: func(f *fixture) {
			s := f.open(carts())
			var all []durable.Record
			for i := range 500 {
				all = append(all, put(fmt.Sprintf("key-%03d", i), strings.Repeat("x", 1000)))
			}
			f.write(s, all...)
			n := 0
			for r, err := range s.Load(f.ctx) {
				if err != nil {
					f.Fatalf("Load: %v", err)
				}
				if n == len(all) || !equal(r, all[n]) {
					f.Fatalf("record %d of the loop is unexpected: %s", n, show([]durable.Record{r}))
				}
				if n++; n == 1 {
					f.write(s, put("key-499", "2"), put("key-498", ""), put("key-0001", "3"), put("z", "4"))
				}
			}
			if n != len(all) {
				f.Errorf("the loop yielded %d records, want %d", n, len(all))
			}
			if got := len(f.load(s)); got != len(all)+1 {
				f.Errorf("a second loop yielded %d records, want %d", got, len(all)+1)
			}
		}},
		{name: "Concurrent", rule: "concurrent calls do not affect each other", run: func(f *fixture) {
			s := f.open(carts())
			const writers, rounds = 8, 20
			var all sync.WaitGroup
			want := content{}
			for w := range writers {
				for k := range 3 {
					want[fmt.Sprint(w, "-", k)] = fmt.Sprint(rounds - 1)
				}
				all.Go(func() {
					for round := range rounds {
						var batch []durable.Record
						for k := range 3 {
							batch = append(batch, put(fmt.Sprint(w, "-", k), fmt.Sprint(round)))
						}
						if err := s.Write(f.ctx, batch); err != nil {
							f.Errorf("Write: %v", err)
							return
						}
						if round%5 != 0 {
							continue
						}
						for _, err := range s.Load(f.ctx) {
							if err != nil {
								f.Errorf("Load: %v", err)
								return
							}
						}
					}
				})
			}
			all.Wait()
			f.want(s, "after concurrent writes", want.records()...)
			f.want(f.reopen(s), "opened again", want.records()...)
		}},
		{name: "CloseWaits", rule: "records that Write acknowledges during Close are stored", run: func(f *fixture) {
			for round := range 5 {
				id := durable.ID{Node: "a:1", Replicator: fmt.Sprint("r", round)}
				s := f.open(id)
				const writers = 4
				var (
					all          sync.WaitGroup
					acknowledged [writers]int
					begun        = make(chan struct{}, writers)
				)
				for w := range writers {
					all.Go(func() {
						for n := 1; ; n++ {
							err := s.Write(f.ctx, []durable.Record{put(fmt.Sprint(w), fmt.Sprint(n))})
							if n == 1 {
								begun <- struct{}{}
							}
							if err == nil {
								acknowledged[w] = n
								continue
							}
							if !errors.Is(err, durable.ErrClosed) {
								f.Errorf("Write: %v, want ErrClosed", err)
							}
							return
						}
					})
				}
				for range writers {
					<-begun
				}
				f.close(s)
				all.Wait()
				want := content{}
				for w, n := range acknowledged {
					want[fmt.Sprint(w)] = fmt.Sprint(n)
				}
				f.want(f.open(id), "acknowledged before Close", want.records()...)
			}
		}},
		{name: "Cancelled", rule: "a call whose context has ended fails, and stores nothing", run: func(f *fixture) {
			s := f.open(carts())
			f.write(s, put("a", "1"))
			ctx, cancel := context.WithCancelCause(f.ctx)
			cause := errors.New("no more")
			cancel(cause)
			if err := s.Write(ctx, []durable.Record{put("a", "2")}); !errors.Is(err, cause) {
				f.Errorf("Write: %v, want the cause of the context", err)
			}
			n := 0
			for r, err := range s.Load(ctx) {
				if n++; !errors.Is(err, cause) {
					f.Errorf("Load: %q, %v, want the cause of the context", r.Key, err)
				}
			}
			if n != 1 {
				f.Errorf("Load yielded %d times, want once, an error", n)
			}
			if other, err := f.o.Open(ctx, durable.ID{Node: "a:1", Replicator: "others"}); !errors.Is(err, cause) {
				f.Errorf("Open: %v, want the cause of the context", err)
				if err == nil {
					f.close(other)
				}
			}
			f.want(s, "afterwards", put("a", "1"))
		}},
		{name: "Closed", rule: "calls after Close return ErrClosed", run: func(f *fixture) {
			s := f.open(carts())
			f.write(s, put("a", "1"))
			f.close(s)
			if err := s.Write(f.ctx, []durable.Record{put("a", "2")}); !errors.Is(err, durable.ErrClosed) {
				f.Errorf("Write: %v, want ErrClosed", err)
			}
			if records, err := f.tryLoad(s); !errors.Is(err, durable.ErrClosed) || len(records) > 0 {
				f.Errorf("Load: %s, %v, want ErrClosed", show(records), err)
			}
			f.close(s)
			f.want(f.open(carts()), "opened again", put("a", "1"))
		}},
	}
}

// ids returns IDs that are easily confused.
func ids() []durable.ID {
	most := strings.Repeat("N", 127)
	return []durable.ID{
		{Node: "a:1", Replicator: "carts"},
		{Node: "A:1", Replicator: "carts"},
		{Node: "a:1", Replicator: "Carts"},
		{Node: "a", Replicator: "1:carts"},
		{Node: "a-1", Replicator: "carts"},
		{Node: "a_1", Replicator: "carts"},
		{Node: "a.1", Replicator: "carts"},
		{Node: "carts", Replicator: "a:1"},
		{Node: ".", Replicator: "."},
		{Node: "..", Replicator: ".."},
		{Node: ".", Replicator: ".."},
		{Node: "a.", Replicator: "carts."},
		{Node: most + "N", Replicator: most + "N"},
		{Node: most + "n", Replicator: most + "N"},
		{Node: most + "N", Replicator: most + "n"},
		{Node: most + ":", Replicator: most + "N"},
		{Node: most, Replicator: most + "N"},
	}
}
