// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

var started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a set of machines with a simulated network. The test sets the members.
type world struct {
	tb      testing.TB
	rnd     *rand.Rand
	cfg     replication.Config
	now     time.Duration
	hosts   []*host
	members []identity.Member
	post    []envelope
	lossy   bool
	cut     func(a, b *host) bool // messages from a to b are lost
	last    uint64                // the last request
	sent    []envelope            // all sent messages if keep is set
	keep    bool
	ups     int32
}

type host struct {
	w       *world
	self    identity.Node
	actor   *crdt.Self
	m       *replication.Machine
	ended   bool
	stopped bool
	disk    map[string][]byte
	broken  error // the error of the disk
	held    bool  // the disk does not respond
	storing []replication.Store
	replies map[uint64]replication.Reply
	events  []replication.Event
	notes   []replication.Note
	values  map[string]replication.Change
	when    map[uint64]func(replication.Reply)
}

// envelope is a message in transit.
type envelope struct {
	at       time.Duration
	from, to *host
	send     message
}

// message is an encoded message with its kind.
type message struct {
	Bulk bool
	Kind replication.Kind
	Data []byte
}

// received is a message for a machine.
type received struct {
	From identity.Node
	Data []byte
}

// batch returns the batch with one input, which may also be Members or received.
func batch(in any) replication.Batch {
	switch in := in.(type) {
	case replication.Members:
		return replication.Batch{Members: &in}
	case received:
		payload := append([]byte{1, 1, 'r'}, binary.AppendUvarint(nil, uint64(len(in.Data)))...)
		return replication.Batch{Packets: []replication.Packet{{From: in.From, Payload: append(payload, in.Data...)}}}
	case replication.Input:
		return replication.Batch{Inputs: []replication.Input{in}}
	}
	panic(fmt.Sprintf("%T is not an input", in))
}

// unpacked returns the messages in a packet of a replicator with a name of one letter.
func unpacked(s replication.Send) (all []message) {
	for rest := s.Payload[3:]; len(rest) > 0; {
		size, n := binary.Uvarint(rest)
		data := rest[n : n+int(size)]
		all = append(all, message{s.Bulk, replication.Kind(data[1]), data})
		rest = rest[n+int(size):]
	}
	return all
}

func newWorld(tb testing.TB, seed uint64, cfg replication.Config, n int) *world {
	tb.Helper()
	w := &world{tb: tb, rnd: rand.New(rand.NewPCG(seed, 5)), cfg: cfg}
	for range n {
		w.start(fmt.Sprintf("n%d", len(w.hosts)+1), nil)
	}
	for _, h := range w.hosts {
		w.set(h.self, identity.Up)
	}
	w.sendMembers()
	return w
}

// start starts a node that is not a member yet.
func (w *world) start(name string, disk map[string][]byte) *host {
	w.tb.Helper()
	h := &host{
		w: w, self: identity.Node{Name: name, UID: uint64(len(w.hosts) + 1)}, disk: disk, replies: map[uint64]replication.Reply{},
		values: map[string]replication.Change{}, when: map[uint64]func(replication.Reply){},
	}
	if h.disk == nil {
		h.disk = map[string][]byte{}
	}
	h.actor = must(crdt.NewSelf(h.self))
	cfg := w.cfg
	cfg.Name, cfg.Self, cfg.Started, cfg.Rand = "r", h.actor, started, rand.New(rand.NewPCG(w.rnd.Uint64(), 7))
	m, err := replication.New(cfg)
	if err != nil {
		w.tb.Fatal(err)
	}
	h.m = m
	w.hosts = append(w.hosts, h)
	for _, key := range sortedKeys(h.disk) {
		h.step(replication.Load{Key: key, Data: h.disk[key]})
	}
	h.step(replication.Loaded{})
	return h
}

// set sets the status of a member without notifying the nodes.
func (w *world) set(n identity.Node, s identity.Status) {
	i, found := slices.BinarySearchFunc(w.members, n, func(m identity.Member, n identity.Node) int { return m.Node.Compare(n) })
	w.members = slices.Clone(w.members)
	switch {
	case s == identity.Removed:
		if found {
			w.members = slices.Delete(w.members, i, i+1)
		}
		return
	case !found:
		w.members = slices.Insert(w.members, i, identity.Member{Node: n, UpNumber: math.MaxInt32})
	}
	if s == identity.Up && w.members[i].UpNumber == math.MaxInt32 {
		w.ups++
		w.members[i].UpNumber = w.ups
	}
	w.members[i].Status = s
}

// sendMembers sends the members and the unreachable nodes to all nodes.
func (w *world) sendMembers() {
	for _, h := range w.hosts {
		h.sendMembers()
	}
}

func (h *host) sendMembers() {
	if h.ended {
		return
	}
	in := replication.Members{All: h.w.members}
	for _, o := range h.w.members {
		if p := h.w.host(o.Node); p.ended || h.w.cut != nil && (h.w.cut(h, p) || h.w.cut(p, h)) {
			in.Unreachable = append(in.Unreachable, o.Node)
		}
	}
	h.step(in)
}

func (w *world) host(n identity.Node) *host {
	i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.self == n })
	return w.hosts[i]
}

func (h *host) step(in any) { h.apply(h.m.Step(h.w.now, batch(in))) }

func (h *host) apply(e replication.Effects) {
	h.notes = append(h.notes, e.Notes...)
	h.storing = append(h.storing, e.Store...)
	for _, s := range e.Send {
		for _, m := range unpacked(s) {
			h.w.transmit(h, h.w.host(s.To), m)
		}
	}
	for _, c := range e.Values {
		h.values[c.Key] = c
	}
	for _, r := range e.Replies {
		if _, again := h.replies[r.ID]; again {
			h.w.tb.Errorf("%v: request %d was answered twice", h.self, r.ID)
		}
		h.replies[r.ID] = r
		if f := h.when[r.ID]; f != nil {
			delete(h.when, r.ID)
			f(r)
		}
	}
	h.events = append(h.events, e.Events...)
	h.stopped = h.stopped || e.Stopped
	h.m.Reuse(e)
}

// sync performs the pending writes of the disk.
func (h *host) sync() {
	for len(h.storing) > 0 && !h.held && !h.ended {
		batch := h.storing
		h.storing = nil
		in := replication.Stored{Err: h.broken}
		for _, s := range batch {
			in.Nrs = append(in.Nrs, s.Nr)
			switch {
			case h.broken != nil:
			case s.Data == nil:
				delete(h.disk, s.Key)
			default:
				h.disk[s.Key] = s.Data
			}
		}
		h.step(in)
	}
}

func (w *world) transmit(from, to *host, m message) {
	if w.keep {
		w.sent = append(w.sent, envelope{w.now, from, to, m})
	}
	times := 1
	delay := time.Millisecond
	if w.lossy {
		switch w.rnd.IntN(20) {
		case 0, 1:
			return
		case 2:
			times = 2
		}
	}
	for range times {
		if w.lossy {
			if delay = time.Duration(w.rnd.IntN(int(20 * time.Millisecond))); w.rnd.IntN(20) == 0 {
				delay = time.Duration(w.rnd.IntN(int(2 * time.Second)))
			}
		}
		w.post = append(w.post, envelope{w.now + delay, from, to, m})
	}
}

// next processes the next event before a time. It reports whether there was such an event.
func (w *world) next(until time.Duration) bool {
	for _, h := range w.hosts {
		h.sync()
	}
	at := replication.Never
	mail, tick := -1, (*host)(nil)
	for i := range w.post {
		if w.post[i].at < at {
			at, mail = w.post[i].at, i
		}
	}
	for _, h := range w.hosts {
		if next := max(h.m.Next(), w.now); !h.ended && !h.stopped && next < at {
			at, mail, tick = next, -1, h
		}
	}
	if at > until {
		w.now = max(w.now, until)
		return false
	}
	w.now = max(w.now, at)
	if mail < 0 {
		tick.apply(tick.m.Tick(w.now))
		return true
	}
	l := w.post[mail]
	w.post = slices.Delete(w.post, mail, mail+1)
	if lost := l.to.ended || l.to.stopped || w.cut != nil && w.cut(l.from, l.to); !lost {
		l.to.step(received{From: l.from.self, Data: l.send.Data})
	}
	return true
}

// run advances the time.
func (w *world) run(d time.Duration) {
	until := w.now + d
	for w.next(until) {
	}
}

func (w *world) alive() []*host {
	return slices.DeleteFunc(slices.Clone(w.hosts), func(h *host) bool { return h.ended || h.stopped })
}

// converged reports whether all nodes hold the same data.
func (w *world) converged() bool {
	all := w.alive()
	for _, h := range all[1:] {
		if h.m.Root() != all[0].m.Root() {
			return false
		}
	}
	return true
}

// converge waits until all nodes hold the same data.
func (w *world) converge(d time.Duration) {
	w.tb.Helper()
	for until := w.now + d; !w.converged(); {
		if !w.next(until) {
			w.tb.Fatalf("after %v, the nodes have not converged", w.now)
		}
	}
}

// wait processes events until a request is answered.
func (w *world) wait(h *host, id uint64) replication.Reply {
	w.tb.Helper()
	for {
		if r, found := h.replies[id]; found {
			return r
		}
		if !w.next(w.now + time.Hour) {
			w.tb.Fatalf("request %d of %v was not answered", id, h.self)
		}
	}
}

func (w *world) id() uint64 {
	w.last++
	return w.last
}

func (h *host) request(key string, l replication.Level) replication.Request {
	return replication.Request{ID: h.w.id(), Key: key, Level: l}
}

// update changes a value and returns the number of the request.
func update[T any](h *host, key string, l replication.Level, f func(T) (T, error)) uint64 {
	r := h.request(key, l)
	h.step(replication.Update{Request: r, Modify: modify(f)})
	return r.ID
}

func modify[T any](f func(T) (T, error)) func(crdt.Value) (crdt.Value, error) {
	return func(v crdt.Value) (crdt.Value, error) {
		t, err := crdt.As[T](nil, v)
		if err != nil {
			return v, err
		}
		if t, err = f(t); err != nil {
			return v, err
		}
		return (*crdt.Types)(nil).Value(t)
	}
}

func (h *host) get(key string, l replication.Level) uint64 {
	r := h.request(key, l)
	h.step(replication.Get{Request: r})
	return r.ID
}

func (h *host) del(key string, l replication.Level) uint64 {
	r := h.request(key, l)
	h.step(replication.Delete{Request: r})
	return r.ID
}

// add increments a counter on a node.
func (h *host) add(key string, l replication.Level, n uint64) uint64 {
	return update(h, key, l, func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(h.actor, n), nil })
}

func (h *host) put(key string, l replication.Level, elements ...string) uint64 {
	return update(h, key, l, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s.Add(h.actor, elements...) })
}

func remover(h *host, elements ...string) func(crdt.ORSet[string]) (crdt.ORSet[string], error) {
	return func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s.Remove(h.actor, elements...) }
}

func (h *host) drop(key string, l replication.Level, elements ...string) {
	update(h, key, l, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
		return s.Remove(h.actor, elements...)
	})
}

func (h *host) write(key string, l replication.Level, text string) uint64 {
	return update(h, key, l, func(r crdt.LWWRegister[string]) (crdt.LWWRegister[string], error) { return r.Set(h.actor, text) })
}

// show formats the value of a key.
func (h *host) show(key string) string {
	v, deleted, found := h.m.Value(key)
	switch {
	case !found:
		return "-"
	case deleted:
		return "deleted"
	}
	return show(v)
}

func show(v crdt.Value) string {
	if v.IsZero() {
		return "nothing"
	}
	switch {
	case v.Type() == "GCounter":
		return fmt.Sprint(must(crdt.As[crdt.GCounter](nil, v)).Value())
	case strings.HasPrefix(v.Type(), "ORSet"):
		return strings.Join(must(must(crdt.As[crdt.ORSet[string]](nil, v)).Elements()), " ")
	case strings.HasPrefix(v.Type(), "LWWRegister"):
		return must(must(crdt.As[crdt.LWWRegister[string]](nil, v)).Value())
	}
	return v.Type()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare)
	return keys
}
