// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/replication"
)

// work performs an action of a client on some node.
func (d *data) work() {
	nodes := d.clients()
	if len(nodes) == 0 {
		return
	}
	r := nodes[d.rand.IntN(len(nodes))]
	for range 1 + d.rand.IntN(3)*d.rand.IntN(2) {
		d.something(r)
	}
}

// clients returns the nodes of clients, mostly members.
func (d *data) clients() []*replicator {
	var nodes []*replicator
	for _, r := range d.all {
		if !r.ended && r.h.alive() && (r.h.m.Member() || d.rand.IntN(50) == 0) {
			nodes = append(nodes, r)
		}
	}
	return nodes
}

func (d *data) something(r *replicator) {
	durable := d.plan.Durable && d.rand.IntN(3) == 0
	switch n := d.rand.IntN(100); {
	case n < 12:
		d.change(r, d.use(counter, durable))
	case n < 19:
		d.change(r, d.use(balance, durable))
	case n < 26:
		d.change(r, d.use(words, durable))
	case n < 36:
		d.change(r, d.use(cart, durable))
	case n < 43:
		d.change(r, d.use(dict, durable))
	case n < 47:
		d.change(r, d.use(stock, durable))
	case n < 51:
		d.change(r, d.use(tags, durable))
	case n < 53:
		d.change(r, d.use(leased, false))
	case n < 63:
		d.writeRegister(r)
	case n < 70:
		d.readRegister(r)
	case n < 72:
		d.racing(r)
	case n < 73:
		d.remove(r)
	case n < 74:
		d.mistake(r)
	case n < 75:
		d.resubscribe(r)
	case n < 76 && d.plan.Large:
		d.outgrow()
	case n < 77 && d.plan.Config.MaxLog > 0:
		d.burst(r)
	default:
		d.read(r, d.anyKey(), d.rand.IntN(4) == 0)
	}
}

// anyKey returns a written key, most likely a recent one.
func (d *data) anyKey() *datum {
	if len(d.keys) == 0 || d.rand.IntN(50) == 0 {
		return &datum{key: "none", kind: words}
	}
	n := min(len(d.keys), 12)
	if d.rand.IntN(5) == 0 {
		n = len(d.keys)
	}
	return d.keys[len(d.keys)-1-d.rand.IntN(n)]
}

func (d *data) level() replication.Level {
	switch n := d.rand.IntN(20); {
	case n < 5:
		return replication.Level{}
	case n < 7:
		return replication.Level{Kind: replication.Count, N: 2 + d.rand.IntN(3)}
	case n < 9:
		return replication.Level{Kind: replication.All}
	case n < 11:
		return replication.Level{Kind: replication.MajorityPlus, N: 1 + d.rand.IntN(2), MinCap: d.rand.IntN(2) * 4}
	case n < 13:
		return replication.Level{Kind: replication.Majority, MinCap: 3 + d.rand.IntN(3)}
	}
	return replication.Level{Kind: replication.Majority}
}

// ask makes a request at a node. A paused node receives it later.
func (d *data) ask(r *replicator, q *request, in func(replication.Request) replication.Input) {
	d.requests++
	q.id, q.by = d.requests, r
	r.h.p.Do(func() {
		if r.ended || !r.h.alive() {
			return
		}
		q.timeout = d.between(500*time.Millisecond, 4*time.Second)
		q.began, q.begun, q.known = d.w.Now(), len(q.key.writes), len(q.key.events)
		d.acks++
		q.seq = d.acks
		if r.loaded {
			q.view = d.view(r, q.level)
		} else {
			d.hit("data", "asked while loading")
		}
		if q.write != nil {
			q.write.view, q.write.by = q.view, r
			if q.key.kind.tracked() {
				q.key.writes = append(q.key.writes, q.write)
			}
		}
		r.requests[q.id] = q
		d.w.Logf("%v: request %d, %v", r.h.p.Node(), q.id, q)
		q.overdue(q.timeout)
		r.asked = append(r.asked, in(replication.Request{
			ID: q.id, Key: q.key.key, Level: q.level, Timeout: q.timeout, PreferOldest: d.rand.IntN(4) == 0,
		}))
		if !r.gathers {
			r.hears()
		}
	})
}

func (r *replicator) hears() {
	in := r.asked
	r.asked = nil
	r.input(in...)
}

// burst makes more changes than are sent at a time.
func (d *data) burst(r *replicator) {
	r.h.p.Do(func() {
		r.gathers = true
		for range 2 + d.plan.Config.MaxLog {
			for _, k := range []kind{counter, words, cart, dict} {
				d.change(r, d.use(k, false))
			}
		}
		r.gathers = false
		r.hears()
	})
}

func update[T any](d *data, r *replicator, w *write, f func(T) (T, error)) {
	w.datum.begun++
	d.ask(r, &request{key: w.datum, write: w, level: w.level}, func(q replication.Request) replication.Input {
		return replication.Update{Request: q, Modify: func(v crdt.Value) (crdt.Value, error) {
			w.calls++
			t, err := f(as[T](v))
			if err != nil {
				return v, err
			}
			w.done, r.wrote = true, true
			r.ran = append(r.ran, w)
			return (*crdt.Types)(nil).Value(t)
		}}
	})
}

func (d *data) unique() string {
	d.serial++
	return fmt.Sprint("x", d.serial)
}

// change makes a random change that suits the kind of the key.
func (d *data) change(r *replicator, k *datum) {
	w := &write{datum: k, by: r, level: d.level(), id: d.unique()}
	switch k.kind {
	case counter:
		w.n = int64(1 + d.rand.IntN(5))
		update(d, r, w, func(c crdt.GCounter) (crdt.GCounter, error) {
			c = c.Add(r.self, uint64(w.n)) //nolint:gosec // small
			w.sum = tally(untyped(c), r.h.p.Node())
			return c, nil
		})
	case balance:
		w.n = int64(1 + d.rand.IntN(5))
		if r.h.p.Node().UID%2 == 0 && !d.plan.prunes(k) { // a node that takes over the history of another one counts in one direction only
			w.n = -w.n
		}
		update(d, r, w, func(c crdt.PNCounter) (crdt.PNCounter, error) {
			c = c.Add(r.self, w.n)
			w.sum = tally(untyped(c), r.h.p.Node())
			return c, nil
		})
	case words:
		update(d, r, w, func(s crdt.GSet[string]) (crdt.GSet[string], error) { return s.Add(w.id) })
	case leased:
		w.id = fmt.Sprint(d.rand.IntN(20))
		update(d, r, w, func(s crdt.GSet[string]) (crdt.GSet[string], error) { return s.Add(w.id) })
	case cart:
		remove, which := d.rand.IntN(3) == 0, d.rand.IntN(1000)
		update(d, r, w, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
			if !remove {
				return s.Add(r.self, w.id)
			}
			all, err := s.Elements()
			if err != nil || len(all) == 0 {
				w.do = nothing
				return s, err
			}
			w.do, w.id = removes, all[which%len(all)]
			return s.Remove(r.self, w.id)
		})
	case dict:
		update(d, r, w, func(m crdt.LWWMap[string, string]) (crdt.LWWMap[string, string], error) {
			return m.Put(r.self, w.id, "v"+w.id)
		})
	case stock:
		w.id = fmt.Sprint(d.rand.IntN(6))
		remove := d.rand.IntN(4) == 0
		update(d, r, w, func(m crdt.PNCounterMap[string]) (crdt.PNCounterMap[string], error) {
			if remove {
				return m.Remove(r.self, w.id)
			}
			return m.Add(r.self, w.id, 1)
		})
	case tags:
		d.tag(r, w)
	case register, race, huge, kinds:
	}
}

func (d *data) tag(r *replicator, w *write) {
	key, element, how := fmt.Sprint(d.rand.IntN(3)), fmt.Sprint(d.rand.IntN(6)), d.rand.IntN(6)
	update(d, r, w, func(m crdt.ORMultiMap[string, string]) (crdt.ORMultiMap[string, string], error) {
		switch how {
		case 0:
			return m.Remove(r.self, key)
		case 1:
			return m.RemoveElements(r.self, key, element)
		case 2:
			return m.Put(r.self, key, element)
		default:
			return m.Add(r.self, key, element)
		}
	})
}

func (d *data) remove(r *replicator) {
	k := d.anyKey()
	if k.key == "none" || k.kind == register || k.begun < perKey && d.rand.IntN(4) > 0 {
		return
	}
	w := &write{datum: k, by: r, do: deletes, level: d.level()}
	q := &request{key: k, write: w, level: w.level}
	d.ask(r, q, func(in replication.Request) replication.Input {
		if _, deleted, _ := r.value(k.key); !deleted {
			w.done, r.wrote = true, true
			r.ran = append(r.ran, w)
		}
		return replication.Delete{Request: in}
	})
}

var errMistake = errors.New("a mistake")

// mistake makes an invalid request, which must not change anything.
func (d *data) mistake(r *replicator) {
	k := d.use(words, false)
	q := &request{key: k, level: d.level(), mistake: true}
	how := d.rand.IntN(3)
	d.ask(r, q, func(in replication.Request) replication.Input {
		return replication.Update{Request: in, Modify: func(v crdt.Value) (crdt.Value, error) {
			switch {
			case how == 0:
				panic(errMistake)
			case how == 1 && !v.IsZero():
				return (*crdt.Types)(nil).Value(crdt.GCounter{}.Add(r.self, 1))
			}
			return v, errMistake
		}}
	})
}

func (d *data) read(r *replicator, k *datum, repair bool) {
	q := &request{key: k, level: d.level(), repair: repair}
	d.ask(r, q, func(in replication.Request) replication.Input {
		return replication.Get{Request: in, RepairPeers: repair}
	})
}

// racing makes two nodes concurrently add and remove the same element. Neither sees the changes of
// the other, and both have removed their additions.
func (d *data) racing(r *replicator) {
	nodes := slices.DeleteFunc(d.clients(), func(o *replicator) bool { return o == r })
	if len(nodes) == 0 {
		return
	}
	other := nodes[d.rand.IntN(len(nodes))]
	k, id := d.use(race, false), d.unique()
	var both [2]*write
	for i, r := range []*replicator{r, other} {
		both[i] = &write{datum: k, by: r, id: id, do: removes, level: replication.Level{Kind: replication.All}}
		add := &write{datum: k, by: r, id: id}
		update(d, r, add, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s.Add(r.self, id) })
		k.begun++
		d.ask(r, &request{key: k, write: both[i], level: both[i].level, then: func() { goneForBoth(d, both) }}, func(in replication.Request) replication.Input {
			return replication.Update{Request: in, Modify: func(v crdt.Value) (crdt.Value, error) {
				s, err := as[crdt.ORSet[string]](v).Remove(r.self, id)
				if err != nil {
					return v, err
				}
				both[i].done = true
				return (*crdt.Types)(nil).Value(s)
			}}
		})
	}
}

// outgrow makes two nodes concurrently add so much to a set that their union exceeds the maximum
// message size.
func (d *data) outgrow() {
	nodes := d.clients()
	if k := d.use(huge, false); k.begun == 0 && len(nodes) > 1 {
		for _, i := range d.rand.Perm(len(nodes))[:2] {
			r := nodes[i]
			for range 18 {
				w := &write{datum: k, by: r, id: d.unique() + strings.Repeat(".", 2_000)}
				update(d, r, w, func(s crdt.GSet[string]) (crdt.GSet[string], error) { return s.Add(w.id) })
			}
		}
		k.begun = perKey
		delete(d.current, huge)
	}
}

// writeRegister writes the next number to a register, mostly to a majority.
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

// readRegister reads a register on any node, mostly with repair.
func (d *data) readRegister(r *replicator) {
	q := &request{key: d.use(register, false), level: replication.Level{Kind: replication.Majority}, repair: d.rand.IntN(4) > 0}
	if d.rand.IntN(6) == 0 {
		q.level = d.level()
	}
	d.ask(r, q, func(in replication.Request) replication.Input {
		return replication.Get{Request: in, RepairPeers: q.repair}
	})
}

// registerSees checks that a register with a single writer is linearizable where reads are
// repaired. Its numbers increase, so a read must see all writes that were acknowledged before and
// all results of earlier reads, and nothing that was not written yet.
func registerSees(q *request, a *replication.Reply) {
	k, d := q.key, q.by.d
	if a.Outcome == replication.Deleted {
		return // registers are not deleted; readSees has reported it
	}
	n := int64(0)
	if a.Outcome == replication.Done {
		n = number(a.Value)
	}
	if n > k.last {
		q.by.violate("registers-are-linearizable", "%q holds %d, the last write was %d", k.key, n, k.last)
	}
	for _, e := range k.events[:q.known] {
		if e.seq > q.seq || !q.promised(e.view, e.held) {
			continue
		}
		d.hit("checked", "reads of registers")
		q.promise(e.view)
		if n < e.n {
			q.by.violate("registers-are-linearizable", "%v of %q returns %d after %d, which %d replicas held", q.level, k.key, n, e.n, e.held)
		}
	}
	if k.writer == q.by {
		for i, w := range k.writes {
			if i < q.begun && w.done && w.n > n {
				q.by.violate("reads-own-writes", "the node has written %d to %q and reads %d", w.n, k.key, n)
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
		q.by.violate("repaired-is-there", "%q: %d replicas are reported to hold %d, %d do", k.key, a.Answered, n, have)
	}
	d.acks++
	k.events = append(k.events, settled{q.view, a.Answered, n, d.acks})
}
