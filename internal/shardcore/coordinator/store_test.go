// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// store has the state of coordinators, as a journal or as a register. A journal rejects an append
// with another expected number. A register also has the highest term. Each stored change must
// follow the previous one.
type store struct {
	w        *world
	register bool
	events   []event // all stored events
	fold     *coordinator.Fold
	state    coordinator.State
	known    map[shard]bool // remembered shards
}

func (s *store) rev() uint64 { return uint64(len(s.events)) }

// save stores a change if it is based on the stored state.
func (s *store) save(c coordinator.Change) (stored, fenced bool) {
	if s.register {
		switch {
		case c.Term < s.state.Term():
			return false, true
		case c.Term == s.state.Term() && c.Rev+uint64(len(c.Events)) == s.rev() && c.After.Equal(s.state):
			return true, false // an identical change is accepted again
		}
	}
	if c.Rev != s.rev() {
		return false, false
	}
	if c.Term < s.state.Term() {
		s.w.t.Fatalf("seed %d, %v: a change of term %d was stored after term %d", s.w.seed, s.w.now, c.Term, s.state.Term())
	}
	for _, e := range c.Events {
		b := coordinator.AppendEvent(nil, e)
		decoded, err := coordinator.DecodeEvent(b)
		if err != nil {
			s.w.t.Fatal(err)
		}
		if err := s.fold.Apply(decoded); err != nil {
			s.w.t.Fatalf("seed %d, %v: %v", s.w.seed, s.w.now, err)
		}
		s.events = append(s.events, decoded)
		s.w.hit[e.Kind.String()]++
	}
	s.state = s.fold.State()
	if !s.state.Equal(c.After) {
		s.w.t.Fatalf("seed %d, %v: the stored state differs from that of the coordinator", s.w.seed, s.w.now)
	}
	return true, false
}

// do performs a save with a random fault.
func (s *store) do(b *simCoordinator, c coordinator.Save) {
	w := s.w
	answer := func(in coordinator.Input) { w.after(w.delay(), func() { b.step(in) }) }
	failed := coordinator.SaveFailed{ID: c.ID}
	switch fault := w.rnd.IntN(30); {
	case !w.faults || fault > 4:
		w.after(w.delay(), func() {
			stored, fenced := s.save(c.Change)
			if stored {
				answer(coordinator.Saved{ID: c.ID})
				return
			}
			w.hit["refused"]++
			answer(coordinator.SaveFailed{ID: c.ID, Fenced: fenced})
		})
	case fault == 0:
		w.hit["not stored"]++
		answer(failed)
	case fault == 1:
		w.hit["stored, answer lost"]++
		s.save(c.Change)
		answer(failed)
	case fault == 2:
		w.hit["lands late"]++
		answer(failed)
		w.after(w.delay()*20, func() { s.save(c.Change) })
	case fault == 3:
		w.hit["hangs, not stored"]++
	default:
		w.hit["hangs, lands late"]++
		w.after(w.delay()*50, func() { s.save(c.Change) })
	}
}

func (s *store) load(b *simCoordinator, id uint64) {
	w := s.w
	if w.faults && w.rnd.IntN(10) == 0 {
		w.hit["load failed"]++
		w.after(w.delay(), func() { b.step(coordinator.LoadFailed{ID: id}) })
		return
	}
	state, err := coordinator.DecodeState(coordinator.AppendState(nil, s.state))
	if err != nil {
		w.t.Fatal(err)
	}
	in := coordinator.Loaded{ID: id, State: state, Rev: s.rev()}
	for n := range shard(shards) {
		if s.known[n] {
			in.Remembered = append(in.Remembered, n)
		}
	}
	w.after(w.delay(), func() { b.step(in) })
}

func (s *store) add(b *simCoordinator, a coordinator.AddShards) {
	w := s.w
	fault := w.faults && w.rnd.IntN(8) == 0
	w.after(w.delay(), func() {
		if !fault || w.rnd.IntN(2) == 0 {
			for _, n := range a.Shards {
				s.known[n] = true
			}
		}
		b.step(coordinator.ShardsAdded{ID: a.ID, Failed: fault})
	})
}

const second = time.Second

func TestTermIsStoredFirst(t *testing.T) {
	t.Parallel()
	d := drive(t, coordinator.Config{}, append(registered("a", "b", "c"), started(4), allocated("b", 1, 2), allocated("c", 3), proxy(coordinator.ProxyRegistered, "p"))...)
	d.hold = true
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 1})
	if d.load != 0 {
		t.Error("Load was requested before the first members")
	}
	d.members("a b p")
	if d.m.Phase() != coordinator.Loading || d.load == 0 {
		t.Errorf("after the first members: phase %v, want loading", d.m.Phase())
	}
	d.loaded()
	d.stored("new term", "started a 5")
	d.receive("b", coordinator.Message{Kind: coordinator.Register, Instance: 1})
	d.get("b", 1)
	d.pass(3 * second)
	if d.m.Phase() != coordinator.Claiming {
		t.Errorf("while the term is being stored: phase %v, want claiming", d.m.Phase())
	}
	d.want("before the term is stored", "")
	d.saved()
	d.want("after the term is stored", "a register again, b register again, p register again")
	d.stored("terminations of removed regions", "region terminated c")
	d.saved()
	d.receive("a", coordinator.Message{Kind: coordinator.Register})
	d.receive("b", coordinator.Message{Kind: coordinator.Register})
	d.get("b", 1, 3, 9)
	d.want("while settling", "a register ack, b register ack, b homes b[1 2]")
	d.pass(500 * time.Millisecond)
	// The pending request gets its reply, and the shards of c get another home.
	d.want("active", "b host[1 2], b homes b[1]")
	d.saved()
	d.want("after the new homes are stored", "a host[3 9], b homes a[3 9]")
}

func TestEmptyStateIsActiveAtOnce(t *testing.T) {
	t.Parallel()
	d := drive(t, coordinator.Config{})
	d.members("a")
	d.loaded()
	if d.m.Phase() != coordinator.Active || d.m.Term() != 1 {
		t.Errorf("phase %v in term %d, want active in term 1", d.m.Phase(), d.m.Term())
	}
}

func TestLoadIsRetried(t *testing.T) {
	t.Parallel()
	d := drive(t, coordinator.Config{})
	d.members("a")
	for range 20 {
		load := d.load
		d.step(coordinator.LoadFailed{ID: load})
		d.step(coordinator.Loaded{ID: load}) // late
		d.pass(second)
		if d.load == load || d.m.Phase() != coordinator.Loading {
			t.Fatalf("after a failed load: phase %v, load %d, want loading with another ID", d.m.Phase(), d.load)
		}
	}
	d.loaded()
	if d.m.Phase() != coordinator.Active {
		t.Errorf("after the load: phase %v, want active", d.m.Phase())
	}
}

func TestLostClaimIsRepeated(t *testing.T) {
	t.Parallel()
	d := drive(t, coordinator.Config{}, started(4))
	d.hold = true
	d.members("a")
	d.loaded()
	d.state, d.rev = apply(t, append(registered("b"), started(5))...), 2 // another coordinator was first
	d.fail()
	d.loaded()
	d.stored("claim of a higher term", "started a 5; started a 6")
	// The claim is stored, but its acknowledgement is lost.
	d.land()
	d.step(coordinator.SaveFailed{ID: 99})
	d.pass(5 * second)
	d.loaded()
	if d.m.Phase() != coordinator.Settling || d.m.Term() != 6 {
		t.Errorf("phase %v in term %d, want settling in term 6", d.m.Phase(), d.m.Term())
	}
}

func TestClaimIsRepeatedWithDelay(t *testing.T) {
	t.Parallel()
	d := drive(t, coordinator.Config{}, started(4))
	d.hold = true
	d.members("a")
	d.loaded()
	for range 5 {
		before := len(d.changes)
		d.fail()
		d.loaded()
		if before > 1 && len(d.changes) > before {
			t.Fatal("the claim was saved twice without a pause")
		}
		d.pass(second)
	}
	d.stored("repeated claims", "started a 5; started a 5; started a 5; started a 5; started a 5; started a 5")
	d.step(coordinator.SaveFailed{ID: d.save.ID, Fenced: true})
	if d.stopped != coordinator.SupersededByTerm {
		t.Errorf("after a fenced claim: stopped = %v, want superseded", d.stopped)
	}
}

func TestHigherTermEndsCoordinator(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		message coordinator.Message
		ends    bool
	}{
		"fenced":                     {coordinator.Message{Kind: coordinator.Fenced, Term: 2}, true},
		"another message":            {coordinator.Message{Kind: coordinator.GetHomes, Term: 2}, true},
		"the same term":              {coordinator.Message{Kind: coordinator.Fenced, Term: 1}, false},
		"another type":               {coordinator.Message{Kind: coordinator.Fenced, Type: "order", Term: 2}, false},
		"a lower term":               {coordinator.Message{Kind: coordinator.Fenced}, false},
		"a message of a coordinator": {coordinator.Message{Kind: coordinator.Host, Term: 1}, false},
		"unknown kind":               {coordinator.Message{Kind: 200}, false},
	} {
		d := active(t, coordinator.Config{}, "a b", registered("b")...)
		d.receive("b", test.message)
		d.state, d.rev = apply(t, append(registered("b"), started(2))...), 2
		d.loaded() // if the coordinator has requested it
		if (d.stopped == coordinator.SupersededByTerm) != test.ends || (d.m.Phase() == coordinator.Ended) != test.ends {
			t.Errorf("%s: phase %v, stopped = %v, want an end only for a higher term", name, d.m.Phase(), d.stopped)
		}
		if !test.ends {
			continue
		}
		d.members("a")
		d.get("b", 1)
		d.pass(100 * second)
		d.want(name+", after the end", "")
		if d.m.Next() != coordinator.Never {
			t.Errorf("%s: Next() = %v after the end, want Never", name, d.m.Next())
		}
	}
}

// Messages with a lower term are answered with RegisterAgain. Messages of nodes that are not
// members are ignored.
func TestOldMessagesAreIgnored(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", append(registered("b"), started(4), allocated("b", 1))...)
	d.step(coordinator.RebalanceNow{})
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID, Shards: []shard{1}})
	round := d.round("b")
	d.sent()
	d.receive("b", coordinator.Message{Kind: coordinator.BeginHandOffAck, Term: 4, Round: round})
	d.want("acknowledgement with the previous term", "b register again")
	d.receive("x", coordinator.Message{Kind: coordinator.GetHomes, Shards: []shard{1}})
	d.want("message of a node that is not a member", "")
}

func TestTerminate(t *testing.T) {
	t.Parallel()
	d := drive(t, coordinator.Config{})
	d.members("a")
	if d.step(coordinator.Terminate{}); d.stopped != coordinator.Terminated {
		t.Error("Terminate while loading did not end the coordinator")
	}
	d = active(t, coordinator.Config{}, "a b", registered("b")...)
	if d.step(coordinator.Terminate{}); d.stopped != coordinator.Terminated {
		t.Error("Terminate without a region on this node did not end the coordinator")
	}
	d = active(t, coordinator.Config{}, "a b", registered("a", "b")...)
	if d.step(coordinator.Terminate{Now: true}); d.stopped != coordinator.Terminated {
		t.Error("Terminate with Now did not end the coordinator")
	}
	d = active(t, coordinator.Config{}, "a b", append(registered("a", "b"), allocated("a", 1))...)
	d.step(coordinator.Terminate{})
	if d.stopped != 0 || !d.shutDown {
		t.Error("Terminate did not request the shutdown of the region first")
	}
	d.receive("a", coordinator.Message{Kind: coordinator.GracefulShutdown, Instance: 1})
	d.move(1, "a", "b")
	d.want("hand-off of the shard", "b host[1]")
	d.receive("a", coordinator.Message{Kind: coordinator.RegionStopped, Instance: 1})
	if d.stopped != coordinator.Terminated {
		t.Error("the coordinator did not end after its region had stopped")
	}
}

// move answers the messages of a hand-off.
func (d *driver) move(s shard, owner string, regions ...string) {
	d.t.Helper()
	for _, r := range append(regions, owner) {
		d.receive(r, coordinator.Message{Kind: coordinator.BeginHandOffAck, Round: d.round(r)})
	}
	round := d.round(owner)
	d.sent()
	d.receive(owner, coordinator.Message{Kind: coordinator.Stopped, Round: round, Shards: []shard{s}})
}

func TestRepairsAreNoted(t *testing.T) {
	t.Parallel()
	d := drive(t, coordinator.Config{})
	d.members("a")
	d.step(coordinator.Loaded{ID: d.load, Repairs: []string{"shard 1 has no home"}, Repaired: 7})
	if d.noted(coordinator.Repaired) != 1 {
		t.Errorf("the notes are %+v, want one about repairs", d.notes)
	}
}

func TestConfigsAreChecked(t *testing.T) {
	t.Parallel()
	good := coordinator.Config{Self: node("a"), Type: "account"}
	for field, change := range map[string]func(c *coordinator.Config){
		"Self":              func(c *coordinator.Config) { c.Self = identity.Node{Name: "a"} },
		"Type has 0":        func(c *coordinator.Config) { c.Type = "" },
		"Type has 256":      func(c *coordinator.Config) { c.Type = strings.Repeat("x", 256) },
		"Shards":            func(c *coordinator.Config) { c.Shards = coordinator.MaxShards + 1 },
		"Shards is -1":      func(c *coordinator.Config) { c.Shards = -1 },
		"MinRegions":        func(c *coordinator.Config) { c.MinRegions = -1 },
		"RetryInterval":     func(c *coordinator.Config) { c.RetryInterval = -1 },
		"HandOffTimeout":    func(c *coordinator.Config) { c.HandOffTimeout = -1 },
		"StartTimeout":      func(c *coordinator.Config) { c.StartTimeout = -1 },
		"RebalanceInterval": func(c *coordinator.Config) { c.RebalanceInterval = -1 },
		"SaveTimeout":       func(c *coordinator.Config) { c.SaveTimeout = -1 },
		"StoreRetry":        func(c *coordinator.Config) { c.StoreRetry = -1 },
		"Settle":            func(c *coordinator.Config) { c.Settle = -1 },
	} {
		c := good
		change(&c)
		if _, err := coordinator.New(c); !errors.Is(err, coordinator.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%+v: %v, want an error with %q", c, err, field)
		}
	}
	if _, err := coordinator.New(good); err != nil {
		t.Errorf("a valid configuration: got error %v, want none", err)
	}
}
