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
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

func (d *data) work() {
	nodes := d.clients()
	if len(nodes) == 0 {
		return
	}
	r := nodes[d.rand.IntN(len(nodes))]
	for range 1 + d.rand.IntN(3)*d.rand.IntN(2) {
		d.randomAction(r)
	}
}

// clients returns the nodes of clients, mostly members.
func (d *data) clients() []*replicator {
	return filter(d.all, func(r *replicator) bool { return !r.ended && r.h.alive() && (r.h.m.Member() || d.rand.IntN(50) == 0) })
}

func (d *data) randomAction(r *replicator) {
	durable := d.plan.Durable && d.rand.IntN(3) == 0
	n := d.rand.IntN(100)
	for _, c := range []struct {
		kind  kind
		below int
	}{{counter, 12}, {balance, 19}, {words, 26}, {cart, 36}, {dict, 43}, {stock, 47}, {tags, 51}, {leased, 53}} {
		if n < c.below {
			d.change(r, d.use(c.kind, durable && c.kind != leased))
			return
		}
	}
	switch {
	case n < 63:
		d.writeRegister(r)
	case n < 70:
		d.read(r, d.use(register, false), d.registerLevel(), d.rand.IntN(4) > 0)
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
		d.read(r, d.anyKey(), d.level(), d.rand.IntN(4) == 0)
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
		if !r.collects {
			r.submitAsked()
		}
	})
}

func (r *replicator) submitAsked() {
	in := r.asked
	r.asked = nil
	r.input(in...)
}

// burst makes more changes than a replicator sends at a time.
func (d *data) burst(r *replicator) {
	r.h.p.Do(func() {
		r.collects = true
		for range 2 + d.plan.Config.MaxLog {
			for _, k := range []kind{counter, words, cart, dict} {
				d.change(r, d.use(k, false))
			}
		}
		r.collects = false
		r.submitAsked()
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

func (d *data) change(r *replicator, k *datum) {
	w := &write{datum: k, by: r, level: d.level(), id: d.unique()}
	switch k.kind {
	case counter:
		w.n = int64(1 + d.rand.IntN(5))
		update(d, r, w, func(c crdt.GCounter) (crdt.GCounter, error) {
			c = c.Add(r.self, uint64(w.n)) //nolint:gosec // small
			w.sum = countOf(untyped(c), r.h.p.Node())
			return c, nil
		})
	case balance:
		w.n = int64(1 + d.rand.IntN(5))
		if r.h.p.Node().UID%2 == 0 && !d.plan.prunes(k) { // countOf requires that a node counts in one direction only
			w.n = -w.n
		}
		update(d, r, w, func(c crdt.PNCounter) (crdt.PNCounter, error) {
			c = c.Add(r.self, w.n)
			w.sum = countOf(untyped(c), r.h.p.Node())
			return c, nil
		})
	case words, leased:
		if k.kind == leased {
			w.id = fmt.Sprint(d.rand.IntN(20))
		}
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
	case register, race, huge, kinds:
	}
}

func (d *data) remove(r *replicator) {
	k := d.anyKey()
	if k.key == "none" || k.kind == register || k.begun < perKey && d.rand.IntN(4) > 0 {
		return
	}
	w := &write{datum: k, by: r, do: deletes, level: d.level()}
	d.ask(r, &request{key: k, write: w, level: w.level}, func(in replication.Request) replication.Input {
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
	how := d.rand.IntN(3)
	d.ask(r, &request{key: k, level: d.level(), mistake: true}, func(in replication.Request) replication.Input {
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

func (d *data) read(r *replicator, k *datum, level replication.Level, repair bool) {
	d.ask(r, &request{key: k, level: level, repair: repair}, func(in replication.Request) replication.Input {
		return replication.Get{Request: in, RepairPeers: repair}
	})
}

// racing makes two nodes concurrently add and remove the same element. Neither sees the changes of
// the other, and both remove their additions.
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

func (d *data) registerLevel() replication.Level {
	if d.rand.IntN(6) == 0 {
		return d.level()
	}
	return replication.Level{Kind: replication.Majority}
}

func (d *data) writeRegister(r *replicator) {
	k := d.use(register, false)
	if k.writer == nil {
		k.writer = r
	}
	r = k.writer
	w := &write{datum: k, by: r, level: d.registerLevel()}
	update(d, r, w, func(g crdt.LWWRegister[int64]) (crdt.LWWRegister[int64], error) {
		k.last++
		w.n = k.last
		return g.Set(r.self, w.n)
	})
}

// registerSees checks that a register with a single writer is linearizable where reads are
// repaired. The numbers in the register increase. A read must therefore return at least the number
// of each write that was acknowledged before and of each earlier read, and no number that was not
// written yet.
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
		q.by.h.violate("registers-are-linearizable", "%q holds %d, the last write was %d", k.key, n, k.last)
	}
	for _, e := range k.events[:q.known] {
		if e.seq > q.seq || !q.promised(e.view, e.held) {
			continue
		}
		d.hit("checked", "reads of registers")
		q.promise(e.view)
		if n < e.n {
			q.by.h.violate("registers-are-linearizable", "%v of %q returns %d after %d, which %d replicas held", q.level, k.key, n, e.n, e.held)
		}
	}
	if k.writer == q.by {
		for i, w := range k.writes {
			if i < q.begun && w.done && w.n > n {
				q.by.h.violate("reads-own-writes", "the node has written %d to %q and reads %d", w.n, k.key, n)
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
		q.by.h.violate("repaired-is-there", "%q: %d replicas are reported to hold %d, %d do", k.key, a.Answered, n, have)
	}
	d.acks++
	k.events = append(k.events, settled{q.view, a.Answered, n, d.acks})
}

type kind uint8

const (
	counter  kind = iota // a GCounter
	balance              // a PNCounter
	words                // a GSet of unique elements
	cart                 // an ORSet of unique elements, which are removed too
	dict                 // an LWWMap with unique keys
	register             // an LWWRegister that one process writes
	race                 // an ORSet; two nodes concurrently add the same element, and both remove it
	stock                // a PNCounterMap whose keys are added and removed
	tags                 // an ORMultiMap whose keys are added and removed
	leased               // a GSet that expires
	huge                 // a GSet that is larger than a message
	kinds
)

func (k kind) String() string {
	return []string{"counter", "balance", "words", "cart", "dict", "register", "race", "stock", "tags", "lease", "huge"}[k]
}

// datum is the external record of a key.
type datum struct {
	key     string
	kind    kind
	durable bool
	writes  []*write
	begun   int // number of requested writes
	writer  *replicator
	last    int64 // last number of the writer
	events  []settled

	base      int64                         // count when all nodes had equal data, if nodes are pruned
	has       *holders                      // the replicators that held the key at that time
	owners    map[identity.Node]*replicator // nodes that have taken over the history of a removed node
	twice     bool                          // two clusters that did not see each other have pruned the same node
	untracked bool                          // data that was only on disks may have been pruned
}

// use returns the current key of a kind, and starts a new one occasionally.
func (d *data) use(k kind, durable bool) *datum {
	at := k
	if durable {
		at += kinds
	}
	if now := d.current[at]; now != nil && now.begun < perKey && (now.writer == nil || now.writer.serves()) {
		return now
	}
	d.serial++
	key := fmt.Sprintf("%s/%d", k, d.serial)
	if durable {
		key = "durable/" + key
	}
	n := &datum{key: key, kind: k, durable: durable}
	d.current[at] = n
	d.byKey[key] = n
	d.keys = append(d.keys, n)
	return n
}

// tracked reports whether the expected content of the key is known.
func (k kind) tracked() bool { return k <= register || k == huge }

// perKey is the number of changes per key.
const perKey = 40

type action uint8

const (
	adds action = iota
	removes
	deletes
	nothing
)

type write struct {
	datum *datum
	by    *replicator
	do    action
	id    string // ID of an element, or key of a map
	n     int64  // the increment, or the written number
	sum   uint64 // the node's count in the counter at that time, including taken over counts
	level replication.Level
	calls int  // calls of the update function
	done  bool // the value was changed
	acked uint64
	view  *view
	held  int      // number of replicas that acknowledged it
	has   *holders // the replicators that held it when all replicators did
	lost  bool     // lost with the last replicator that held it
}

func (w *write) String() string {
	return fmt.Sprintf("%s of %s %d by %v", []string{"addition", "removal", "deletion", "nothing"}[w.do], w.id, w.n, w.by.h.p.Node())
}

func as[T any](v crdt.Value) T {
	return must(crdt.As[T](nil, v)) // the type of a key never changes
}

func (w *write) contained(v crdt.Value, deleted, found bool) bool {
	switch {
	case deleted:
		return w.datum.deleting()
	case w.do == deletes:
		return false
	case w.do == removes:
		return !found || !as[crdt.ORSet[string]](v).Contains(w.id)
	case w.do == nothing:
		return true
	case !found:
		return false
	}
	switch w.datum.kind {
	case counter, balance:
		if w.by.ended && !v.NeedsPruning(w.by.h.p.Node()) {
			return false // unknown: the history of the node was moved, or never existed
		}
		return countOf(v, w.by.h.p.Node()) >= w.sum
	case words, leased, huge:
		return as[crdt.GSet[string]](v).Contains(w.id)
	case cart, race:
		return as[crdt.ORSet[string]](v).Contains(w.id) || w.datum.removed(w.id)
	case dict:
		return as[crdt.LWWMap[string, string]](v).Contains(w.id)
	case register:
		return number(v) >= w.n
	case stock, tags, kinds:
	}
	return true
}

// present reports whether the value contains the write. Unlike contained, it does not count a
// deleted key as containing every write. A node that has deleted a key holds nothing that other
// nodes could lack.
func (w *write) present(v crdt.Value, deleted, found bool) bool {
	return deleted == (w.do == deletes) && w.contained(v, deleted, found)
}

func untyped[T any](t T) crdt.Value {
	return must((*crdt.Types)(nil).Value(t)) // all types are defined
}

// countOf returns the count of a node; each node counts in one direction only.
func countOf(v crdt.Value, n identity.Node) uint64 {
	rest := must(v.Cleanup(n)) // all nodes are valid
	if strings.HasPrefix(v.Type(), "GCounter") {
		return as[crdt.GCounter](v).Value() - as[crdt.GCounter](rest).Value()
	}
	net := as[crdt.PNCounter](v).Value() - as[crdt.PNCounter](rest).Value()
	return uint64(max(net, -net)) //nolint:gosec // not negative
}

func number(v crdt.Value) int64 {
	r := as[crdt.LWWRegister[int64]](v)
	if !r.IsSet() {
		return 0
	}
	return must(r.Value()) // clients write only numbers to a register
}

func (k *datum) sum(v crdt.Value) int64 {
	switch {
	case v.IsZero():
		return 0
	case k.kind == counter:
		return int64(as[crdt.GCounter](v).Value()) //nolint:gosec // it is small
	}
	return as[crdt.PNCounter](v).Value()
}

func (k *datum) deleting() bool {
	return slices.ContainsFunc(k.writes, func(w *write) bool { return w.do == deletes && w.done })
}

// reachedAll reports whether a removal has reached all nodes. A replicator without the element may
// never have received the element. Therefore each replicator must have held the element when all
// replicators held it, or must hold the same data as a replicator that had held the element.
func (w *write) reachedAll(now *holders) bool {
	knew := func(r *replicator) bool {
		return w.stable() && slices.Contains(w.has.of, r) || slices.ContainsFunc(w.datum.writes, func(a *write) bool {
			return a.do == adds && a.id == w.id && a.stable() && slices.Contains(a.has.of, r)
		})
	}
	first := slices.IndexFunc(now.of, knew)
	if first < 0 {
		return false
	}
	known, _, _ := now.of[first].value(w.datum.key)
	return !slices.ContainsFunc(now.of, func(r *replicator) bool {
		v, _, _ := r.value(w.datum.key)
		return v != known && !knew(r) && !crdt.Equal(v, known)
	})
}

func (k *datum) removed(id string) bool {
	return slices.ContainsFunc(k.writes, func(w *write) bool { return w.do == removes && w.done && w.id == id })
}

func (w *write) at(r *replicator) bool { return w.contained(r.value(w.datum.key)) }

// holders is a set of replicators that held the same data, without those that have ended.
type holders struct{ of []*replicator }

func (h *holders) some() bool { return h != nil && len(h.of) > 0 }

// mayReappear reports whether removed elements may reappear. A node that takes over the history of
// a removed node adds the elements of that node again. This addition is concurrent with removals by
// nodes that have not received the takeover.
func (w *write) mayReappear() bool {
	return w.do == removes && w.datum.kind == cart && w.by.d.plan.prunes(w.datum) && slices.ContainsFunc(w.datum.writes, func(a *write) bool {
		return a.do == adds && a.id == w.id && (a.by.ended || w.by.d.pruned[a.by.h.p.Node()]) // paused nodes are pruned as well
	})
}

// stable reports whether all replicators held the write at the same time and one of them still
// lives.
func (w *write) stable() bool { return w.has.some() }

// recordHolders records the writes that all replicators hold. Such a write may be lost only when
// all of these replicators have ended.
func (d *data) recordHolders() {
	now := &holders{d.holders()}
	if len(now.of) == 0 {
		return
	}
	d.held = append(d.held, now)
	d.rounds++
	again := d.rounds%5 == 0 // more replicators may hold the write
	for _, k := range d.keys {
		if d.plan.prunes(k) && (k.kind == counter || k.kind == balance) {
			k.recordSum(now)
			continue
		}
		for _, w := range k.writes {
			switch {
			case !w.done, w.stable() && !again, w.do == adds && k.kind == cart && k.removed(w.id):
			case slices.ContainsFunc(now.of, func(r *replicator) bool { return !w.at(r) }):
			case w.do != removes || w.reachedAll(now):
				w.has = now
			}
		}
	}
}

// recordSum records the count of a counter when it is equal everywhere.
func (k *datum) recordSum(now *holders) {
	if len(k.writes) == 0 {
		return
	}
	first, deleted, found := now.of[0].value(k.key)
	if deleted || !found {
		return
	}
	for _, r := range now.of[1:] {
		if v, deleted, found := r.value(k.key); deleted || !found || v != first && !crdt.Equal(v, first) {
			return
		}
	}
	k.base, k.has = k.sum(first), now
	for _, w := range k.writes {
		if w.done && w.do == adds {
			w.has = now
		}
	}
}

// lost records the writes that no replicator holds after one has ended.
func (d *data) lost(gone *replicator) {
	living := d.living()
	for _, h := range d.held {
		if i := slices.Index(h.of, gone); i >= 0 {
			if h.of = slices.Delete(slices.Clone(h.of), i, i+1); len(h.of) == 0 {
				d.hit("data", "all holders of a write have ended")
			}
		}
	}
	d.held = slices.DeleteFunc(d.held, func(h *holders) bool { return !h.some() })
	for _, k := range d.keys {
		if k.has != nil && !k.has.some() {
			k.base, k.has, k.untracked = 0, nil, true
		}
		for _, w := range k.writes {
			if w.acked == 0 || w.do == removes || w.stable() || w.lost || k.durable || slices.ContainsFunc(living, w.at) {
				continue
			}
			if k.kind != counter && k.kind != balance && k.kind != register && !w.at(gone) && !k.deleting() {
				gone.h.violate("acknowledged-stays", "the %v in %q, %v, acknowledged by %d, is lost, but this node never held it", w, k.key, w.level, w.held)
			}
			w.lost = true
			d.hit("data", "lost with its last replica")
		}
	}
}

// subscription is a subscriber and the events that it has received.
type subscription struct {
	nr     uint64
	prefix string
	ended  bool
	known  map[string]replication.Event
}

func (r *replicator) subscribe() {
	prefix := []string{"", "", "c", "durable/"}[r.d.rand.IntN(4)]
	f := &subscription{nr: uint64(len(r.subscriptions) + 1), prefix: prefix, known: map[string]replication.Event{}}
	r.subscriptions = append(r.subscriptions, f)
	r.after(0, func() {
		r.input(replication.Subscribe{Nr: f.nr, Key: prefix, Prefix: true})
	})
}

// resubscribe replaces a subscription, or flushes pending events.
func (d *data) resubscribe(r *replicator) {
	if d.rand.IntN(3) == 0 {
		r.after(0, func() { r.input(replication.Flush{}) })
		return
	}
	f := r.subscriptions[len(r.subscriptions)-1]
	r.after(0, func() {
		f.ended = true
		r.input(replication.Unsubscribe{Nr: f.nr})
	})
	r.subscribe()
}

// event checks that subscribers receive only events for real changes of their keys.
func (r *replicator) event(e *replication.Event) {
	r.d.hit("event", e.Kind.String())
	f := r.subscriptions[e.Nr-1]
	was, known := f.known[e.Key]
	switch {
	case f.ended:
		r.h.violate("subscribers-receive-changes", "subscription %d receives %q after its end", e.Nr, e.Key)
	case !strings.HasPrefix(e.Key, f.prefix):
		r.h.violate("subscribers-receive-changes", "the subscription to %q receives %q", f.prefix, e.Key)
	case known && was.Kind == replication.WasDeleted && e.Kind == replication.Changed && !strings.HasPrefix(e.Key, "lease"):
		r.h.violate("subscribers-receive-changes", "a change of %q is reported after its deletion", e.Key)
	case known && was.Kind == e.Kind && (e.Kind != replication.Changed || was.Value == e.Value || r.d.rand.IntN(10) == 0 && crdt.Equal(was.Value, e.Value)):
		r.h.violate("subscribers-receive-changes", "%q is reported without a change", e.Key)
	}
	f.known[e.Key] = *e
}

// outdatedSubscriber returns a difference between a subscriber's view and the data, or "".
func (d *data) outdatedSubscriber() string {
	for _, r := range d.living() {
		for _, f := range filter(r.subscriptions, func(f *subscription) bool { return !f.ended }) {
			for _, key := range r.m.Keys() {
				if v, _, _ := r.value(key); strings.HasPrefix(key, f.prefix) && (f.known[key].Kind != replication.Changed || !crdt.Equal(f.known[key].Value, v)) {
					return "a subscriber has not received the last value of " + key
				}
			}
			for key, e := range f.known {
				if _, deleted, found := r.value(key); e.Kind == replication.Changed && (!found || deleted) {
					return "a subscriber was not informed of the end of " + key
				}
			}
		}
	}
	return ""
}
