// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"math/rand/v2"
	"testing"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding/allocation"
)

// Requests that arrive during a save are decided together, in order, and no decision is sent before
// it is stored. Known homes are sent at once.
func TestOneSaveAtATime(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b c d", append(registered("a", "b"), allocated("b", 1))...)
	d.hold = true
	d.get("a", 2)
	d.stored("first decision", "homes allocated a[2]")
	d.get("b", 3)
	d.receive("c", coordinator.Message{Kind: coordinator.Register, Instance: 1})
	d.get("a", 4, 5)
	d.receive("d", coordinator.Message{Kind: coordinator.RegisterProxy})
	d.get("a", 3, 1)
	d.want("during the first save", "a homes b[1]")
	d.stored("decisions during the first save", "")
	d.saved()
	d.want("after the first save", "a host[2]")
	d.stored("second change", "homes allocated a[3], region registered c, proxy registered d")
	d.saved()
	d.want("after the second save", "a host[3], b homes a[3], c register ack, c homes a[2 3] b[1], d register ack, d homes a[2 3] b[1]")
	// The view of the strategy includes the change that was being stored.
	d.stored("third change", "homes allocated b[5], homes allocated c[4]")
	d.saved()
	d.want("after the third save", "b host[5], a homes b[5], c host[4], a homes c[4]")
}

// A failed save may have been stored: the coordinator loads and compares.
func TestFailedSave(t *testing.T) {
	t.Parallel()
	begin := func() *driver {
		d := active(t, coordinator.Config{}, "a b", registered("a", "b")...)
		d.hold = true
		d.get("b", 1)
		d.stored("allocation", "homes allocated a[1]")
		return d
	}
	d := begin() // the change was stored although Save failed
	first := *d.save
	d.land()
	d.step(coordinator.SaveFailed{ID: first.ID})
	d.want("before the load", "")
	d.loaded()
	d.want("after the load", "a host[1], b homes a[1]")

	d = begin() // the change was not stored: the same change is saved again
	first = *d.save
	d.fail()
	d.get("b", 2)
	d.loaded()
	if d.save.ID != first.ID || d.save.Rev != first.Rev {
		t.Errorf("the second save is %+v, want %+v", d.save, first)
	}
	d.stored("first retry", "homes allocated a[1]")
	d.fail()
	d.loaded()
	d.stored("no immediate second retry", "")
	d.pass(second)
	d.stored("second retry after a pause", "homes allocated a[1]")
	d.saved()
	d.want("after the retry", "a host[1], b homes a[1]")

	d = begin() // a fence took the number
	d.fail()
	d.rev++
	d.loaded()
	if d.save.Rev != d.rev {
		t.Errorf("the change is saved after event %d, want %d", d.save.Rev, d.rev)
	}
	d.saved()
	d.want("after the retry", "a host[1], b homes a[1]")

	d = begin() // the save times out, and the change is stored later
	d.pass(5 * second)
	d.sent()
	d.get("a", 1)
	d.want("before the change is stored", "")
	d.land()
	d.loaded()
	d.want("after the load", "a host[1], b homes a[1]")

	d = begin() // the acknowledgement arrives during the load
	d.pass(5 * second)
	load := d.load
	d.sent()
	d.saved()
	d.want("after the acknowledgement", "a host[1], b homes a[1]")
	d.step(coordinator.Loaded{ID: load})
	if d.stopped != 0 || d.m.Phase() != coordinator.Active {
		t.Errorf("after the reply to a superseded load: stopped = %v, want a running coordinator", d.stopped)
	}

	d = begin() // another coordinator has stored a higher term
	d.fail()
	d.state = apply(t, append(registered("a", "b"), started(2))...)
	d.loaded()
	if d.stopped != coordinator.SupersededByTerm {
		t.Errorf("after a load with a higher term: stopped = %v, want superseded", d.stopped)
	}
	d = begin() // another coordinator has stored the same term
	d.fail()
	d.state = apply(t, append(registered("a", "b"), started(1))...)
	d.loaded()
	if d.stopped != coordinator.SupersededByTerm {
		t.Errorf("after a load with the term of another node: stopped = %v, want superseded", d.stopped)
	}
	d = begin() // the stored state contradicts the change
	d.fail()
	d.rev += 3
	d.state = apply(t, append(registered("a"), event{Kind: coordinator.Started, Term: 1, Node: node("a")})...)
	d.loaded()
	if d.stopped != coordinator.Diverged {
		t.Errorf("after a load with a contradicting state: stopped = %v, want diverged", d.stopped)
	}
	d = begin() // the store has lost a change: the coordinator saves it again
	d.fail()
	d.state, d.rev = apply(t, registered("a")...), 1
	d.loaded()
	if d.stopped != 0 || d.save.Rev != 3 {
		t.Errorf("after a load that lacks an acknowledged change: stopped = %v, want a running coordinator that saves after event 3", d.stopped)
	}
	d = begin()
	d.step(coordinator.SaveFailed{ID: d.save.ID, Fenced: true})
	if d.stopped != coordinator.SupersededByTerm {
		t.Errorf("after a fenced save: stopped = %v, want superseded", d.stopped)
	}
}

// Ten thousand requests for shards take few saves.
func TestManyShardsTakeFewSaves(t *testing.T) {
	t.Parallel()
	const n = 10_000
	d := active(t, coordinator.Config{Shards: n}, "a b c", registered("a", "b", "c")...)
	d.hold, d.mute = true, true
	rnd := rand.New(rand.NewPCG(1, 1))
	for i, s := range rnd.Perm(n) {
		d.get([]string{"a", "b", "c"}[i%3], shard(s))
		if i%300 == 0 { // a save takes as long as 300 requests
			d.advance()
		}
	}
	for d.state.Shards() < n {
		if !d.advance() {
			t.Fatalf("no call is pending, and only %d shards have a home", d.state.Shards())
		}
	}
	if len(d.changes) > 200 {
		t.Errorf("%d saves, want at most 200", len(d.changes))
	}
	for _, r := range d.state.Regions() {
		if len(r.Shards) < n/3 {
			t.Errorf("%v hosts %d shards, want at least a third", r.Node, len(r.Shards))
		}
	}
	size := 0
	for _, c := range d.changes {
		for _, e := range c.Events {
			size += len(coordinator.AppendEvent(nil, e))
		}
	}
	if size > 8*n+len(d.changes)*3*40 {
		t.Errorf("the events take %d bytes, want at most %d", size, 8*n+len(d.changes)*3*40)
	}
}

// advance answers all pending calls.
func (d *driver) advance() bool {
	moved := false
	if d.ask != nil {
		moved = true
		d.place(allocation.All(d.ask.View, d.ask.Requests, allocation.LeastShards{}.Allocate)...)
	}
	if d.save != nil {
		moved = true
		d.saved()
	}
	return moved
}
