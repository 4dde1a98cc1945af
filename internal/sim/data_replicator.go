// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/sim/env"
)

const (
	// kindData is the message kind of replicators.
	kindData link.Kind = 100
	// maxPayload is the maximum payload of a frame.
	maxPayload = 1<<20 - 1<<10
)

// replicator is the replicator of a host: package ddata without goroutines.
type replicator struct {
	d    *data
	h    *host
	m    *replication.Machine
	self *crdt.Self

	disk    *disk
	backlog replication.Backlog
	writing *replication.Writing
	loaded  bool
	ended   bool
	wrote   bool
	alarm   env.Alarm     // calls Tick
	quick   time.Duration // the time at which the last delayed message was processed

	requests map[uint64]*request
	asked    []replication.Input           // requests that the node has not received yet
	gathers  bool                          // requests are collected instead of delivered
	held     map[string]replication.Change // the values for reads outside of the machine
	ran      []*write                      // changes of this step
	counts   map[string]uint64             // observed counts by key
	feeds    []*feed
}

func (d *data) replicate(h *host) *replicator {
	self := must(crdt.NewSelf(h.p.Node()))
	r := &replicator{
		d: d, h: h, self: self, disk: d.disk(h.p.Node().Name), requests: map[uint64]*request{},
		held: map[string]replication.Change{}, counts: map[string]uint64{},
	}
	cfg := d.plan.Config
	cfg.Name, cfg.Self, cfg.Started, cfg.MaxMessage = "sim", self, h.p.Wall(), cmp.Or(cfg.MaxMessage, maxPayload-replication.Overhead)
	if d.plan.Forgotten { // clocks must be correct by that time
		cfg.Started = cfg.Started.Add(-h.p.Place().Wall)
	}
	cfg.Rand = rand.New(rand.NewPCG(d.rand.Uint64(), h.p.Node().UID)) //nolint:gosec // it has to be repeatable
	r.m = must(replication.New(cfg))
	d.all = append(d.all, r)
	d.byNode[h.p.Node()] = r
	if d.plan.Durable {
		r.after(0, r.open)
	} else {
		r.loaded = true
	}
	r.subscribe()
	r.wakeUp()
	if !d.plan.Forgotten {
		r.setClock()
	}
	return r
}

// serves reports whether the replicator answers requests and is not about to end.
func (r *replicator) serves() bool { return !r.ended && r.loaded && r.h.alive() }

// after calls f on the node's clock, unless the replicator has ended.
func (r *replicator) after(t time.Duration, f func()) {
	r.h.p.After(t, func() {
		if !r.ended {
			f()
		}
	})
}

func (r *replicator) value(key string) (v crdt.Value, deleted, found bool) {
	return r.m.Value(key)
}

func (r *replicator) setClock() {
	r.after(r.d.between(5*time.Second, 15*time.Second), func() {
		r.input(replication.SetClock{Time: r.h.p.Wall().Add(r.h.p.Now())})
		r.setClock()
	})
}

func (r *replicator) members(events []membership.Event) {
	if r.ended || !slices.ContainsFunc(events, changesMembers) || !r.h.m.Member() {
		return
	}
	s := r.h.m.Snapshot()
	var in replication.Members
	for _, m := range s.Members {
		in.All = append(in.All, *m)
	}
	for _, m := range s.Unreachable {
		in.Unreachable = append(in.Unreachable, m.Node)
	}
	r.step(replication.Batch{Members: &in})
}

func changesMembers(e membership.Event) bool {
	switch e.Kind {
	case membership.ShuttingDown, membership.LeaderChanged, membership.RoleLeaderChanged, membership.TombstonesChanged, membership.SeenChanged,
		membership.ReachabilityChanged:
		return false
	default:
		return true
	}
}

// received delivers a message, delayed if the node is overloaded.
func (r *replicator) received(m env.Message) {
	switch lag, now := r.h.c.overload[r.h.p.Place().Name], r.h.p.Now(); {
	case m.To != r.h.p.Node():
		r.d.hit("data", "stray message")
	case r.h.cut[m.From] || r.ended:
	case lag > 0 || r.quick > now:
		r.quick = max(r.quick, now+time.Duration(r.d.rand.Int64N(int64(lag/4+time.Millisecond))))
		r.after(r.quick-now, func() { r.receive(m) })
	default:
		r.receive(m)
	}
}

func (r *replicator) receive(m env.Message) {
	r.step(replication.Batch{Packets: []replication.Packet{{From: m.From, Payload: m.Data}}})
}

func (r *replicator) step(b replication.Batch) {
	if !r.ended {
		r.carry(r.m.Step(r.h.p.Now(), b))
	}
}

func (r *replicator) input(in ...replication.Input) { r.step(replication.Batch{Inputs: in}) }

func (r *replicator) carry(e replication.Effects) {
	r.notes(e.Notes)
	r.backlog.Add(e.Store)
	for _, s := range e.Send {
		lane := link.Data
		if s.Bulk {
			lane = link.Bulk
		}
		if !r.h.cut[s.To] {
			r.h.p.Send(s.To, lane, kindData, s.Payload)
		}
	}
	for _, v := range e.Values {
		r.changed(v)
	}
	readsItsWrites(r)
	for i := range e.Replies {
		r.replied(&e.Replies[i])
	}
	for i := range e.Events {
		r.event(&e.Events[i])
	}
	if e.Stopped && !r.ended {
		r.end()
	}
	r.m.Reuse(e) // like the shell does, so that retained effects are detected
	r.flush()
	r.wakeUp()
}

func (r *replicator) wakeUp() {
	r.alarm.Set(r.m.Next, r.h.p.Now, r.after, func() { r.carry(r.m.Tick(r.h.p.Now())) })
}

// stop ends the replicator with its node.
func (r *replicator) stop() {
	r.input(replication.Stop{})
	for id := range r.requests {
		r.h.violate("requests-are-answered", "the replicator has stopped, request %d is open", id)
	}
}

// end records the end of the replicator and the data that only it held.
func (r *replicator) end() {
	if r.ended {
		return
	}
	r.ended = true
	r.crash()
	r.d.lost(r)
}

func (r *replicator) notes(notes []replication.Note) {
	for _, n := range notes {
		r.d.hit("data note", n.Kind.String())
		switch n.Kind {
		case replication.NoteMalformed, replication.NoteRefused, replication.NoteTooLarge, replication.NoteFull, replication.NoteLoad:
			r.h.violate("data-is-sound", "%v of %v, %q: %v", n.Kind, n.Node, n.Key, n.Err)
		case replication.NotePruned:
			r.d.w.Logf("%v: %v is pruned from %d keys", r.h.p.Node(), n.Node, n.N)
			prunedForAll(r, n.Node)
		case replication.NoteStore, replication.NotePulling, replication.NotePulled, replication.NotePruning, replication.NoteRemoved:
		}
	}
}

// knows reports whether a node is a holder of the data in the view of this one.
func (r *replicator) knows(n identity.Node) bool {
	m := r.h.m.Gossip().Member(n)
	return m != nil && m.Status != identity.Joining && m.Status != identity.Down
}

// errDisk is the error of a failing disk.
var errDisk = errors.New("the disk has failed")

// disk is the disk of a computer. Written data survives the processes.
type disk struct {
	d       *data
	name    string
	records map[string][]byte
	owner   *replicator // the replicator that has opened it
	failing bool
	slow    bool
	well    time.Duration // time of the last repair
	failed  bool          // failed at least once; writes of other nodes are not retried

	decoded map[string]decoded
}

// decoded is a record in its last decoded form.
type decoded struct {
	data    []byte
	value   crdt.Value
	deleted bool
}

func (d *data) disk(name string) *disk {
	k := d.disks[name]
	if k == nil {
		k = &disk{d: d, name: name, records: map[string][]byte{}, decoded: map[string]decoded{}}
		d.disks[name] = k
	}
	return k
}

func (k *disk) value(key string) (v crdt.Value, deleted, found bool) {
	b, found := k.records[key]
	if !found {
		return crdt.Value{}, false, false
	}
	if c, known := k.decoded[key]; known && &c.data[0] == &b[0] {
		return c.value, c.deleted, true
	}
	rec, err := replication.DecodeRecord(b)
	if err == nil && !rec.Deleted {
		v, err = (*crdt.Types)(nil).Decode(rec.Value)
	}
	if err != nil {
		k.d.c.violate("records-can-be-read", k.owner.h.p.Node(), "%q: %v", key, err)
		return crdt.Value{}, false, false
	}
	k.decoded[key] = decoded{b, v, rec.Deleted}
	return v, rec.Deleted, true
}

// open opens the disk once its former owner has ended, and loads its records.
func (r *replicator) open() {
	if k := r.disk; k.owner != nil && k.owner != r && !k.owner.h.p.Dead() {
		r.d.hit("disk", "in use")
		r.after(time.Second, r.open)
		return
	}
	r.disk.owner = r
	r.after(r.d.between(time.Millisecond, 1500*time.Millisecond), func() {
		var in []replication.Input
		for _, key := range slices.Sorted(maps.Keys(r.disk.records)) {
			in = append(in, replication.Load{Key: key, Data: r.disk.records[key]})
		}
		r.d.hit("disk", "loaded")
		if len(in) > 0 {
			r.d.hit("disk", "loaded records")
		}
		r.loaded = true
		r.input(append(in, replication.Loaded{})...)
	})
}

// flush writes pending records unless a write is running.
func (r *replicator) flush() {
	if r.writing != nil || r.backlog.Len() == 0 {
		return
	}
	w := r.backlog.Take(100, 1<<20)
	r.writing = &w
	took := r.d.between(100*time.Microsecond, 10*time.Millisecond)
	if r.disk.slow {
		took = r.d.between(10*time.Millisecond, 4*time.Second)
	}
	r.after(took, func() {
		r.writing = nil
		in := replication.Stored{Nrs: w.Nrs}
		if r.disk.failing {
			r.d.hit("disk", "failed")
			in.Err = errDisk
			if r.d.rand.IntN(2) == 0 { // random outcome
				r.disk.write(w)
			}
			r.disk.failed = true
		} else {
			r.d.hit("disk", "written")
			r.disk.write(w)
		}
		r.input(in)
		r.flush()
	})
}

func (k *disk) write(w replication.Writing) {
	for _, rec := range w.Records {
		if rec.Data == nil {
			delete(k.records, rec.Key)
		} else {
			k.records[rec.Key] = rec.Data
		}
	}
}

// crash ends a running write: its records are on disk or not.
func (r *replicator) crash() {
	if r.writing != nil && r.d.rand.IntN(2) == 0 {
		r.d.hit("disk", "written at the end")
		r.disk.write(*r.writing)
	}
	r.writing = nil
}

// diskTrouble makes a disk fail or slow for a while.
func (d *data) diskTrouble() {
	living := d.living()
	if !d.plan.Durable || len(living) == 0 {
		return
	}
	k := living[d.rand.IntN(len(living))].disk
	if k.failing || k.slow {
		return
	}
	k.failing = d.rand.IntN(2) == 0
	k.slow = !k.failing || d.rand.IntN(3) == 0
	took := d.between(time.Second, 12*time.Second)
	d.w.Logf("the disk of %s fails %t, is slow %t, for %v", k.name, k.failing, k.slow, took)
	k.well = d.w.Now() + took
	d.w.After(took, func() { k.failing, k.slow = false, false })
}
