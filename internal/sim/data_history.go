// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/node/replica"
	"github.com/refold-io/refold/internal/replication"
)

// kind is what a key is used for.
type kind uint8

const (
	counter  kind = iota // a GCounter
	balance              // a PNCounter
	words                // a GSet of unique elements
	cart                 // an ORSet of unique elements, which are removed too
	dict                 // an LWWMap with unique keys
	register             // an LWWRegister that one process writes
	race                 // an ORSet of which the same is added and removed at two nodes at once
	stock                // a PNCounterMap whose keys come and go
	tags                 // an ORMultiMap whose keys come and go
	leased               // a GSet that expires
	huge                 // a GSet that is larger than a message
	kinds
)

func (k kind) String() string {
	return []string{"counter", "balance", "words", "cart", "dict", "register", "race", "stock", "tags", "lease", "huge"}[k]
}

// datum is what is known of a key from outside.
type datum struct {
	key     string
	kind    kind
	durable bool
	writes  []*write
	begun   int // writes that were asked for
	writer  *replicator
	last    int64 // that the writer has written
	events  []settled

	base      int64                         // what a counter had when all had the same, if nodes are pruned
	has       *holders                      // who had it then
	owners    map[identity.Node]*replicator // who has taken over what a node has left
	twice     bool                          // two have, in clusters that did not know of each other, and disks bring that together
	untracked bool                          // what only was on disks may have been pruned
}

// use returns the key that is written at present, a new one now and then.
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

// tracked reports whether it is known what the key should hold.
func (k kind) tracked() bool { return k <= register || k == huge }

// perKey is how many changes a key gets.
const perKey = 40

// action is what a write does.
type action uint8

const (
	adds action = iota
	removes
	deletes
	nothing
)

// write is a change that was asked for.
type write struct {
	datum *datum
	by    *replicator
	do    action
	id    string // of an element, or of a key of a map
	n     int64  // that is counted, or written
	sum   uint64 // what the node has in the counter then, with what it has taken over from others
	level replication.Level
	calls int  // how often the value was changed
	done  bool // it was changed
	acked uint64
	view  *view
	held  int      // by how many, when it was acknowledged
	has   *holders // who had it when all had it
	lost  bool     // with the last that had it
}

func (w *write) String() string {
	return fmt.Sprintf("%s of %s %d by %v", []string{"addition", "removal", "deletion", "nothing"}[w.do], w.id, w.n, w.by.h.p.Node())
}

func as[T any](v crdt.Value) T {
	t, err := crdt.As[T](nil, v)
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err)) // keys never change their type
	}
	return t
}

// contains reports whether a value has what was written.
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
			return false // maybe: it was moved, or never was there
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

// present reports whether a value has what was written, and not just because the key was deleted, which has all that could be
// written: whoever has deleted it has nothing left that others could lack.
func (w *write) present(v crdt.Value, deleted, found bool) bool {
	return deleted == (w.do == deletes) && w.contained(v, deleted, found)
}

func untyped[T any](t T) crdt.Value {
	v, err := (*crdt.Types)(nil).Value(t)
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err)) // all types are known
	}
	return v
}

// tally is how much a node has counted: each only up, or only down.
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

// number is what a register holds.
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

// sum is what a counter counts.
func (k *datum) sum(v crdt.Value) int64 {
	switch {
	case v.IsZero():
		return 0
	case k.kind == counter:
		return int64(as[crdt.GCounter](v).Value()) //nolint:gosec // it is small
	}
	return as[crdt.PNCounter](v).Value()
}

// deleting reports whether anybody has deleted the key.
func (k *datum) deleting() bool {
	return slices.ContainsFunc(k.writes, func(w *write) bool { return w.do == deletes && w.done })
}

// heard reports whether all know of a removal. Who does not have the element may just never have heard of it: it had
// it when all did, or holds the same as one that had it.
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

// removed reports whether anybody has removed an element.
func (k *datum) removed(id string) bool {
	return slices.ContainsFunc(k.writes, func(w *write) bool { return w.do == removes && w.done && w.id == id })
}

// at returns whether a replicator has what was written.
func (w *write) at(r *replicator) bool { return w.contained(r.value(w.datum.key)) }

// onDisk returns whether a disk has it.
func (w *write) onDisk(k *disk) bool { return w.contained(k.value(w.datum.key)) }

// holders are replicators that all have something, those of them that have not ended.
type holders struct{ of []*replicator }

func (h *holders) some() bool { return h != nil && len(h.of) > 0 }

// undone reports whether a removal may be undone: who takes over what a node has left adds its elements anew, and
// that is concurrent with removals by those who have not heard of it yet.
func (w *write) undone() bool {
	return w.do == removes && w.datum.kind == cart && w.by.d.plan.prunes(w.datum) && slices.ContainsFunc(w.datum.writes, func(a *write) bool {
		return a.do == adds && a.id == w.id && (a.by.ended || w.by.d.pruned[a.by.h.p.Node()]) // who is paused is pruned, too
	})
}

// stable reports whether all had it at once, and one of them still lives.
func (w *write) stable() bool { return w.has.some() }

// look notes what all have by now: it must not be lost unless all of them are.
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

// lookAtSum notes what a counter has when it is the same everywhere.
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

// lost notes what nobody has any more after a replicator has ended.
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
				gone.violate("acknowledged-stays", "the %v in %q, %v by %d, is nowhere any more, and it never had it", w, k.key, w.level, w.held)
			}
			w.lost = true
			d.hit("data", "lost with its last replica")
		}
	}
}

// feed is a subscriber and what it was told.
type feed struct {
	nr     uint64
	prefix string
	ended  bool
	known  map[string]replication.Event
}

// subscribe begins to listen to keys: to all, or to some.
func (r *replicator) subscribe() {
	prefix := []string{"", "", "c", "durable/"}[r.d.rand.IntN(4)]
	f := &feed{nr: uint64(len(r.feeds) + 1), prefix: prefix, known: map[string]replication.Event{}}
	r.feeds = append(r.feeds, f)
	r.after(0, func() {
		r.step(replica.Batch{Inputs: []replication.Input{replication.Subscribe{Nr: f.nr, Key: prefix, Prefix: true}}})
	})
}

// resubscribe ends a subscription and begins another, or wants to know at once.
func (d *data) resubscribe(r *replicator) {
	if d.rand.IntN(3) == 0 {
		r.after(0, func() { r.step(replica.Batch{Inputs: []replication.Input{replication.Flush{}}}) })
		return
	}
	f := r.feeds[len(r.feeds)-1]
	r.after(0, func() {
		f.ended = true
		r.step(replica.Batch{Inputs: []replication.Input{replication.Unsubscribe{Nr: f.nr}}})
	})
	r.subscribe()
}

// event: subscribers are told of changes only, until they are there no more.
func (r *replicator) event(e *replication.Event) {
	r.d.hit("event", []string{"", "changed", "deleted", "expired"}[e.Kind])
	f := r.feeds[e.Nr-1]
	was, known := f.known[e.Key]
	switch {
	case f.ended:
		r.violate("subscribers-hear-of-changes", "subscription %d has ended, and hears of %q", e.Nr, e.Key)
	case !strings.HasPrefix(e.Key, f.prefix):
		r.violate("subscribers-hear-of-changes", "a subscription to %q hears of %q", f.prefix, e.Key)
	case known && was.Kind == replication.WasDeleted && e.Kind == replication.Changed && !strings.HasPrefix(e.Key, "lease"):
		r.violate("subscribers-hear-of-changes", "%q was deleted, and has changed", e.Key)
	case known && was.Kind == e.Kind && (e.Kind != replication.Changed || was.Value == e.Value || r.d.rand.IntN(10) == 0 && crdt.Equal(was.Value, e.Value)):
		r.violate("subscribers-hear-of-changes", "%q has changed to what it was", e.Key)
	}
	f.known[e.Key] = *e
}

// misinformed returns what subscribers are wrong about, or nothing.
func (r *replicator) misinformed() string {
	for _, f := range r.feeds {
		if f.ended {
			continue
		}
		for _, key := range r.m.Protocol().Keys() {
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
