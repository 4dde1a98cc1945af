// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// request is what was asked for at a node and was not answered yet.
type request struct {
	id      uint64
	by      *replicator
	key     *datum
	write   *write // nil if it reads
	level   replication.Level
	repair  bool
	mistake bool
	view    *view // who counted when it was asked for, nil if nobody knows
	timeout time.Duration
	began   time.Duration
	late    bool   // records were being loaded when it was asked for
	begun   int    // the writes that were asked for before
	known   int    // the events that were before, of a register
	seq     uint64 // what was acknowledged before has a lower number
	then    func() // is called when it is done
}

func (q *request) String() string {
	what := "a read"
	switch {
	case q.mistake:
		what = "a mistake"
	case q.write != nil && q.write.do == deletes:
		what = "a deletion"
	case q.write != nil:
		what = "a change"
	}
	return fmt.Sprintf("%s of %q, %v", what, q.key.key, q.level)
}

// settled is that some replicas have at least a number in a register, because a write was acknowledged or
// a read was repaired.
type settled struct {
	view *view
	held int
	n    int64
	seq  uint64
}

// overdue fails if there is no answer in time, unless the node was paused.
func (q *request) overdue(in time.Duration) {
	const slack = time.Second
	q.by.after(in+slack, func() {
		r := q.by
		if r.requests[q.id] == nil {
			return
		}
		if left := max(q.began, r.h.p.Resumed()) + q.timeout + slack - r.d.w.Now(); left > 0 || q.view == nil && !r.loaded || q.key.durable && r.d.w.Now() < r.disk.well+10*time.Second {
			q.overdue(max(left, slack))
			return
		}
		if q.view == nil && !q.late { // it began when everything was loaded
			q.late = true
			q.overdue(q.timeout + slack)
			return
		}
		r.violate("requests-are-answered", "request %d for %q, %v, is not answered after %v", q.id, q.key.key, q.level, r.d.w.Now()-q.began)
	})
}

// replied looks at an answer.
func (r *replicator) replied(a *replication.Reply) {
	if r.h.site.replied(a) {
		return
	}
	q := r.requests[a.ID]
	if q == nil {
		r.violate("requests-are-answered", "request %d is answered twice, or was never asked for", a.ID)
		return
	}
	delete(r.requests, a.ID)
	if r.d.w.Traced() {
		r.d.w.Logf("%v: request %d is answered: %v, %d of %d, %d needed, %v", r.h.p.Node(), a.ID, a.Outcome, a.Answered, a.Total, a.Required, q.write)
	}
	switch {
	case q.mistake:
		r.d.hit("mistake", a.Outcome.String())
		if a.Outcome != replication.Failed && a.Outcome != replication.Deleted && a.Outcome != replication.Stopped || a.Outcome == replication.Failed && a.Err == nil {
			r.violate("mistakes-change-nothing", "a function that can't be is answered by %v", a.Outcome)
		}
		return
	case q.write == nil:
		r.d.hit("read", a.Outcome.String())
	case q.write.do == deletes:
		r.d.hit("delete", a.Outcome.String())
	default:
		r.d.hit("update", a.Outcome.String())
		r.wasWritten(q, a)
	}
	r.d.hit("level", q.level.Kind.String()+", "+a.Outcome.String())
	honest(q, a)
	switch {
	case a.Outcome != replication.Done && (a.Outcome != replication.Deleted && a.Outcome != replication.NotFound || q.write != nil):
	case q.write == nil:
		readSees(q, a)
	default:
		acknowledged(q, a)
	}
	if a.Outcome == replication.Done && q.then != nil {
		q.then()
	}
}

// wasWritten notes whether anything was changed.
func (r *replicator) wasWritten(q *request, a *replication.Reply) {
	w := q.write
	var large *replication.TooLargeError
	switch {
	case w.calls > 1:
		r.violate("changes-once", "the function of request %d is called %d times", q.id, w.calls)
	case a.Outcome == replication.Failed && errors.As(a.Err, &large):
		w.done = false
		r.d.hit("data", "too large")
	case a.Outcome == replication.Failed:
		r.violate("data-is-sound", "%q can't be changed: %v", q.key.key, a.Err)
	}
}

// honest: an answer says how many replicas there are, how many had to take part and how many
// did.
func honest(q *request, a *replication.Reply) {
	r := q.by
	switch a.Outcome {
	case replication.Done, replication.NotFound, replication.TimedOut, replication.TooFew:
	case replication.Deleted:
		if q.write != nil { // it was deleted before
			return
		}
	case replication.StoreFailed:
		r.d.hit("disk", "store failed")
		return
	case replication.Failed, replication.Busy, replication.Stopped:
		return
	}
	done := a.Outcome != replication.TimedOut && a.Outcome != replication.TooFew
	local := q.level.Kind == replication.Local
	switch {
	case done && a.Answered < a.Required, a.Outcome == replication.TimedOut && a.Answered >= a.Required && !q.durable():
		r.violate("quorums-are-honest", "request %d for %q: %v, answered %d of %d", q.id, q.key.key, a.Outcome, a.Answered, a.Required)
	case q.view == nil:
	case a.Total != len(q.view.nodes), a.Required != max(1, needed(q.level, a.Total)) && !local, (a.Outcome == replication.TooFew) != (a.Required > a.Total) && !q.durable():
		r.violate("quorums-are-honest", "request %d for %q: %v, %d of %d, but %v of %d is %d", q.id, q.key.key, a.Outcome, a.Required, a.Total, q.level.Kind,
			len(q.view.nodes), max(1, needed(q.level, len(q.view.nodes))))
	}
}

// durable reports whether a disk takes part.
func (q *request) durable() bool { return q.key.durable }

// acknowledged: as many replicas as have answered have what was written, on disk if it is durable.
func acknowledged(q *request, a *replication.Reply) {
	w, r := q.write, q.by
	r.d.acks++
	w.acked, w.held = r.d.acks, a.Answered
	if q.view == nil || !q.key.kind.tracked() || w.undone() {
		return
	}
	have, stored := 0, 0
	for _, n := range q.view.nodes {
		other := r.d.byNode[n]
		if w.at(other) {
			have++
		}
		if q.key.durable && w.onDisk(other.disk) {
			stored++
		}
	}
	r.d.hit("checked", "acknowledged writes")
	if have < a.Answered {
		r.violate("acknowledged-is-there", "%q %v, %v: %d replicas say that they have it, and %d do", q.key.key, w, q.level, a.Answered, have)
	}
	if q.key.durable {
		r.d.hit("checked", "acknowledged writes on disk")
		if stored < a.Answered {
			r.violate("acknowledged-is-stored", "%q %v, %v: %d replicas say that they have it, and %d disks do", q.key.key, w, q.level, a.Answered, stored)
		}
	}
	if q.key.kind == register {
		q.key.events = append(q.key.events, settled{q.view, a.Answered, w.n, r.d.acks})
	}
}

// promised reports whether a read has to see what so many of a view have: those that are still there and
// those that are read are more than there are.
func (q *request) promised(v *view, held int) bool {
	if v == nil || q.view == nil {
		return false
	}
	total, left := len(q.view.nodes), v.missingIn(q.view)
	return held-left+needed(q.level, total) > total
}

// promise counts what a read has to see, by what has happened to the members meanwhile.
func (q *request) promise(v *view) {
	joined, left := q.view.missingIn(v) > 0, v.missingIn(q.view) > 0
	row := "members fixed"
	switch {
	case joined && left:
		row = "members joined and left"
	case joined:
		row = "members joined"
	case left:
		row = "members left"
	}
	q.by.d.hit("promise", row)
}

// readSees: a read sees what its node has changed before, and all that was acknowledged before by so many
// that it meets one of them; and nothing that never was.
func readSees(q *request, a *replication.Reply) {
	deleted, found := a.Outcome == replication.Deleted, a.Outcome == replication.Done
	if deleted && q.key.kind != leased && q.key.kind.tracked() && !q.key.deleting() {
		q.by.violate("reads-see-what-was", "%q was never deleted", q.key.key)
	}
	if !q.key.kind.tracked() {
		return
	}
	if q.key.kind == register {
		registerSees(q, a)
		return
	}
	var least, most int64
	promises := false
	for i, w := range q.key.writes {
		if !w.done {
			continue
		}
		own := w.by == q.by && i < q.begun
		promised := w.acked > 0 && w.acked < q.seq && q.promised(w.view, w.held)
		must := own || promised
		if promised {
			promises = true
			q.promise(w.view)
		}
		if w.do == adds {
			least += bound(w, must, w.n < 0)
			most += bound(w, must, w.n > 0)
		}
		if must && !w.undone() && q.key.kind != counter && q.key.kind != balance && !w.contained(a.Value, deleted, found) {
			q.by.violate("reads-see-writes", "%v of %q does not see the %v, own %t, acknowledged by %d", q.level, q.key.key, w, own, w.held)
		}
		if must && w.do == deletes && !deleted {
			q.by.violate("reads-see-writes", "%v of %q does not see that it was deleted", q.level, q.key.key)
		}
	}
	if promises {
		q.by.d.hit("checked", "reads that have to see writes")
	}
	if (q.key.kind == counter || q.key.kind == balance) && !deleted {
		if sum := q.key.sum(a.Value); sum < least || sum > most && !q.key.twice {
			q.by.violate("reads-see-writes", "%v of %q counts %d, which should be %d to %d", q.level, q.key.key, sum, least, most)
		}
	}
}

// bound returns what a write adds to a bound: what is sure, and what may be and makes the bound wider.
func bound(w *write, must, wider bool) int64 {
	if must || wider {
		return w.n
	}
	return 0
}

// readsItsWrites: a node sees at once what it has changed.
func readsItsWrites(r *replicator) {
	ran := r.ran
	r.ran = nil
	for _, w := range ran {
		if !w.done || !r.loaded || !w.datum.kind.tracked() {
			continue
		}
		r.d.hit("checked", "own writes")
		if r.d.pruned[r.h.p.Node()] && r.d.plan.prunes(w.datum) { // nobody else takes it for a member any more
			w.lost = true
		}
		if !w.at(r) {
			r.violate("reads-own-writes", "it has just changed %q, %s, and does not see it", w.datum.key, w.id)
		}
	}
}

// changed: what a node has of a counter never becomes less, and never more than was
// counted.
func (r *replicator) changed(v replication.Change) {
	r.held[v.Key] = v
	k := r.d.byKey[v.Key]
	if k == nil || v.Value.IsZero() {
		return
	}
	switch k.kind {
	case counter:
		n, most := as[crdt.GCounter](v.Value).Value(), int64(0)
		for _, w := range k.writes {
			if w.done {
				most += w.n
			}
		}
		// Who comes from a disk after it was pruned loses what only that disk had.
		late := k.durable && r.d.plan.DurablePruned
		if n < r.counts[k.key] && !late || int64(n) > most && !k.twice { //nolint:gosec // small
			r.violate("counts-once", "it had %d in %q, has %d, and %d were counted", r.counts[k.key], k.key, n, most)
		}
		r.counts[k.key] = n
	case register:
		n := uint64(number(v.Value)) //nolint:gosec // not negative
		if n < r.counts[k.key] {
			r.violate("registers-go-on", "it had %d in %q, and has %d", r.counts[k.key], k.key, n)
		}
		r.counts[k.key] = n
	default:
	}
}

// prunedForAll: when what a node has left is moved, nobody who is a member knows more of it.
func prunedForAll(o *replicator, gone identity.Node) {
	o.d.pruned[gone] = true
	living := slices.DeleteFunc(o.d.living(), func(r *replicator) bool { return r == o || !o.knows(r.h.p.Node()) })
	for _, k := range o.d.keys {
		before := o.held[k.key].Value
		if before.IsZero() || !before.NeedsPruning(gone) || !o.d.plan.prunes(k) || !k.kind.tracked() {
			continue
		}
		if k.owners == nil {
			k.owners = map[identity.Node]*replicator{}
		}
		if other := k.owners[gone]; other != nil && other != o && k.durable {
			o.d.hit("data", "pruned in two clusters")
			k.twice = true
		}
		k.owners[gone] = o
		sums := k.kind == counter || k.kind == balance
		for _, w := range k.writes {
			if !w.done || w.lost || w.do == removes || sums && (w.stable() || w.by.h.p.Node() != gone) {
				continue
			}
			has := func(r *replicator) bool { return w.present(r.value(k.key)) }
			here := w.at(o)
			if sums {
				here = tally(before, gone) >= w.sum
				has = func(r *replicator) bool {
					v, deleted, found := r.value(k.key)
					return found && !deleted && v.NeedsPruning(gone) && tally(v, gone) >= w.sum
				}
			}
			o.d.hit("checked", "writes when a node is pruned")
			switch {
			case here:
			case slices.ContainsFunc(living, has) && !k.durable: // what is durable may have come from a disk just now
				// Whoever wrote it may do so without having heard of the pruning, unless it is the one that has gone. A deletion is of no node:
				// it is not moved, and is on its way.
				if w.do != deletes && w.by.h.p.Node() == gone {
					other := living[slices.IndexFunc(living, has)]
					o.violate("pruning-loses-nothing", "it moves what %v has left in %q, without the %v, which %v has", gone, k.key, w, other.h.p.Node())
				}
			default:
				w.lost = true
				o.d.hit("data", "pruned while who had it was away")
			}
		}
	}
}

// goneForBoth: what two nodes have added and removed at the same time is gone once all have heard of
// both.
func goneForBoth(d *data, both [2]*write) {
	for _, w := range both {
		if w == nil || w.acked == 0 || w.view == nil {
			return
		}
	}
	d.hit("checked", "elements added and removed by two")
	for _, w := range both {
		for _, n := range w.view.nodes {
			r := d.byNode[n]
			v, deleted, found := r.value(w.datum.key)
			if both[0].view.has(n) && both[1].view.has(n) && found && !deleted && as[crdt.ORSet[string]](v).Contains(w.id) {
				r.violate("removed-is-gone", "%v and %v have removed %s from %q, all have heard of it, and it has it", both[0].by.h.p.Node(), both[1].by.h.p.Node(), w.id, w.datum.key)
			}
		}
	}
}

func (v *view) has(n identity.Node) bool {
	_, found := slices.BinarySearchFunc(v.nodes, n, identity.Node.Compare)
	return found
}
