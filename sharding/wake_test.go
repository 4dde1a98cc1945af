// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
)

// wakeStores are RememberStores whose calls fail on request.
type wakeStores struct {
	sharding.RememberStores

	mu      sync.Mutex
	fail    func() bool // nil for none
	updates int
}

func (f *wakeStores) set(fail func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// count returns the number of updates.
func (f *wakeStores) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.updates
}

var errFault = errors.New("the store is down")

func (f *wakeStores) check(update int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updates += update
	if f.fail != nil && f.fail() {
		return errFault
	}
	return nil
}

// OpenEntities implements sharding.RememberStores.
func (f *wakeStores) OpenEntities(s sharding.Scope) (sharding.RememberStore, error) {
	store, err := f.RememberStores.OpenEntities(s)
	return &wakeStore{store, f}, err
}

type wakeStore struct {
	sharding.RememberStore
	of *wakeStores
}

// Load implements sharding.RememberStore.
func (s *wakeStore) Load(ctx context.Context, n sharding.Shard) ([]string, error) {
	if err := s.of.check(0); err != nil {
		return nil, err
	}
	return s.RememberStore.Load(ctx, n)
}

// Update implements sharding.RememberStore. An update that fails may be stored.
func (s *wakeStore) Update(ctx context.Context, n sharding.Shard, started, stopped []string) error {
	if err := s.of.check(1); err != nil {
		return err
	}
	err := s.RememberStore.Update(ctx, n, started, stopped)
	return errors.Join(err, s.of.check(0))
}

// postOffice is a node with couriers.
type postOffice struct {
	*host

	couriers *sharding.Region[courier]
}

// open starts a node with couriers.
func (w *world) open(name string, report chan<- string, opts sharding.Options) *postOffice {
	w.Helper()
	h := w.join(name)
	r, err := sharding.Host(w.Context(), h.Node, h.rt, couriers(report), opts)
	w.must(err)
	return &postOffice{h, r}
}

// bells hosts the bells on a node.
func (p *postOffice) bells(w *world, report chan<- string, opts sharding.Options) {
	w.Helper()
	_, err := sharding.Host(w.Context(), p.Node, p.rt, bells(report), opts)
	w.must(err)
}

// crash ends the node without a leave.
func (p *postOffice) crash() {
	p.Stop()
	<-p.Done()
}

func (w *world) tell(p *postOffice, id string, command eventsourcing.Request[courier, eventsourcing.Ack]) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	_, err := eventsourcing.Ask(ctx, p.couriers.Ref(id), command)
	w.must(err)
}

// entries returns the IDs in the index.
func (w *world) entries(shards int) (ids []string) {
	w.Helper()
	store, err := sharding.JournalStores{Journal: w.journal}.OpenEntities(sharding.Scope{Type: "courier", Pending: true})
	w.must(err)
	for n := range shards {
		loaded, err := store.Load(w.Context(), sharding.Shard(n))
		w.must(err)
		ids = append(ids, loaded...)
	}
	w.must(store.Close())
	slices.Sort(ids)
	return ids
}

// A courier with an unconfirmed delivery and one with a deadline continue without a command after
// their node has ended, and after all nodes have ended, also if entities are remembered. An entity whose
// work has ended leaves memory and the index.
func TestWorkContinuesWithoutCommand(t *testing.T) {
	t.Parallel()
	for _, remembers := range []bool{false, true} {
		t.Run(fmt.Sprintf("remember %t", remembers), func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) {
				report := make(chan string, 100)
				opts := sharding.Options{Shards: 8, Tuning: sharding.Tuning{RecoverNumber: 1}}
				if remembers {
					opts.Remember = sharding.JournalStores{Journal: w.journal}
				}
				var all []*postOffice
				var hosts []*host
				for _, name := range []string{"a", "b", "c"} {
					p := w.open(name, report, opts)
					all, hosts = append(all, p), append(hosts, p.host)
					w.up(hosts...)
				}
				due := time.Now().Add(10 * time.Minute)
				want := map[string]bool{}
				for i := range 10 {
					w.tell(all[0], fmt.Sprint("sender ", i), dispatch{To: fmt.Sprint(i)}) // no node has bells
					w.tell(all[1], fmt.Sprint("late ", i), schedule{At: due})
					w.tell(all[2], fmt.Sprint("idle ", i), greet{})
					want[fmt.Sprint(i, " rings")], want[fmt.Sprint("late ", i, " is late")] = true, true
				}
				if s, err := all[2].couriers.State(w.Context()); err != nil || len(s.Shards) == 0 {
					t.Fatalf("node c hosts no shard: %v", err)
				}
				w.network.CutOneWay([]string{"c"}, []string{"a", "b"})
				w.network.CutOneWay([]string{"a", "b"}, []string{"c"})
				<-all[2].Done()
				for _, p := range all[:2] {
					p.bells(w, report, sharding.Options{Shards: 4})
				}
				w.sleep(20 * time.Minute)
				for len(report) > 0 {
					delete(want, <-report)
				}
				if len(want) > 0 {
					t.Errorf("after node c has ended, %v did not happen without a command", slices.Sorted(maps.Keys(want)))
				}
				w.sleep(10 * time.Minute)
				if s, err := all[0].couriers.Statistics(w.Context(), time.Minute); err != nil || !remembers && s.Entities() != 0 {
					t.Errorf("%d couriers are in memory after their work has ended, want 0: %v", s.Entities(), err)
				}
				w.tell(all[0], "again", schedule{At: time.Now().Add(time.Hour)})
				w.halt()
				if ids := w.entries(8); !slices.Equal(ids, []string{"again"}) {
					t.Errorf("the index has %v after the other work has ended, want only again", ids)
				}
				w.up(w.open("a", report, opts).host)
				w.reported(report, "again is late")
			})
		})
	}
}

// A command that gives an entity its first work waits while the index cannot be written. Other commands
// do not wait.
func TestCommandWaitsForIndex(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		stores := &wakeStores{RememberStores: sharding.JournalStores{Journal: w.journal}}
		a := w.open("a", make(chan string, 10), sharding.Options{Shards: 1, Wake: stores})
		w.up(a.host)
		w.tell(a, "1", greet{})
		synctest.Wait() // the index is loaded
		stores.set(func() bool { return true })
		done := make(chan error, 1)
		go func() {
			_, err := eventsourcing.Ask(w.Context(), a.couriers.Ref("1"), schedule{At: time.Now().Add(time.Hour)})
			done <- err
		}()
		w.sleep(time.Minute)
		if got := len(done); got != 0 {
			t.Fatalf("the command was answered %v without an entry in the index", <-done)
		}
		if n, err := w.journal.HighestSequenceNr(w.Context(), "courier|1"); err != nil || n != 0 {
			t.Errorf("the journal has %d events, %v, want none", n, err)
		}
		w.tell(a, "2", greet{})
		stores.set(nil)
		w.must(<-done)
		w.tell(a, "1", schedule{At: time.Now().Add(2 * time.Hour)}) // needs no further update
		before := stores.count()
		for range 100 {
			w.tell(a, "1", schedule{})
			w.tell(a, "1", schedule{At: time.Now().Add(time.Hour)})
		}
		if n := stores.count() - before; n != 0 {
			t.Errorf("an entity in the index caused %d updates, want none", n)
		}
	})
}

// Whatever fails and crashes, an entity whose work was acknowledged is in the index.
func TestAcknowledgedWorkIsInIndex(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) {
				rnd, faults := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2)) // faults belongs to the stores
				stores := &wakeStores{RememberStores: sharding.JournalStores{Journal: w.journal}}
				opts := sharding.Options{Shards: 2, Wake: stores, Tuning: sharding.Tuning{RestartBackoff: time.Second}}
				far := time.Now().Add(1000 * time.Hour)
				acknowledged, unknown := map[string]bool{}, map[string]bool{} // entities with a deadline, and those that may have one
				for crash := range 6 {
					a := w.open("a", make(chan string, 100), opts)
					w.up(a.host)
					w.must(a.couriers.AwaitReady(w.Context()))
					stores.set(func() bool { return faults.IntN(2) == 0 })
					type outcome struct {
						id   string
						work bool
						err  error
					}
					for range 1 + rnd.IntN(12) {
						w.sleep(time.Duration(rnd.IntN(100)) * time.Second)
						var all sync.WaitGroup
						outcomes := make(chan outcome, 20)
						for _, i := range rnd.Perm(8)[:1+rnd.IntN(7)] {
							o := outcome{id: fmt.Sprint("c", i), work: rnd.IntN(2) == 0}
							all.Go(func() {
								ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
								defer cancel()
								c := schedule{}
								if o.work {
									c.At = far
								}
								_, o.err = eventsourcing.Ask(ctx, a.couriers.Ref(o.id), c)
								outcomes <- o
							})
						}
						all.Wait()
						close(outcomes)
						for o := range outcomes {
							unknown[o.id] = o.err != nil
							if o.err == nil {
								acknowledged[o.id] = o.work
							}
						}
					}
					a.crash()
					stores.set(nil)
					w.must(a.rt.Close(context.Background()))
					ids := w.entries(2)
					for id, work := range acknowledged {
						if work && !unknown[id] && !slices.Contains(ids, id) {
							t.Errorf("after crash %d, the index %v lacks %s, whose work was acknowledged", crash, ids, id)
						}
					}
				}
			})
		})
	}
}

// A region whose index differs from that of the coordinator's node is rejected.
func TestWakeMustBeEqual(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		a := w.open("a", nil, sharding.Options{Shards: 4})
		w.up(a.host)
		w.must(a.couriers.AwaitReady(w.Context()))
		b := w.open("b", nil, sharding.Options{Shards: 4, DisableWake: true})
		err := b.couriers.AwaitReady(w.Context())
		if want := "Options.Wake is none here and journal on that node"; !errors.Is(err, sharding.ErrMismatch) || !strings.Contains(err.Error(), want) {
			t.Errorf("AwaitReady returned %v, want ErrMismatch with the text %q", err, want)
		}
	})
}

// Entities whose work began without an index continue after a call of Wake, and are in the index then.
func TestWakeFillsIndex(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		report := make(chan string, 10)
		a := w.open("a", report, sharding.Options{Shards: 4, DisableWake: true})
		w.up(a.host)
		w.tell(a, "1", schedule{At: time.Now().Add(time.Minute)})
		w.tell(a, "2", schedule{At: time.Now().Add(100 * time.Hour)})
		w.tell(a, "3", greet{})
		w.halt()
		w.sleep(time.Hour)

		a = w.open("a", report, sharding.Options{Shards: 4})
		w.up(a.host)
		w.sleep(time.Hour)
		if len(report) > 0 {
			t.Fatalf("%q without an index", <-report)
		}
		if n, err := a.couriers.Wake(w.Context()); n != 2 || err != nil {
			t.Errorf("Wake started %d entities, %v, want 2", n, err)
		}
		w.reported(report, "1 is late")
		w.halt()
		if ids := w.entries(4); !slices.Contains(ids, "2") {
			t.Errorf("the index has %v, want 2 in it", ids)
		}
	})
}
