// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/sharding/allocation"
)

const (
	step   = 100 * time.Millisecond
	shards = 40
	margin = 3 * time.Second
	unrest = 90 * time.Second // end of the faults
	settle = 120 * time.Second
)

// world has nodes with regions, a store, and a coordinator on the oldest node, sometimes two. Its
// network loses, delays, repeats and reorders messages.
type world struct {
	t            *testing.T
	rnd          *rand.Rand
	seed         uint64
	remember     bool
	faults       bool
	now          time.Duration
	due          agenda
	seq          int
	store        *store
	regions      []*region // regions, the oldest first
	coordinators []*simCoordinator
	removals     []coordinator.Removal
	hosting      map[shard]*region
	view         coordinator.Members
	hit          map[string]int
	names        int
	quiet        time.Duration // the time from which no new entity is needed
}

// simCoordinator is the coordinator of a node.
type simCoordinator struct {
	w    *world
	r    *region // region of the coordinator's node
	m    *coordinator.Machine
	gone bool
}

type task struct {
	at  time.Duration
	seq int
	do  func()
}

type agenda []task

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, k int) bool {
	return a[i].at < a[k].at || a[i].at == a[k].at && a[i].seq < a[k].seq
}
func (a agenda) Swap(i, k int) { a[i], a[k] = a[k], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(task)) } //nolint:errcheck // the heap has only tasks
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.due, task{w.now + d, w.seq, do})
}

func (w *world) delay() time.Duration {
	if w.faults && w.rnd.IntN(12) == 0 {
		return time.Duration(w.rnd.IntN(int(3 * time.Second)))
	}
	return time.Duration(w.rnd.IntN(int(60 * time.Millisecond)))
}

func (w *world) find(n identity.Node) *region {
	i := slices.IndexFunc(w.regions, func(r *region) bool { return r.node == n })
	if i < 0 {
		return nil
	}
	return w.regions[i]
}

// post sends a message through the faulty network.
func (w *world) post(from, to identity.Node, m coordinator.Message, toRegion bool) {
	decoded, err := coordinator.DecodeMessage(coordinator.AppendMessage(nil, m))
	if err != nil {
		w.t.Fatal(err)
	}
	w.hit[m.Kind.String()]++
	for range 1 + w.rnd.IntN(10)/9 {
		if w.faults && w.rnd.IntN(12) == 0 {
			continue
		}
		w.after(w.delay(), func() {
			sender, receiver := w.find(from), w.find(to)
			if sender == nil || receiver == nil || from != to && (sender.cut || receiver.cut) || !receiver.alive {
				return
			}
			if toRegion {
				receiver.receive(from, decoded)
				return
			}
			for _, b := range w.coordinators {
				if b.r == receiver {
					b.step(coordinator.Received{From: from, Message: decoded})
				}
			}
		})
	}
}

// candidates returns the nodes that may have a coordinator.
func (w *world) candidates() []identity.Node {
	var nodes []identity.Node
	for _, b := range w.coordinators {
		if !b.gone {
			nodes = append(nodes, b.r.node)
		}
	}
	return nodes
}

func (w *world) host(r *region, s shard) {
	if other := w.hosting[s]; other != nil {
		w.t.Fatalf("seed %d, %v: %v starts shard %d, which %v hosts", w.seed, w.now, r.node, s, other.node)
	}
	w.hosting[s] = r
	w.hit["hosts"]++
}

func (w *world) unhost(r *region, s shard) {
	if w.hosting[s] == r {
		delete(w.hosting, s)
	}
}

func (w *world) join(proxy bool) {
	w.names++
	r := &region{w: w, node: identity.Node{Name: fmt.Sprintf("n%02d", (w.names*37)%100), UID: uint64(w.names)}, proxy: proxy, alive: true}
	r.start()
	w.regions = append(w.regions, r)
	w.publish()
}

// publish sends the members to the coordinators.
func (w *world) publish() {
	w.view = coordinator.Members{Removed: slices.Clone(w.removals)}
	for i, r := range w.regions {
		m := identity.Member{Node: r.node, Status: identity.Up, UpNumber: int32(i)}
		if !r.proxy {
			m.Roles = []string{"entities"}
		}
		w.view.Members = append(w.view.Members, m)
	}
	slices.SortFunc(w.view.Members, func(a, b identity.Member) int { return a.Node.Compare(b.Node) })
	for _, b := range w.coordinators {
		if !b.r.cut {
			b.step(w.view)
		}
	}
}

// startCoordinator starts a coordinator on a node.
func (w *world) startCoordinator(r *region) {
	m, err := coordinator.New(coordinator.Config{
		Self: r.node, Type: "account", Role: "entities", Shards: shards, MinRegions: 2, Remember: w.remember, RemovalMargin: func(int) time.Duration { return margin }, HandOffTimeout: 15 * time.Second,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.hit["appointed"]++
	b := &simCoordinator{w: w, r: r, m: m}
	w.coordinators = append(w.coordinators, b)
	w.after(5*time.Second, func() { // in the end all nodes accept the other coordinator
		for _, r := range w.regions {
			r.registered = false
		}
	})
	b.step(w.view)
}

func (b *simCoordinator) step(in coordinator.Input) {
	if !b.gone && b.r.alive {
		b.apply(b.m.Step(b.w.now, in))
	}
}

func (b *simCoordinator) tick() {
	if b.gone || !b.r.alive || b.w.now < b.m.Next() {
		return
	}
	b.apply(b.m.Tick(b.w.now))
	if !b.gone && b.m.Next() <= b.w.now {
		b.w.t.Fatalf("seed %d, %v: after a tick Next() = %v, want a later time", b.w.seed, b.w.now, b.m.Next())
	}
}

func (b *simCoordinator) apply(e coordinator.Effects) {
	w := b.w
	for _, n := range e.Notes {
		w.hit[n.Kind.String()]++
	}
	if e.Load != 0 {
		w.store.load(b, e.Load)
	}
	if e.AddShards != nil {
		w.store.add(b, *e.AddShards)
	}
	if e.Save != nil {
		for _, ev := range e.Save.Events {
			if w.remember && ev.Kind == coordinator.HomesAllocated && slices.ContainsFunc(ev.Shards, func(s shard) bool { return !w.store.known[s] }) {
				w.t.Fatalf("seed %d, %v: %v was stored before its shards were remembered", w.seed, w.now, ev)
			}
		}
		w.store.do(b, *e.Save)
	}
	if e.Ask != nil {
		b.place(*e.Ask)
	}
	if e.Rebalance != nil {
		b.rebalance(*e.Rebalance)
	}
	b.check(e.Send)
	b.checkPins(e.Notes)
	for _, o := range e.Send {
		w.post(b.r.node, o.To, o.Message, true)
	}
	if e.ShutDownRegion {
		b.r.leaving = true
	}
	if e.Stop != 0 {
		w.hit[e.Stop.String()]++
		if e.Stop == coordinator.Diverged {
			w.t.Errorf("seed %d, %v: a coordinator diverged", w.seed, w.now)
		}
		b.gone = true
	}
}

// check verifies that sent homes are stored and not moving.
func (b *simCoordinator) check(out []coordinator.Outgoing) {
	w := b.w
	if len(out) == 0 {
		return
	}
	state, rev := b.m.State()
	prefix, err := coordinator.State{}.Apply(w.store.events[:min(rev, w.store.rev())]...)
	if err != nil || rev > w.store.rev() || !prefix.Equal(state) {
		w.t.Fatalf("seed %d, %v: the state of %v at %d differs from the stored state: %v", w.seed, w.now, b.r.node, rev, err)
	}
	if state.Term() != b.m.Term() || state.Holder() != b.r.node {
		w.t.Fatalf("seed %d, %v: %v sends in term %d, but term %d is stored", w.seed, w.now, b.r.node, b.m.Term(), state.Term())
	}
	moving := b.m.Moving()
	rest := out
	begins := func(s shard) bool { // the hand-off begins after the message, in a higher round
		return slices.ContainsFunc(rest, func(o coordinator.Outgoing) bool {
			return o.Message.Kind == coordinator.BeginHandOff && slices.Contains(o.Message.Shards, s)
		})
	}
	checkHome := func(s shard, n identity.Node, kind coordinator.Kind) {
		if home, _ := state.Home(s); home != n {
			w.t.Fatalf("seed %d, %v: %v of shard %d has home %v, stored is %v", w.seed, w.now, kind, s, n, home)
		}
		if slices.Contains(moving, s) && !begins(s) {
			w.t.Fatalf("seed %d, %v: %v of shard %d during its hand-off", w.seed, w.now, kind, s)
		}
	}
	for i, o := range out {
		if o.Message.Term != b.m.Term() {
			w.t.Fatalf("seed %d, %v: %+v is sent by a coordinator of term %d", w.seed, w.now, o, b.m.Term())
		}
		rest = out[i:]
		for _, h := range o.Message.Homes {
			for _, s := range h.Shards {
				checkHome(s, h.Node, o.Message.Kind)
			}
		}
		if o.Message.Kind == coordinator.Host {
			for _, s := range o.Message.Shards {
				checkHome(s, o.To, o.Message.Kind)
			}
		}
	}
}

// checkPins verifies that a pinned shard is not moved away from its node while the node is up and
// not leaving, and that a rebalance does not choose it.
func (b *simCoordinator) checkPins(notes []coordinator.Note) {
	state, _ := b.m.State()
	for _, n := range notes {
		if n.Kind != coordinator.HandOffBegun {
			continue
		}
		for _, s := range n.Shards {
			name, _ := state.Pin(s)
			home, _ := state.Home(s)
			if r := b.w.find(home); home.Name == name && r != nil && !r.leaving && !r.left {
				b.w.t.Fatalf("seed %d, %v: shard %d moves away from %v, which it is pinned to", b.w.seed, b.w.now, s, home)
			}
			if name != "" {
				b.w.hit["pinned shard moves"]++
			}
		}
	}
}

func (b *simCoordinator) place(ask coordinator.AskStrategy) {
	w := b.w
	homes := allocation.All(ask.View, ask.Requests, allocation.LeastShards{}.Allocate)
	if w.faults {
		for i := range homes {
			switch w.rnd.IntN(20) {
			case 0:
				homes[i] = identity.Node{}
			case 1:
				homes[i] = w.regions[w.rnd.IntN(len(w.regions))].node
			}
		}
		if w.rnd.IntN(20) == 0 {
			homes = homes[:w.rnd.IntN(len(homes))]
		}
	}
	w.after(w.delay(), func() { b.step(coordinator.HomesChosen{ID: ask.ID, Homes: homes}) })
}

func (b *simCoordinator) rebalance(ask coordinator.AskRebalance) {
	w := b.w
	moved := allocation.LeastShards{}.Rebalance(ask.View)
	if w.faults {
		for range w.rnd.IntN(8) {
			moved = append(moved, shard(w.rnd.IntN(shards+5)))
		}
	}
	w.after(w.delay(), func() { b.step(coordinator.Rebalanced{ID: ask.ID, Shards: moved}) })
}

// disturb injects random faults.
func (w *world) disturb() {
	if len(w.coordinators) == 0 || len(w.regions) == 0 {
		return
	}
	r := w.regions[w.rnd.IntN(len(w.regions))]
	well := len(slices.DeleteFunc(slices.Clone(w.regions), func(r *region) bool { return !r.alive || r.cut || r.proxy || r.leaving }))
	switch w.rnd.IntN(120) {
	case 0, 1:
		if len(w.regions) < 8 {
			w.join(w.rnd.IntN(4) == 0)
		}
	case 2:
		if well > 2 && r.alive && !r.cut {
			w.hit["crash"]++
			r.crash()
		}
	case 3:
		if well > 2 && r.alive && !r.cut {
			w.hit["cut"]++
			r.cut = true
			for _, b := range w.coordinators { // a node that is cut off does not become the coordinator
				b.gone = b.gone || b.r == r && b.m.Phase() < coordinator.Settling
			}
		}
	case 4, 5:
		if well > 2 && !r.proxy {
			w.hit["leave"]++
			r.leaving = true
		}
	case 6:
		if r.alive && !r.proxy {
			w.hit["restart"]++
			r.restart()
		}
	case 7:
		if b := w.coordinators[w.rnd.IntN(len(w.coordinators))]; !b.gone { // the coordinator fails, and a new one replaces it
			w.hit["fails"]++
			b.gone = true
		}
	case 8:
		if r.alive && !r.cut && !r.proxy && !slices.Contains(w.candidates(), r.node) { // a second coordinator in parallel
			w.hit["second"]++
			w.startCoordinator(r)
		}
	case 9:
		if b := w.coordinators[w.rnd.IntN(len(w.coordinators))]; !b.gone {
			w.hit["terminate"]++
			b.step(coordinator.Terminate{Now: w.rnd.IntN(3) == 0})
		}
	case 10:
		if b := w.coordinators[w.rnd.IntN(len(w.coordinators))]; !b.gone {
			w.hit["now"]++
			b.step(coordinator.RebalanceNow{})
		}
	case 11, 12:
		if b := w.coordinators[w.rnd.IntN(len(w.coordinators))]; !b.gone { // an operator moves a shard, or releases it
			p := coordinator.Pin{Shard: shard(w.rnd.IntN(shards)), Node: r.node.Name}
			if pins := w.store.state.Pins(); w.rnd.IntN(3) == 0 && len(pins) > 0 {
				p = coordinator.Pin{Shard: pins[w.rnd.IntN(len(pins))].Shard}
			}
			if b.m.CheckPin(p.Shard, p.Node) == nil {
				w.hit["pin"]++
				b.step(coordinator.SetPin{Pin: p})
			}
		}
	}
}

// lead removes terminated members and starts a coordinator if there is none.
func (w *world) lead() {
	for _, r := range slices.Clone(w.regions) {
		gone := !r.alive || r.cut
		if gone && w.rnd.IntN(40) == 0 || r.left && w.rnd.IntN(10) == 0 {
			w.hit["removed"]++
			w.regions = slices.DeleteFunc(w.regions, func(o *region) bool { return o == r })
			w.removals = append(w.removals, coordinator.Removal{Node: r.node, Until: w.now + margin})
			if r.cut && r.alive { // the node stops before the margin is over
				w.after(time.Duration(w.rnd.IntN(int(margin-step))), r.crash)
			}
			w.publish()
			for _, o := range w.regions {
				o.forget(r.node)
			}
		}
	}
	stay := slices.DeleteFunc(slices.Clone(w.regions), func(r *region) bool { return r.proxy || !r.alive || r.cut || r.leaving })
	if len(stay) < 2 && (!w.faults || len(w.regions) == 0) {
		w.join(false)
	}
	for _, r := range w.regions { // the oldest eligible node runs the coordinator
		if r.proxy || !r.alive || r.cut || r.left {
			continue
		}
		if !slices.ContainsFunc(w.coordinators, func(b *simCoordinator) bool { return b.r == r && !b.gone }) && w.rnd.IntN(20) == 0 {
			w.startCoordinator(r)
		}
		break
	}
}

func (w *world) run(until time.Duration) {
	for w.now < until {
		next := (w.now/step + 1) * step
		for len(w.due) > 0 && w.due[0].at <= next {
			do := heap.Pop(&w.due).(task) //nolint:errcheck // the heap has only tasks
			w.now = do.at
			do.do()
		}
		w.now = next
		if w.faults {
			w.disturb()
		}
		w.lead()
		for _, r := range w.regions {
			if r.alive && w.rnd.IntN(3) == 0 && w.now < w.quiet {
				r.use(shard(w.rnd.IntN(shards)))
			}
			if r.alive && w.rnd.IntN(10) == 0 {
				r.tick()
			}
		}
		for _, b := range w.coordinators {
			b.tick()
		}
		w.coordinators = slices.DeleteFunc(w.coordinators, func(b *simCoordinator) bool { return b.gone || !b.r.alive })
	}
}

// settled checks the state after some time without faults.
func (w *world) settled() {
	var oldest *simCoordinator
	for _, b := range w.coordinators {
		if b.m.Phase() == coordinator.Active && (oldest == nil || b.m.Term() > oldest.m.Term()) {
			oldest = b
		}
	}
	if oldest == nil || oldest.m.Term() != w.store.state.Term() {
		w.t.Errorf("seed %d: no coordinator runs at the end", w.seed)
		return
	}
	if moving := oldest.m.Moving(); len(moving) > 0 {
		w.t.Errorf("seed %d: Moving() = %v at the end, want none", w.seed, moving)
	}
	regions := 0
	for _, r := range w.regions {
		if !r.registered || len(r.wanted) > 0 {
			w.t.Errorf("seed %d: at the end %v is registered: %t, and waits for homes of %v", w.seed, r.node, r.registered, r.wanted)
		}
		if _, known := w.store.state.Region(r.node); !r.proxy {
			regions++
			if !known {
				w.t.Errorf("seed %d: %v is not registered in the state", w.seed, r.node)
			}
		}
		for s, n := range r.homes {
			// A region replies to a message for a shard that it does not host, and the sender
			// requests the home.
			if home, _ := w.store.state.Home(s); home != n && w.find(n) != nil && w.find(n).hosts[s] {
				w.t.Errorf("seed %d: %v has home %v for shard %d, want %v", w.seed, r.node, n, s, home)
			}
		}
	}
	if n := len(w.store.state.Regions()); n != regions {
		w.t.Errorf("seed %d: %d regions are registered, want %d", w.seed, n, regions)
	}
	for _, p := range w.store.state.Pins() { // no node is leaving any more
		home, found := w.store.state.Home(p.Shard)
		if found && home.Name != p.Node && slices.ContainsFunc(w.store.state.Regions(), func(r allocation.Region) bool { return r.Node.Name == p.Node }) {
			w.t.Errorf("seed %d: shard %d is on %v, but it is pinned to the member %s, which can host it: %v", w.seed, p.Shard, home, p.Node, oldest.m.CheckPin(p.Shard, p.Node))
		}
	}
	for s := range shard(shards) {
		home, found := w.store.state.Home(s)
		switch r := w.hosting[s]; {
		case r != nil && r.node != home:
			w.t.Errorf("seed %d: shard %d has home %v, but runs on %v", w.seed, s, home, r.node)
		case found && r == nil, w.store.known[s] && r == nil:
			w.t.Errorf("seed %d: shard %d does not run on its home %v", w.seed, s, home)
		}
	}
}

func simulate(t *testing.T, seed uint64, register, remember bool, hit map[string]int) *world {
	t.Helper()
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 6)), seed: seed, remember: remember, faults: true, hosting: map[shard]*region{}, hit: hit}
	w.store = &store{w: w, register: register, fold: coordinator.NewFold(coordinator.State{}), known: map[shard]bool{}}
	if w.quiet = unrest; !remember { // remembered shards start without a request
		w.quiet += settle - 20*time.Second
	}
	for i := range 3 + w.rnd.IntN(3) {
		w.join(i == 3)
	}
	w.run(unrest)
	w.faults = false
	for _, r := range w.regions { // all leaving regions must have left
		if r.leaving && !r.left {
			w.hit["still leaving"]++
		}
	}
	w.run(unrest + settle)
	// A round of moves may still run after a late leave.
	for range 12 {
		if !slices.ContainsFunc(w.coordinators, func(b *simCoordinator) bool { return len(b.m.Moving()) > 0 }) {
			break
		}
		w.run(w.now + 5*time.Second)
	}
	w.run(w.now + 5*time.Second)
	// The claim of a crashed coordinator may have been stored late. The running coordinator detects
	// it at its next save. A new region causes a save.
	if !slices.ContainsFunc(w.coordinators, func(b *simCoordinator) bool { return b.m.Term() == w.store.state.Term() }) {
		w.hit["claimed late"]++
		w.join(false)
		w.run(w.now + settle)
	}
	w.settled()
	return w
}

// TestOneHome simulates coordinators, regions and stores with loss, repetition, delay, reordering,
// crashes, cuts, failing saves and second coordinators. A shard never runs twice, only stored
// decisions are sent, and all needed shards run at the end.
func TestOneHome(t *testing.T) {
	t.Parallel()
	seeds := effort.Count[uint64](14, 20, 2000)
	for _, register := range []bool{false, true} {
		for _, remember := range []bool{false, true} {
			t.Run(fmt.Sprintf("register %t, remember %t", register, remember), func(t *testing.T) {
				t.Parallel()
				hit := map[string]int{}
				for seed := range seeds {
					simulate(t, seed, register, remember, hit)
					if t.Failed() {
						break
					}
				}
				want := []string{
					"started", "region registered", "proxy registered", "region terminated", "proxy terminated", "homes allocated", "homes deallocated",
					"not stored", "stored, answer lost", "lands late", "hangs, not stored", "hangs, lands late", "load failed", "refused",
					"crash", "cut", "leave", "restart", "fails", "second", "terminate", "now", "removed", "late", "hosts",
					"shards pinned", "shards released", "pin", "pinned shard moves", "hand-off begun", "hand-off done", "hand-off failed", "not allocated", "terminating", "ignored", "save retried",
					"superseded by a higher term", "terminated", "fenced",
				}
				for _, name := range want {
					if hit[name] == 0 {
						t.Errorf("%q never occurred", name)
					}
				}
				t.Log(hit)
			})
		}
	}
}
