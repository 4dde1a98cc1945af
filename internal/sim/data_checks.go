// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// request is a request that was not answered yet.
type request struct {
	id      uint64
	by      *replicator
	key     *datum
	write   *write // nil for a read
	level   replication.Level
	repair  bool
	mistake bool
	view    *view // the nodes that counted at the time of the request, nil if unknown
	timeout time.Duration
	began   time.Duration
	late    bool   // records were being loaded at the time of the request
	begun   int    // number of earlier writes
	known   int    // number of earlier events of a register
	seq     uint64 // acknowledgements before the request have lower numbers
	then    func() // called after the answer
}

func (q *request) String() string {
	subject := "a read"
	switch {
	case q.mistake:
		subject = "a mistake"
	case q.write != nil && q.write.do == deletes:
		subject = "a deletion"
	case q.write != nil:
		subject = "a change"
	}
	return fmt.Sprintf("%s of %q, %v", subject, q.key.key, q.level)
}

// settled is a number in a register, and the count of replicas that held at least this number when
// a write was acknowledged or a read was repaired.
type settled struct {
	view *view
	held int
	n    int64
	seq  uint64
}

// overdue reports a violation if the request is not answered in time. A pause of the node, the load
// of its records, and failures of its disk extend the time.
func (q *request) overdue(in time.Duration) {
	const slack = time.Second
	q.by.after(in+slack, func() {
		r := q.by
		if r.requests[q.id] == nil {
			return
		}
		if left := max(q.began, r.h.p.Resumed()) + q.timeout + slack - r.d.w.Now(); left > 0 || q.view == nil && !r.loaded || q.key.durable && r.d.w.Now() < r.disk.repaired+10*time.Second {
			q.overdue(max(left, slack))
			return
		}
		if q.view == nil && !q.late { // the time starts when all records are loaded
			q.late = true
			q.overdue(q.timeout + slack)
			return
		}
		r.h.violate("requests-are-answered", "request %d for %q, %v, has no answer after %v", q.id, q.key.key, q.level, r.d.w.Now()-q.began)
	})
}

func (r *replicator) replied(a *replication.Reply) {
	if r.h.shards.replied(a) {
		return
	}
	q := r.requests[a.ID]
	if q == nil {
		r.h.violate("requests-are-answered", "request %d is answered twice or does not exist", a.ID)
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
			r.h.violate("mistakes-change-nothing", "a failing update function has the outcome %v", a.Outcome)
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
	checkQuorum(q, a)
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

func (r *replicator) wasWritten(q *request, a *replication.Reply) {
	w := q.write
	var large *replication.TooLargeError
	switch {
	case w.calls > 1:
		r.h.violate("changes-once", "the function of request %d is called %d times", q.id, w.calls)
	case a.Outcome == replication.Failed && errors.As(a.Err, &large):
		w.done = false
		r.d.hit("data", "too large")
	case a.Outcome == replication.Failed:
		r.h.violate("data-is-sound", "%q cannot be changed: %v", q.key.key, a.Err)
	}
}

// checkQuorum checks the numbers of existing, required and participating replicas in an answer.
func checkQuorum(q *request, a *replication.Reply) {
	r := q.by
	switch a.Outcome {
	case replication.Done, replication.NotFound, replication.TimedOut, replication.TooFew:
	case replication.Deleted:
		if q.write != nil { // the key was already deleted
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
	case done && a.Answered < a.Required, a.Outcome == replication.TimedOut && a.Answered >= a.Required && !q.key.durable:
		r.h.violate("quorums-are-honest", "request %d for %q: %v, answered %d of %d", q.id, q.key.key, a.Outcome, a.Answered, a.Required)
	case q.view == nil:
	case a.Total != len(q.view.nodes), a.Required != max(1, needed(q.level, a.Total)) && !local, (a.Outcome == replication.TooFew) != (a.Required > a.Total) && !q.key.durable:
		r.h.violate("quorums-are-honest", "request %d for %q: %v, %d of %d, but %v of %d is %d", q.id, q.key.key, a.Outcome, a.Required, a.Total, q.level.Kind,
			len(q.view.nodes), max(1, needed(q.level, len(q.view.nodes))))
	}
}

// acknowledged checks that at least as many replicas hold the write as have answered. If the key is
// durable, it also checks that as many disks hold the write.
func acknowledged(q *request, a *replication.Reply) {
	w, r := q.write, q.by
	r.d.acks++
	w.acked, w.held = r.d.acks, a.Answered
	if q.view == nil || !q.key.kind.tracked() || w.mayReappear() {
		return
	}
	have, stored := 0, 0
	for _, n := range q.view.nodes {
		other := r.d.byNode[n]
		if w.at(other) {
			have++
		}
		if q.key.durable && w.contained(other.disk.value(q.key.key)) {
			stored++
		}
	}
	r.d.hit("checked", "acknowledged writes")
	if have < a.Answered {
		r.h.violate("acknowledged-is-there", "%q %v, %v: %d replicas have acknowledged it, %d hold it", q.key.key, w, q.level, a.Answered, have)
	}
	if q.key.durable {
		r.d.hit("checked", "acknowledged writes on disk")
		if stored < a.Answered {
			r.h.violate("acknowledged-is-stored", "%q %v, %v: %d replicas have acknowledged it, %d disks hold it", q.key.key, w, q.level, a.Answered, stored)
		}
	}
	if q.key.kind == register {
		q.key.events = append(q.key.events, settled{q.view, a.Answered, w.n, r.d.acks})
	}
}

// promised reports whether a read must see a write. The read must see the write if the number of
// nodes that still hold the write plus the number of nodes that are read exceeds the number of all
// nodes.
func (q *request) promised(v *view, held int) bool {
	if v == nil || q.view == nil {
		return false
	}
	total, left := len(q.view.nodes), v.missingIn(q.view)
	return held-left+needed(q.level, total) > total
}

// promise counts the writes that a read must see. Its rows distinguish how the members have changed
// since the write.
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

// readSees checks three rules. A read returns the earlier changes of its own node. A read returns
// each earlier write that was acknowledged by enough nodes to overlap with the nodes of the read. A
// read returns nothing that was never written.
func readSees(q *request, a *replication.Reply) {
	deleted, found := a.Outcome == replication.Deleted, a.Outcome == replication.Done
	if deleted && q.key.kind != leased && q.key.kind.tracked() && !q.key.deleting() {
		q.by.h.violate("reads-see-what-was", "%q was never deleted", q.key.key)
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
		if must && !w.mayReappear() && q.key.kind != counter && q.key.kind != balance && !w.contained(a.Value, deleted, found) {
			q.by.h.violate("reads-see-writes", "%v of %q lacks the %v, own %t, acknowledged by %d", q.level, q.key.key, w, own, w.held)
		}
		if must && w.do == deletes && !deleted {
			q.by.h.violate("reads-see-writes", "%v of %q lacks the deletion", q.level, q.key.key)
		}
	}
	if promises {
		q.by.d.hit("checked", "reads that have to see writes")
	}
	if (q.key.kind == counter || q.key.kind == balance) && !deleted {
		if sum := q.key.sum(a.Value); sum < least || sum > most && !q.key.twice {
			q.by.h.violate("reads-see-writes", "%v of %q counts %d, want %d to %d", q.level, q.key.key, sum, least, most)
		}
	}
}

// bound returns the contribution of a write to one bound of a sum. An uncertain write contributes
// only to the wider bound.
func bound(w *write, must, wider bool) int64 {
	if must || wider {
		return w.n
	}
	return 0
}

// readsItsWrites checks that a node sees its own changes immediately.
func readsItsWrites(r *replicator) {
	ran := r.ran
	r.ran = nil
	for _, w := range ran {
		if !w.done || !r.loaded || !w.datum.kind.tracked() {
			continue
		}
		r.d.hit("checked", "own writes")
		if r.d.pruned[r.h.p.Node()] && r.d.plan.prunes(w.datum) { // other nodes no longer consider this node a member
			w.lost = true
		}
		if !w.at(r) {
			r.h.violate("reads-own-writes", "%q lacks the node's last change %s", w.datum.key, w.id)
		}
	}
}

// changed checks that the count of a node in a counter never decreases and never exceeds the
// requested changes.
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
		// A node that restarts from disk after it was pruned loses the changes that only that disk
		// had.
		late := k.durable && r.d.plan.DurablePruned
		if n < r.counts[k.key] && !late || int64(n) > most && !k.twice { //nolint:gosec // small
			r.h.violate("counts-once", "count in %q changed from %d to %d, %d were counted", k.key, r.counts[k.key], n, most)
		}
		r.counts[k.key] = n
	case register:
		n := uint64(number(v.Value)) //nolint:gosec // not negative
		if n < r.counts[k.key] {
			r.h.violate("registers-go-on", "register %q went back from %d to %d", k.key, r.counts[k.key], n)
		}
		r.counts[k.key] = n
	default:
	}
}

// prunedForAll checks that no member has more history of a removed node than the node that takes
// over that history.
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
				here = countOf(before, gone) >= w.sum
				has = func(r *replicator) bool {
					v, deleted, found := r.value(k.key)
					return found && !deleted && v.NeedsPruning(gone) && countOf(v, gone) >= w.sum
				}
			}
			o.d.hit("checked", "writes when a node is pruned")
			switch {
			case here:
			case slices.ContainsFunc(living, has) && !k.durable: // a node may have loaded durable data from its disk a moment ago
				// Another node than the removed one may have made the write before it received the
				// pruning. This node then still sends the write. A deletion belongs to no node:
				// pruning does not move it, and it still spreads.
				if w.do != deletes && w.by.h.p.Node() == gone {
					other := living[slices.IndexFunc(living, has)]
					o.h.violate("pruning-loses-nothing", "history of %v in %q is moved without the %v, which %v has", gone, k.key, w, other.h.p.Node())
				}
			default:
				w.lost = true
				o.d.hit("data", "pruned while the holder was away")
			}
		}
	}
}

// goneForBoth checks that an element that two nodes have concurrently added and removed is absent
// once both removals have spread.
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
				r.h.violate("removed-is-gone", "%v and %v have removed %s from all replicas of %q, but it is present", both[0].by.h.p.Node(), both[1].by.h.p.Node(), w.id, w.datum.key)
			}
		}
	}
}

func (v *view) has(n identity.Node) bool {
	_, found := slices.BinarySearchFunc(v.nodes, n, identity.Node.Compare)
	return found
}

const (
	// maxConverging is the maximum time until all nodes hold the same data after the last change.
	maxConverging = 60 * time.Second
	// maxPruning is the additional maximum time until the history of removed nodes is moved.
	maxPruning = 90 * time.Second
)

func (d *data) quiesce() {
	d.w.Logf("clients stopped")
	d.quiet = true
	for _, k := range d.disks {
		k.trouble = trouble{}
	}
}

// finish checks the final state, when the nodes form one cluster and no more changes are made.
func (d *data) finish() {
	most := maxConverging
	for range d.living() { // the time at which the last key expires depends on the differences of clocks
		most += d.plan.Config.Expire["lease/*"]
	}
	if !d.c.converge("converges", most, d.differ) || !d.complete("in the end") {
		return
	}
	if !d.c.converge("subscribers-receive-changes", 5*time.Second, d.outdatedSubscriber) {
		return
	}
	d.onDisks()
	if !d.plan.Pruned || d.c.violation != nil {
		return
	}
	before := d.contents()
	pruned := func() string { return cmp.Or(d.unpruned(), d.differ()) }
	if !d.c.converge("prunes", maxPruning, pruned) {
		return
	}
	d.complete("after pruning")
	d.unchanged(before, "after pruning")
	if d.plan.Forgotten && d.c.violation == nil {
		d.c.run(forgottenAfter + 20*time.Second)
		if d.c.converge("converges", maxConverging, d.differ) {
			d.complete("when markers are forgotten")
			d.unchanged(before, "when markers are forgotten")
		}
	}
}

// differ returns a difference between living nodes, or an empty string.
func (d *data) differ() string {
	for _, h := range d.c.living() {
		switch r := h.data; {
		case r.ended:
			return h.p.Node().String() + " runs without its replicator"
		case !r.loaded:
			return h.p.Node().String() + " has not loaded the records of its disk"
		case !r.m.Synced():
			return h.p.Node().String() + " has not received the data of the others"
		case len(r.requests) > 0:
			return h.p.Node().String() + " has not answered all requests"
		case r.backlog.Len() > 0 || r.writing != nil:
			return h.p.Node().String() + " has not stored all records"
		}
	}
	living := d.living()
	first := living[0].m
	keys := first.Keys()
	for _, r := range living[1:] {
		if first.Root() == r.m.Root() {
			continue
		}
		peer := living[0].h.p.Node().String() + " and " + r.h.p.Node().String()
		if other := r.m.Keys(); !slices.Equal(keys, other) {
			return fmt.Sprintf("%s have different keys: %q, %q", peer, keys, other)
		}
		for _, key := range keys {
			a, _, _ := first.Value(key)
			if b, _, _ := r.value(key); !crdt.Equal(a, b) {
				return fmt.Sprintf("%s differ in %s: a %s that %v have modified, and one that %v have modified", peer, key, a.Type(), a.ModifiedBy(), b.ModifiedBy())
			}
		}
		return peer + " have different digests, and differ only in pruning or deleted keys"
	}
	return ""
}

func (d *data) complete(when string) bool {
	living := d.living()
	for _, r := range living {
		for _, key := range r.m.Keys() {
			v, _, _ := r.value(key)
			if a, _, _ := living[0].value(key); !crdt.Equal(a, v) {
				r.h.violate("converges", "%s: the digest is that of %v, but the value of %q differs", when, living[0].h.p.Node(), key)
			}
			if r.held[key].Value != v {
				r.h.violate("converges", "%s: a local read of %q returns another value", when, key)
			}
		}
	}
	r := living[0]
	for _, k := range d.keys {
		if k.kind.tracked() {
			d.keeps(r, k, when)
		}
	}
	return d.c.violation == nil
}

func (w *write) kept() bool {
	return w.done && !w.lost && (w.stable() || w.by.serves() || w.acked > 0 && w.do != removes && slices.Contains(w.by.d.c.names, w.by.disk.name) && (!w.datum.durable || !w.datum.untracked))
}

func (d *data) keeps(r *replicator, k *datum, when string) {
	v, deleted, found := r.value(k.key)
	sums := k.kind == counter || k.kind == balance
	least, most := k.base, int64(0)
	for _, w := range k.writes {
		if !w.done {
			continue
		}
		must := w.kept()
		if must && w.acked > 0 && !w.by.serves() {
			if k.durable && !w.stable() {
				d.hit("checked", "acknowledged durable writes of nodes that are gone")
			} else {
				d.hit("checked", "acknowledged writes of nodes that are gone")
			}
		}
		switch {
		case must && w.do == deletes && !deleted:
			r.h.violate("acknowledged-stays", "%s: %q exists after its deletion by %v", when, k.key, w.by.h.p.Node())
		case !sums && must && w.do != nothing && !w.mayReappear() && !w.contained(v, deleted, found):
			r.h.violate("acknowledged-stays", "%s: the %v is missing in %q", when, w, k.key)
		case w.do != adds || !sums:
		case d.plan.prunes(k): // there are no decrements
			most += w.n
			if must && !w.stable() {
				least += w.n
			}
		default:
			least += bound(w, must, w.n < 0)
			most += bound(w, must, w.n > 0)
		}
	}
	if deleted && !k.deleting() {
		r.h.violate("acknowledged-stays", "%s: %q is deleted without a request", when, k.key)
	}
	if deleted {
		return
	}
	if k.kind == register && number(v) > k.last {
		r.h.violate("acknowledged-stays", "%s: %q holds %d, the last write was %d", when, k.key, number(v), k.last)
	}
	if !sums {
		return
	}
	if least == most {
		d.hit("checked", "sums that are known")
	} else {
		d.hit("checked", "sums with something unknown")
	}
	if sum := k.sum(v); sum < least || sum > most && !k.twice {
		r.h.violate("counts-once", "%s: %q counts %d, want %d to %d", when, k.key, sum, least, most)
	}
}

func (d *data) onDisks() {
	for _, r := range d.living() {
		for _, k := range d.keys {
			v, deleted, found := r.value(k.key)
			if !k.durable || !found || r.disk.failed {
				continue
			}
			d.hit("checked", "records")
			if stored, gone, there := r.disk.value(k.key); !there || gone != deleted || !deleted && !crdt.Equal(stored, v) {
				r.h.violate("durable-is-stored", "the disk differs in %q", k.key)
			}
		}
	}
}

// unpruned returns remaining history of removed nodes, or an empty string.
func (d *data) unpruned() string {
	living := d.living()
	for _, r := range living {
		for _, key := range r.m.Keys() {
			v, _, _ := r.value(key)
			if k := d.byKey[key]; k == nil || !d.plan.prunes(k) {
				continue
			}
			for _, n := range v.ModifiedBy() {
				if !slices.ContainsFunc(living, func(r *replicator) bool { return r.h.p.Node() == n }) {
					return r.h.p.Node().String() + " still has history of " + n.String() + " in " + key
				}
			}
		}
	}
	return ""
}

func (d *data) contents() map[string]string {
	all := map[string]string{}
	for _, k := range d.keys {
		v, deleted, found := d.living()[0].value(k.key)
		all[k.key] = k.text(v, deleted, found)
	}
	return all
}

func (d *data) unchanged(before map[string]string, when string) {
	for _, k := range d.keys {
		v, deleted, found := d.living()[0].value(k.key)
		if now := k.text(v, deleted, found); now != before[k.key] && k.kind != leased {
			d.c.violate("pruning-changes-nothing", d.living()[0].h.p.Node(), "%s: %q changed from %s to %s", when, k.key, before[k.key], now)
		}
	}
}

func (k *datum) text(v crdt.Value, deleted, found bool) string {
	if deleted || !found {
		return fmt.Sprint("deleted ", deleted, ", found ", found)
	}
	all, err := k.content(v)
	return fmt.Sprint(all, err)
}

// content returns the elements of a value, the keys of a map, or a number.
func (k *datum) content(v crdt.Value) (any, error) {
	switch k.kind {
	case words, leased, huge:
		return as[crdt.GSet[string]](v).Elements()
	case cart, race:
		return as[crdt.ORSet[string]](v).Elements()
	case dict:
		return as[crdt.LWWMap[string, string]](v).Keys()
	case register:
		return number(v), nil
	case stock:
		m := as[crdt.PNCounterMap[string]](v)
		keys, err := m.Keys()
		for i, key := range keys {
			keys[i] = fmt.Sprint(key, "=", m.Value(key))
		}
		return keys, err
	case tags:
		m := as[crdt.ORMultiMap[string, string]](v)
		keys, err := m.Keys()
		for i, key := range keys {
			s, _ := m.Get(key)
			elements, failed := s.Elements()
			keys[i], err = fmt.Sprint(key, "=", elements), errors.Join(err, failed)
		}
		return keys, err
	default:
		return k.sum(v), nil
	}
}
