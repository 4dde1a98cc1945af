// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/replication"
)

// writeRegister lets the writer of a register write the next number, most often to a majority.
func (d *data) writeRegister(r *replicator) {
	k := d.use(register, false)
	if k.writer == nil {
		k.writer = r
	}
	r = k.writer
	w := &write{datum: k, by: r, level: replication.Level{Kind: replication.Majority}}
	if d.rand.IntN(6) == 0 {
		w.level = d.level()
	}
	update(d, r, w, func(g crdt.LWWRegister[int64]) (crdt.LWWRegister[int64], error) {
		k.last++
		w.n = k.last
		return g.Set(r.self, w.n)
	})
}

// readRegister reads one anywhere, most often so that later reads see as much.
func (d *data) readRegister(r *replicator) {
	q := &request{key: d.use(register, false), level: replication.Level{Kind: replication.Majority}, repair: d.rand.IntN(4) > 0}
	if d.rand.IntN(6) == 0 {
		q.level = d.level()
	}
	d.ask(r, q, func(in replication.Request) replication.Input {
		return replication.Get{Request: in, RepairPeers: q.repair}
	})
}

// registerSees: a register that one process writes is linearizable where reads are repaired. Its numbers
// rise, so that means: a read sees what was acknowledged before, and what reads have seen that were over
// before; and nothing that was not written yet.
func registerSees(q *request, a *replication.Reply) {
	k, d := q.key, q.by.d
	if a.Outcome == replication.Deleted {
		return // registers are not deleted; readSees has said so
	}
	n := int64(0)
	if a.Outcome == replication.Done {
		n = number(a.Value)
	}
	if n > k.last {
		q.by.violate("registers-are-linearizable", "%q holds %d, and %d was written last", k.key, n, k.last)
	}
	for _, e := range k.events[:q.known] {
		if e.seq > q.seq || !q.promised(e.view, e.held) {
			continue
		}
		d.hit("checked", "reads of registers")
		q.promise(e.view)
		if n < e.n {
			q.by.violate("registers-are-linearizable", "%v of %q sees %d, and %d was there before, at %d replicas", q.level, k.key, n, e.n, e.held)
		}
	}
	if k.writer == q.by {
		for i, w := range k.writes {
			if i < q.begun && w.done && w.n > n {
				q.by.violate("reads-own-writes", "it has written %d to %q, and reads %d", w.n, k.key, n)
			}
		}
	}
	if !q.repair || q.view == nil || n == 0 {
		return
	}
	have := 0
	for _, m := range q.view.nodes {
		if v, _, found := d.byNode[m].value(k.key); found && number(v) >= n {
			have++
		}
	}
	d.hit("checked", "repaired reads")
	if have < a.Answered {
		q.by.violate("repaired-is-there", "%q: %d replicas are said to have %d, and %d do", k.key, a.Answered, n, have)
	}
	d.acks++
	k.events = append(k.events, settled{q.view, a.Answered, n, d.acks})
}
