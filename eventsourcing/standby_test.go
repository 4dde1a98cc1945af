// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// A meter adds up its readings.
type (
	meter   struct{ Sum, Events int }
	reading struct {
		eventsourcing.Command[meter, int]
		By   int
		Also string // "snapshot" or "delete"
	}
	metered struct{ By int }
)

func (m *meter) read(ctx *eventsourcing.Context[meter, metered, int], c reading) eventsourcing.Decision[meter, metered, int] {
	effect := ctx.Effect
	if c.By != 0 {
		effect = ctx.Persist(metered{c.By})
	}
	switch c.Also {
	case "snapshot":
		effect = effect.SaveSnapshot()
	case "delete":
		effect = effect.DeleteEvents(eventsourcing.DeleteEvents{})
	}
	return effect.ReplyFunc(func() int { return m.Sum })
}

func meterType() eventsourcing.Type[meter, metered] {
	return eventsourcing.Type[meter, metered]{
		Name:     "meter",
		Commands: eventsourcing.Commands(eventsourcing.On("read", (*meter).read)),
		Apply: func(m *meter, e metered) {
			if e.By == poisonous {
				panic("poison")
			}
			m.Sum += e.By
			m.Events++
		},
		Events: codec.Types(codec.Name[metered]("metered")),
	}
}

const poisonous = -1 << 20

// station hosts meters, like a node of a cluster.
type station struct {
	tb       testing.TB
	rt       *eventsourcing.Runtime
	options  eventsourcing.HostOptions
	meters   eventsourcing.Entities[meter]
	host     hosting.Host
	covers   atomic.Pointer[func(string) bool]
	end      context.CancelFunc
	followed sync.WaitGroup

	mu         sync.Mutex
	recoveries map[string]eventsourcing.RecoveryInfo
}

// newStation returns a station that can keep a number of states as a standby.
func newStation(tb testing.TB, db store.DB, limit int) *station {
	tb.Helper()
	s := &station{tb: tb, recoveries: map[string]eventsourcing.RecoveryInfo{}}
	if err := s.open(db, limit); err != nil {
		tb.Fatal(err)
	}
	return s
}

func (s *station) open(db store.DB, limit int) error {
	s.cover(func(string) bool { return true })
	var err error
	s.rt, err = eventsourcing.Open(eventsourcing.Config{Store: db, Observer: eventsourcing.Observer{Recovery: func(info eventsourcing.RecoveryInfo) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.recoveries[info.PersistenceID] = info
	}}})
	if err != nil {
		return err
	}
	options := s.options
	follow := hosting.Follow{Covers: func(id string) bool { return (*s.covers.Load())(id) }, Limit: limit}
	sharding := &hosting.Sharding{Follow: &follow, Hooks: hosting.Hooks{
		Route: func(m hosting.Message) error { return s.host.Deliver(m) },
		Gone:  func(string, bool) {},
		Busy:  func(string) {},
	}}
	hosting.Shard(&options, sharding)
	s.meters, err = eventsourcing.HostWith(s.rt, meterType(), options)
	s.host = sharding.Host
	return err
}

func (s *station) cover(covers func(id string) bool) { s.covers.Store(&covers) }

// follow makes the station a standby.
func (s *station) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	s.followed.Go(func() { s.host.Follow(ctx) })
	synctest.Wait()
}

func (s *station) read(id string, c reading) int {
	s.tb.Helper()
	n, err := eventsourcing.Ask(context.Background(), s.meters.Ref(id), c)
	if err != nil {
		s.tb.Fatal(err)
	}
	return n
}

// leave ends the entity of this station, as if its shard moved.
func (s *station) leave(id string) {
	s.host.Drain(id)
	synctest.Wait()
}

func (s *station) recovery(id string) eventsourcing.RecoveryInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recoveries["meter|"+id]
}

func (s *station) close() {
	if s.end != nil {
		s.end()
	}
	s.followed.Wait()
	if err := s.rt.Close(context.Background()); err != nil {
		s.tb.Error(err)
	}
}

func (s *station) peek(id string) (m meter, ok bool) {
	ok = s.host.Peek(id, time.Second, func(state any) { m = *state.(*meter) }) //nolint:errcheck,forcetypeassert // it holds meters
	return m, ok
}

// TestStandby checks that a standby holds the state of an entity of another runtime, and that the
// recovery of the entity begins with it.
func TestStandby(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, _ := inmem.Open()
		a, b := newStation(t, db, 100), newStation(t, db, 100)
		defer a.close()
		defer b.close()
		a.read("old", reading{By: 1}) // before the standby begins
		b.follow()
		for range 5 {
			a.read("old", reading{By: 1})
			a.read("new", reading{By: 1})
		}
		synctest.Wait()
		for id, want := range map[string]meter{"old": {6, 6}, "new": {5, 5}} {
			if got, ok := b.peek(id); got != want || !ok {
				t.Errorf("the standby of %q holds %+v, %v, want %+v", id, got, ok, want)
			}
			a.leave(id)
			if got := b.read(id, reading{}); got != want.Sum {
				t.Errorf("%q has the sum %d after the move, want %d", id, got, want.Sum)
			}
			if info := b.recovery(id); !info.Prepared || info.Events != 0 || info.SequenceNr != uint64(want.Events) {
				t.Errorf("the recovery of %q was %+v, want one from the standby without a replay", id, info)
			}
		}
		if _, states := b.host.Followed(); states != 0 {
			t.Errorf("the standby still holds %d states of entities that run here", states)
		}
	})
}

// TestStandbyLimits checks that a standby drops the states with the oldest events above its limit, and
// those that it no longer covers.
func TestStandbyLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, _ := inmem.Open()
		a, b := newStation(t, db, 2), newStation(t, db, 2)
		defer a.close()
		defer b.close()
		b.follow()
		for _, id := range []string{"1", "2", "1", "3"} {
			a.read(id, reading{By: 1})
			synctest.Wait()
		}
		for id, want := range map[string]bool{"1": true, "2": false, "3": true} {
			if _, got := b.peek(id); got != want {
				t.Errorf("the standby holds %q: %v, want %v", id, got, want)
			}
		}
		b.cover(func(id string) bool { return id == "3" })
		b.host.Unfollow()
		a.read("1", reading{By: 1})
		synctest.Wait()
		if _, states := b.host.Followed(); states != 1 {
			t.Errorf("the standby holds %d states, want only that of 3", states)
		}
	})
}

// TestStandbyIsStale checks that Peek refuses a state if the standby has not reached the end of the
// journal for the given time.
func TestStandbyIsStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &stallingJournal{Journal: inmem.NewJournal()}
		db := store.Of(j, nil)
		a, b := newStation(t, db, 100), newStation(t, db, 100)
		defer a.close()
		defer b.close()
		b.follow()
		a.read("1", reading{By: 1})
		synctest.Wait()
		if _, ok := b.peek("1"); !ok {
			t.Error("the standby holds no state")
		}
		j.stalled.Store(true)
		a.read("1", reading{By: 1})
		time.Sleep(3 * time.Second)
		if m, ok := b.peek("1"); ok {
			t.Errorf("the standby returned %+v, three seconds after its last read", m)
		}
		j.stalled.Store(false)
		time.Sleep(3 * time.Second)
		if m, ok := b.peek("1"); !ok || m.Sum != 2 {
			t.Errorf("the standby returned %+v, %v, want the sum 2", m, ok)
		}
	})
}

// TestStandbyThatLags checks that an entity whose standby could not read the last events starts with
// all of them: the recovery replays those that the standby lacks.
func TestStandbyThatLags(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &stallingJournal{Journal: inmem.NewJournal()}
		db := store.Of(j, nil)
		a, b := newStation(t, db, 100), newStation(t, db, 100)
		defer a.close()
		defer b.close()
		b.follow()
		a.read("1", reading{By: 1})
		synctest.Wait()
		j.stalled.Store(true)
		a.read("1", reading{By: 1})
		a.read("1", reading{By: 1})
		synctest.Wait()
		if m, ok := b.peek("1"); ok && m.Sum != 1 {
			t.Fatalf("the standby returned %+v, want the sum 1", m)
		}
		a.leave("1")
		if got := b.read("1", reading{By: 1}); got != 4 {
			t.Errorf("the sum is %d after the move, want 4", got)
		}
		if info := b.recovery("1"); !info.Prepared || info.Events != 2 {
			t.Errorf("the recovery was %+v, want one from the standby with a replay of 2 events", info)
		}
	})
}

// stallingJournal fails queries on demand.
type stallingJournal struct {
	*inmem.Journal

	stalled atomic.Bool
}

func (j *stallingJournal) Query(ctx context.Context, c journal.Criteria, after journal.Offset) (journal.Page, error) {
	if j.stalled.Load() {
		return journal.Page{}, context.DeadlineExceeded
	}
	return j.Journal.Query(ctx, c, after)
}

// TestStandbyPoison checks that a standby survives an event that its Apply cannot handle.
func TestStandbyPoison(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, _ := inmem.Open()
		a, b := newStation(t, db, 100), newStation(t, db, 100)
		defer a.close()
		defer b.close()
		b.follow()
		err := db.Journal().Append(t.Context(), []journal.Write{{ID: "meter|bad", Events: []journal.Event{
			{SequenceNr: 1, Time: time.Now(), Manifest: "metered", Payload: mustEncode(t, metered{poisonous})},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		a.read("good", reading{By: 3})
		synctest.Wait()
		if m, ok := b.peek("good"); m.Sum != 3 || !ok {
			t.Errorf("the standby holds %+v, %v, want the sum 3", m, ok)
		}
		if _, ok := b.peek("bad"); ok {
			t.Error("the standby holds the state after an event that panicked")
		}
	})
}

func mustEncode(tb testing.TB, event metered) []byte {
	tb.Helper()
	_, payload, err := codec.Types(codec.Name[metered]("metered")).Encode(event)
	if err != nil {
		tb.Fatal(err)
	}
	return payload
}

// TestStandbyContradiction checks that a recovery drops the state of a standby that the journal
// contradicts: the server has lost its last commits, and may have stored other events since.
func TestStandbyContradiction(t *testing.T) {
	t.Parallel()
	for name, by := range map[string][]int{"fewer events": {10}, "other events": {1, 1, 10}, "more events": {1, 1, 10, 10}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				first, second := inmem.NewJournal(), inmem.NewJournal()
				j := &switchedJournal{Journal: first}
				a, b := newStation(t, store.Of(first, nil), 100), newStation(t, store.Of(j, nil), 100)
				other := newStation(t, store.Of(second, nil), 100)
				for _, s := range []*station{a, b, other} {
					defer s.close()
				}
				b.follow()
				for range 3 {
					a.read("1", reading{By: 1})
				}
				want := 0
				for _, n := range by {
					want = other.read("1", reading{By: n})
				}
				synctest.Wait()
				j.other.Store(second)
				if got := b.read("1", reading{}); got != want {
					t.Errorf("the sum is %d, want that of the journal, %d", got, want)
				}
				if b.recovery("1").Prepared {
					t.Error("the recovery began with a state that the journal contradicts")
				}
			})
		})
	}
}

// TestStandbyReplacesPausedPrimary starts an entity on its standby while the first instance is still in
// memory with a write in flight, as during a pause of its process. The journal refuses the write, or the
// standby includes it. The next write of the first instance is refused.
func TestStandbyReplacesPausedPrimary(t *testing.T) {
	t.Parallel()
	for name, arrival := range map[string]int{"before the recovery": 0, "before the first write of the standby": 1, "after it": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := inmem.NewJournal()
				paused := journaltest.NewFaulty(j)
				a, b := newStation(t, store.Of(paused, nil), 100), newStation(t, store.Of(j, nil), 100)
				defer a.close()
				defer b.close()
				b.follow()
				a.read("1", reading{By: 1})
				synctest.Wait()

				stalled := paused.Inject(journaltest.Fault{Do: journaltest.Stall})
				outcome := make(chan error, 1)
				go func() {
					_, failed := eventsourcing.Ask(context.Background(), a.meters.Ref("1"), reading{By: 100})
					outcome <- failed
				}()
				<-stalled.Struck()
				b.end() // the held state lacks the write
				b.followed.Wait()
				want, err := 1, error(nil)
				arrives := func(at int) {
					if at == arrival {
						stalled.Release()
						err = <-outcome
					}
				}
				arrives(0)
				if arrival == 0 {
					want += 100
				}
				if got := b.read("1", reading{}); got != want || !b.recovery("1").Prepared {
					t.Errorf("the sum is %d, recovered by %+v; want %d, from the state of the standby", got, b.recovery("1"), want)
				}
				arrives(1)
				if arrival == 1 {
					if _, conflict := eventsourcing.Ask(context.Background(), b.meters.Ref("1"), reading{By: 10}); !errors.Is(conflict, eventsourcing.ErrConflict) {
						t.Errorf("the standby missed an event, but its write returned %v, want ErrConflict", conflict)
					}
					want += 100
				}
				if want += 10; b.read("1", reading{By: 10}) != want {
					t.Errorf("the sum is not %d after the write of the standby", want)
				}
				arrives(2)
				if arrival < 2 {
					if err != nil {
						t.Errorf("the write that arrived first returned %v", err)
					}
					_, err = eventsourcing.Ask(context.Background(), a.meters.Ref("1"), reading{By: 1000})
				}
				if !errors.Is(err, eventsourcing.ErrConflict) {
					t.Errorf("the write of the first instance after that of the standby returned %v, want ErrConflict", err)
				}
				if got := a.read("1", reading{}); got != want {
					t.Errorf("the first instance has the sum %d after the conflict, want %d", got, want)
				}
			})
		})
	}
}

// switchedJournal reads histories from another journal on demand.
type switchedJournal struct {
	*inmem.Journal

	other atomic.Pointer[inmem.Journal]
}

func (j *switchedJournal) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	if o := j.other.Load(); o != nil {
		return o.HighestSequenceNr(ctx, id)
	}
	return j.Journal.HighestSequenceNr(ctx, id)
}

func (j *switchedJournal) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	if o := j.other.Load(); o != nil {
		return o.Replay(ctx, id, from, to)
	}
	return j.Journal.Replay(ctx, id, from, to)
}

// TestStandbyAgainstFold moves entities between two stations, with writes, snapshots and deletions,
// and compares each state with that of the journal.
func TestStandbyAgainstFold(t *testing.T) {
	t.Parallel()
	for seed := range effort.Count(5, 20, 200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { standbyAgainstFold(t, uint64(seed)) })
		})
	}
}

func standbyAgainstFold(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	db, _ := inmem.Open()
	stations := []*station{newStation(t, db, 3), newStation(t, db, 3)}
	at := map[string]int{}
	for _, s := range stations {
		defer s.close()
		s.follow()
	}
	prepared, sums := 0, map[string]int{}
	for range 200 {
		id := fmt.Sprint(random.IntN(5))
		s := stations[at[id]]
		switch random.IntN(8) {
		case 0:
			s.leave(id)
			at[id] = 1 - at[id]
			s = stations[at[id]]
			if got := s.read(id, reading{}); got != sums[id] {
				t.Fatalf("%s has the sum %d after a move, want %d", id, got, sums[id])
			}
			if s.recovery(id).Prepared {
				prepared++
			}
		case 1:
			s.read(id, reading{Also: "snapshot"})
		case 2:
			s.read(id, reading{Also: "delete"})
		default:
			by := random.IntN(10)
			sums[id] += by
			s.read(id, reading{By: by})
		}
		if random.IntN(3) == 0 {
			synctest.Wait()
			other := stations[1-at[id]]
			if m, ok := other.peek(id); ok && m.Sum != sums[id] {
				t.Fatalf("the standby of %s holds the sum %d, want %d", id, m.Sum, sums[id])
			}
		}
	}
	synctest.Wait()
	if prepared == 0 {
		t.Error("no recovery began with the state of a standby")
	}
}

// TestStandbyNeedsQueries checks that a journal without queries is refused.
func TestStandbyNeedsQueries(t *testing.T) {
	t.Parallel()
	s := &station{tb: t}
	if err := s.open(store.Of(noQueries{inmem.NewJournal()}, nil), 1); !errors.Is(err, eventsourcing.ErrInvalid) {
		t.Errorf("a standby on a journal without queries: %v, want ErrInvalid", err)
	}
	s.close()
}

// TestStandbyNeedsAllEvents checks that limits of the recovery are refused, also those of single entities:
// an entity that starts with the state of a standby would ignore them, and would not be read-only.
func TestStandbyNeedsAllEvents(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]eventsourcing.HostOptions{
		"Recovery":   {Recovery: eventsourcing.Recovery{UpTo: 5}},
		"RecoveryOf": {RecoveryOf: func(string) eventsourcing.Recovery { return eventsourcing.Recovery{} }},
	} {
		s := &station{tb: t, options: options}
		if err := s.open(store.Of(inmem.NewJournal(), nil), 1); !errors.Is(err, eventsourcing.ErrInvalid) {
			t.Errorf("a standby with HostOptions.%s: %v, want ErrInvalid", name, err)
		}
		s.close()
	}
}

// noQueries hides the optional interfaces of a journal.
type noQueries struct{ journal.Journal }
