// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// kind is the kind of a key.
type kind uint8

const (
	counter  kind = iota // a GCounter
	balance              // a PNCounter
	words                // a GSet of unique elements
	cart                 // an ORSet of unique elements, which are removed too
	dict                 // an LWWMap with unique keys
	register             // an LWWRegister that one process writes
	race                 // an ORSet to which two nodes concurrently add the same element, which both remove
	stock                // a PNCounterMap whose keys come and go
	tags                 // an ORMultiMap whose keys come and go
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

	base      int64                         // count when all nodes held the same, if nodes are pruned
	has       *holders                      // the replicators that held it then
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

// action is the action of a write.
type action uint8

const (
	adds action = iota
	removes
	deletes
	nothing
)

// write is a requested change.
type write struct {
	datum *datum
	by    *replicator
	do    action
	id    string // of an element, or of a key of a map
	n     int64  // the increment, or the written number
	sum   uint64 // the node's count in the counter at that time, including taken over counts
	level replication.Level
	calls int  // calls of the update function
	done  bool // the value was changed
	acked uint64
	view  *view
	held  int      // number of replicas that acknowledged it
	has   *holders // the replicators that held it when all did
	lost  bool     // lost with the last replicator that held it
}

func (w *write) String() string {
	return fmt.Sprintf("%s of %s %d by %v", []string{"addition", "removal", "deletion", "nothing"}[w.do], w.id, w.n, w.by.h.p.Node())
}

func as[T any](v crdt.Value) T {
	t, err := crdt.As[T](nil, v)
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err)) // the type of a key never changes
	}
	return t
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
			return false // unknown: it was moved, or never existed
		}
		return tally(v, w.by.h.p.Node()) >= w.sum
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

// present is contains without the assumption that a deleted key contains everything: the node that
// has deleted a key holds nothing that others could lack.
func (w *write) present(v crdt.Value, deleted, found bool) bool {
	return deleted == (w.do == deletes) && w.contained(v, deleted, found)
}

func untyped[T any](t T) crdt.Value {
	v, err := (*crdt.Types)(nil).Value(t)
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err)) // all types are defined
	}
	return v
}

// tally returns the count of a node; each node counts in one direction only.
func tally(v crdt.Value, n identity.Node) uint64 {
	rest, err := v.Cleanup(n)
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err)) // all nodes are well
	}
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
	n, err := r.Value()
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err)) // it was written as one
	}
	return n
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

// heard reports whether all nodes know of a removal. A replicator without the element may never
// have received it, so it must have held the element when all did, or hold the same data as one
// that had.
func (w *write) heard(now *holders) bool {
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

func (w *write) onDisk(k *disk) bool { return w.contained(k.value(w.datum.key)) }

// holders is a set of replicators that held the same data, without those that have ended.
type holders struct{ of []*replicator }

func (h *holders) some() bool { return h != nil && len(h.of) > 0 }

// undone reports whether a removal may be undone: a node that takes over history adds its elements
// again, which is concurrent with removals by nodes that have not seen the takeover.
func (w *write) undone() bool {
	return w.do == removes && w.datum.kind == cart && w.by.d.plan.prunes(w.datum) && slices.ContainsFunc(w.datum.writes, func(a *write) bool {
		return a.do == adds && a.id == w.id && (a.by.ended || w.by.d.pruned[a.by.h.p.Node()]) // paused nodes are pruned as well
	})
}

// stable reports whether all replicators held it at the same time and one of them still lives.
func (w *write) stable() bool { return w.has.some() }

// look records the writes that all replicators hold. They must not be lost unless all of them end.
func (d *data) look() {
	now := &holders{d.holders()}
	if len(now.of) == 0 {
		return
	}
	d.held = append(d.held, now)
	d.looks++
	again := d.looks%5 == 0 // others may have it by now
	for _, k := range d.keys {
		if d.plan.prunes(k) && (k.kind == counter || k.kind == balance) {
			k.lookAtSum(now)
			continue
		}
		for _, w := range k.writes {
			switch {
			case !w.done, w.stable() && !again, w.do == adds && k.kind == cart && k.removed(w.id):
			case slices.ContainsFunc(now.of, func(r *replicator) bool { return !w.at(r) }):
			case w.do != removes || w.heard(now):
				w.has = now
			}
		}
	}
}

// lookAtSum records the count of a counter when it is equal everywhere.
func (k *datum) lookAtSum(now *holders) {
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
				d.hit("data", "all who had something have ended")
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
				gone.violate("acknowledged-stays", "the %v in %q, %v by %d, is lost, and this node never held it", w, k.key, w.level, w.held)
			}
			w.lost = true
			d.hit("data", "lost with its last replica")
		}
	}
}

// feed is a subscriber and the events that it has received.
type feed struct {
	nr     uint64
	prefix string
	ended  bool
	known  map[string]replication.Event
}

func (r *replicator) subscribe() {
	prefix := []string{"", "", "c", "durable/"}[r.d.rand.IntN(4)]
	f := &feed{nr: uint64(len(r.feeds) + 1), prefix: prefix, known: map[string]replication.Event{}}
	r.feeds = append(r.feeds, f)
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
	f := r.feeds[len(r.feeds)-1]
	r.after(0, func() {
		f.ended = true
		r.input(replication.Unsubscribe{Nr: f.nr})
	})
	r.subscribe()
}

// event checks that subscribers receive only events for real changes of their keys.
func (r *replicator) event(e *replication.Event) {
	r.d.hit("event", e.Kind.String())
	f := r.feeds[e.Nr-1]
	was, known := f.known[e.Key]
	switch {
	case f.ended:
		r.violate("subscribers-hear-of-changes", "subscription %d has ended, but receives %q", e.Nr, e.Key)
	case !strings.HasPrefix(e.Key, f.prefix):
		r.violate("subscribers-hear-of-changes", "the subscription to %q receives %q", f.prefix, e.Key)
	case known && was.Kind == replication.WasDeleted && e.Kind == replication.Changed && !strings.HasPrefix(e.Key, "lease"):
		r.violate("subscribers-hear-of-changes", "%q was deleted, but has changed", e.Key)
	case known && was.Kind == e.Kind && (e.Kind != replication.Changed || was.Value == e.Value || r.d.rand.IntN(10) == 0 && crdt.Equal(was.Value, e.Value)):
		r.violate("subscribers-hear-of-changes", "%q is reported without a change", e.Key)
	}
	f.known[e.Key] = *e
}

// misinformed returns a difference between a subscriber's view and the data, or an empty string.
func (r *replicator) misinformed() string {
	for _, f := range r.feeds {
		if f.ended {
			continue
		}
		for _, key := range r.m.Keys() {
			if v, _, _ := r.value(key); strings.HasPrefix(key, f.prefix) && (f.known[key].Kind != replication.Changed || !crdt.Equal(f.known[key].Value, v)) {
				return "a subscriber does not know what " + key + " holds"
			}
		}
		for key, e := range f.known {
			if _, deleted, found := r.value(key); e.Kind == replication.Changed && (!found || deleted) {
				return "a subscriber thinks that " + key + " still is there"
			}
		}
	}
	return ""
}
