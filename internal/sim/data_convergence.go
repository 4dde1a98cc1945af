// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
)

const (
	// maxConverging is the maximum time until all nodes hold the same data after the last change.
	maxConverging = 60 * time.Second
	// maxPruning is the additional maximum time until the history of removed nodes is moved.
	maxPruning = 90 * time.Second
)

func (d *data) calm() {
	d.w.Logf("clients stopped")
	d.quiet = true
	for _, k := range d.disks {
		k.failing, k.slow = false, false
	}
}

// finish checks the final state, when the nodes form one cluster and no more changes are made.
func (d *data) finish() {
	most := maxConverging
	for range d.living() { // the time at which the last key expires depends on the differences of clocks
		most += d.plan.Config.Expire["lease/*"]
	}
	if !d.converge("converges", most, d.differ) || !d.complete("in the end") {
		return
	}
	misinformed := func() string {
		for _, r := range d.living() {
			if why := r.misinformed(); why != "" {
				return why
			}
		}
		return ""
	}
	if !d.converge("subscribers-hear-of-changes", 5*time.Second, misinformed) {
		return
	}
	d.onDisks()
	if !d.plan.Pruned || d.c.violation != nil {
		return
	}
	before := d.shown()
	pruned := func() string {
		if why := d.unpruned(); why != "" {
			return why
		}
		return d.differ()
	}
	if !d.converge("prunes", maxPruning, pruned) {
		return
	}
	d.complete("after pruning")
	d.same(before, "after pruning")
	if d.plan.Forgotten && d.c.violation == nil {
		d.c.run(forgottenAfter + 20*time.Second)
		if d.converge("converges", maxConverging, d.differ) {
			d.complete("when markers are forgotten")
			d.same(before, "when markers are forgotten")
		}
	}
}

// converge waits until why returns no obstacle.
func (d *data) converge(invariant string, most time.Duration, why func() string) bool {
	began := d.w.Now()
	if !d.c.until(most, func() bool { return why() == "" }) {
		d.c.violate(invariant, d.living()[0].h.p.Node(), "after %v: %s", d.w.Now()-began, why())
	}
	if d.c.violation == nil {
		d.hit("checked", invariant)
	}
	return d.c.violation == nil
}

// differ returns a difference between living nodes, or an empty string.
func (d *data) differ() string {
	for _, h := range d.c.living() {
		switch r := h.data; {
		case r.ended:
			return h.p.Node().String() + " lives without its data"
		case !r.loaded:
			return h.p.Node().String() + " has not loaded what is on its disk"
		case !r.m.Synced():
			return h.p.Node().String() + " has not got the data of the others"
		case len(r.requests) > 0:
			return h.p.Node().String() + " has not answered all that was asked for"
		case r.backlog.Len() > 0 || r.writing != nil:
			return h.p.Node().String() + " has not stored all"
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
				return fmt.Sprintf("%s differ in %s: %s, %s", peer, key, spell(a), spell(b))
			}
		}
		return peer + " have other digests, and hold the same but for pruning or deleted keys"
	}
	return ""
}

func spell(v crdt.Value) string {
	var s strings.Builder
	s.WriteString(v.Type())
	for _, n := range v.ModifiedBy() {
		s.WriteString(" " + n.String())
		if v.Type() == "GCounter" || v.Type() == "PNCounter" {
			fmt.Fprintf(&s, " %d", tally(v, n))
		}
	}
	return s.String()
}

// complete checks that all nodes hold the expected data.
func (d *data) complete(when string) bool {
	living := d.living()
	for _, r := range living {
		for _, key := range r.m.Keys() {
			v, _, _ := r.value(key)
			if a, _, _ := living[0].value(key); !crdt.Equal(a, v) {
				r.violate("converges", "%s: its digest is that of %v, and it holds something else in %q", when, living[0].h.p.Node(), key)
			}
			if r.held[key].Value != v {
				r.violate("converges", "%s: who reads %q without asking sees something else", when, key)
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

// kept reports whether a write must be present at the end.
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
			r.violate("acknowledged-stays", "%s: %q was deleted by %v, but exists", when, k.key, w.by.h.p.Node())
		case !sums && must && w.do != nothing && !w.undone() && !w.contained(v, deleted, found):
			r.violate("acknowledged-stays", "%s: the %v is missing in %q", when, w, k.key)
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
		r.violate("acknowledged-stays", "%s: %q is deleted without a request", when, k.key)
	}
	if deleted {
		return
	}
	if k.kind == register && number(v) > k.last {
		r.violate("acknowledged-stays", "%s: %q holds %d, the last write was %d", when, k.key, number(v), k.last)
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
		r.violate("counts-once", "%s: %q counts %d, want %d to %d", when, k.key, sum, least, most)
	}
}

// onDisks checks that durable keys are on the disks of their nodes.
func (d *data) onDisks() {
	for _, r := range d.living() {
		for _, k := range d.keys {
			v, deleted, found := r.value(k.key)
			if !k.durable || !found || r.disk.failed {
				continue
			}
			d.hit("checked", "records")
			if stored, gone, there := r.disk.value(k.key); !there || gone != deleted || !deleted && !crdt.Equal(stored, v) {
				r.violate("durable-is-stored", "the disk differs in %q", k.key)
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
					return r.h.p.Node().String() + " still has what " + n.String() + " has left in " + key
				}
			}
		}
	}
	return ""
}

func (d *data) shown() map[string]string {
	all := map[string]string{}
	for _, k := range d.keys {
		v, deleted, found := d.living()[0].value(k.key)
		all[k.key] = k.show(v, deleted, found)
	}
	return all
}

// same checks that the meanings of keys have not changed.
func (d *data) same(before map[string]string, when string) {
	for _, k := range d.keys {
		v, deleted, found := d.living()[0].value(k.key)
		if now := k.show(v, deleted, found); now != before[k.key] && k.kind != leased {
			d.c.violate("pruning-changes-nothing", d.living()[0].h.p.Node(), "%s: %q changed from %s to %s", when, k.key, before[k.key], now)
		}
	}
}

func (k *datum) show(v crdt.Value, deleted, found bool) string {
	if deleted || !found {
		return fmt.Sprint("deleted ", deleted, ", found ", found)
	}
	var all any
	var err error
	switch k.kind {
	case counter, balance:
		all = k.sum(v)
	case words, leased, huge:
		all, err = as[crdt.GSet[string]](v).Elements()
	case cart, race:
		all, err = as[crdt.ORSet[string]](v).Elements()
	case dict:
		all, err = as[crdt.LWWMap[string, string]](v).Keys()
	case register:
		all = number(v)
	case stock:
		m := as[crdt.PNCounterMap[string]](v)
		var keys []string
		keys, err = m.Keys()
		for i, key := range keys {
			keys[i] = fmt.Sprint(key, "=", m.Value(key))
		}
		all = keys
	case tags:
		m := as[crdt.ORMultiMap[string, string]](v)
		var keys []string
		keys, err = m.Keys()
		for i, key := range keys {
			s, _ := m.Get(key)
			elements, failed := s.Elements()
			keys[i], err = fmt.Sprint(key, "=", elements), failed
		}
		all = keys
	case kinds:
	}
	return fmt.Sprint(all, err)
}
