// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/node/replica"
	"github.com/refold-io/refold/internal/replication"
)

// errDisk is what a disk says that fails.
var errDisk = errors.New("the disk has failed")

// disk is that of a computer: what is written to it stays, whoever is killed.
type disk struct {
	d       *data
	name    string
	records map[string][]byte
	owner   *replicator // has it open
	failing bool
	slow    bool
	well    time.Duration // since when
	failed  bool          // once, at least: what others had sent is not tried again

	decoded map[string]decoded
}

// decoded is a record as it was looked at last.
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

// value returns what a record holds.
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

// open takes the disk, once whoever had it is gone, and loads what is there.
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
		r.step(replica.Batch{Inputs: append(in, replication.Loaded{})})
	})
}

// flush writes what waits to be written, if nothing is being written.
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
			if r.d.rand.IntN(2) == 0 { // who can say
				r.disk.write(w)
			}
			r.disk.failed = true
		} else {
			r.d.hit("disk", "written")
			r.disk.write(w)
		}
		r.step(replica.Batch{Inputs: []replication.Input{in}})
		r.flush()
	})
}

func (k *disk) write(w replica.Writing) {
	for _, rec := range w.Records {
		if rec.Data == nil {
			delete(k.records, rec.Key)
		} else {
			k.records[rec.Key] = rec.Data
		}
	}
}

// crash ends what is being written: it is on disk, or is not.
func (r *replicator) crash() {
	if r.writing != nil && r.d.rand.IntN(2) == 0 {
		r.d.hit("disk", "written at the end")
		r.disk.write(*r.writing)
	}
	r.writing = nil
}

// diskTrouble lets a disk fail, or be slow, for a while.
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
	d.w.Tell("the disk of %s fails %t, is slow %t, for %v", k.name, k.failing, k.slow, took)
	k.well = d.w.Now() + took
	d.w.After(took, func() { k.failing, k.slow = false, false })
}
