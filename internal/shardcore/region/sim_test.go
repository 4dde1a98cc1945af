// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region_test

import (
	"cmp"
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/internal/testkit/effort"
)

const (
	shards = 12
	sends  = 30 * time.Second // messages are sent until then
	settle = 120 * time.Second
)

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
func (a *agenda) Push(x any)   { *a = append(*a, x.(task)) } //nolint:errcheck // the agenda has only tasks
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

type link struct{ from, to identity.Node }

// world simulates regions on nodes and a coordinator on the first one. Messages to and from the
// coordinator are lost, repeated and reordered; the frames between regions keep their order.
type world struct {
	t       *testing.T
	rnd     *rand.Rand
	seed    uint64
	crashes bool
	lossy   bool // messages to and from the coordinator may be lost
	now     time.Duration
	due     agenda
	seq     int
	nodes   []*hostedShard
	coord   *coordinator.Machine
	links   map[link]time.Duration // when the last frame arrives
	owner   map[region.Shard]*hostedShard
	sent    uint64
	sender  map[uint64]*hostedShard
	shard   map[uint64]region.Shard
	through map[uint64][]*hostedShard
	results map[uint64]int
	last    map[string]uint64
	hit     map[string]int
}

type hostedShard struct {
	node    identity.Node
	proxy   bool
	m       *region.Machine
	crashed bool
	stopped bool
	runs    map[region.Shard]uint64 // generations
	stops   map[region.Shard]bool
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d, %v: %s", w.seed, w.now, fmt.Sprintf(format, args...))
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.due, task{w.now + d, w.seq, do})
}

func (w *world) delay() time.Duration {
	if w.rnd.IntN(15) == 0 {
		return time.Duration(w.rnd.IntN(int(2 * time.Second)))
	}
	return time.Duration(w.rnd.IntN(int(40 * time.Millisecond)))
}

func (w *world) find(n identity.Node) *hostedShard {
	return w.nodes[slices.IndexFunc(w.nodes, func(h *hostedShard) bool { return h.node == n })]
}

func (w *world) members() []identity.Member {
	var members []identity.Member
	for i, h := range w.nodes {
		if !h.crashed {
			members = append(members, identity.Member{Node: h.node, Status: identity.Up, UpNumber: int32(i)})
		}
	}
	return members
}

func (w *world) stepCoordinator(in coordinator.Input) { w.coordinate(w.coord.Step(w.now, in)) }

// coordinate applies the effects of the coordinator. Its store replies at once.
func (w *world) coordinate(out coordinator.Effects) {
	if out.Load != 0 {
		w.after(w.delay(), func() { w.stepCoordinator(coordinator.Loaded{ID: out.Load}) })
	}
	if out.Save != nil {
		id := out.Save.ID
		w.after(w.delay(), func() { w.stepCoordinator(coordinator.Saved{ID: id}) })
	}
	if out.Ask != nil {
		in := coordinator.HomesChosen{ID: out.Ask.ID}
		for range out.Ask.Requests {
			at := out.Ask.View.Regions
			in.Homes = append(in.Homes, at[w.rnd.IntN(len(at))].Node)
		}
		w.after(0, func() { w.stepCoordinator(in) })
	}
	if out.Rebalance != nil {
		in := coordinator.Rebalanced{ID: out.Rebalance.ID}
		for s := range region.Shard(shards) {
			if w.now < sends && w.rnd.IntN(3) == 0 {
				in.Shards = append(in.Shards, s)
			}
		}
		w.after(0, func() { w.stepCoordinator(in) })
	}
	for _, o := range out.Send {
		w.post(func() {
			if h := w.find(o.To); !h.crashed {
				w.perform(h, h.m.Step(w.now, region.CoordinatorMessage{From: w.nodes[0].node, Message: o.Message}))
			}
		})
	}
}

// post delivers a message once, twice, or never.
func (w *world) post(do func()) {
	for range 1 + w.rnd.IntN(10)/9 {
		if !w.lossy || w.rnd.IntN(10) > 0 {
			w.after(w.delay(), do)
		}
	}
}

func (w *world) perform(h *hostedShard, out region.Effects) {
	for _, r := range out.Refused {
		w.results[r.Token]++
		w.hit["refused: "+r.Reason.String()]++
		if !w.crashes && r.Reason != shard.Stopped && (r.Reason != shard.NotHome || !w.lossy) {
			w.fail("%v refused message %d: %v", h.node, r.Token, r.Reason)
		}
	}
	for _, a := range out.Actions {
		w.act(h, a)
	}
	for _, o := range out.Frames {
		w.hit[o.Frame.Kind.String()]++
		to := w.find(o.To)
		if o.Frame.Kind == region.Forward {
			w.through[o.Frame.Token] = append(w.through[o.Frame.Token], to)
			if o.Frame.Hop > 0 {
				w.hit["hop"]++
			}
		}
		l := link{h.node, o.To}
		w.links[l] = max(w.links[l], w.now+w.delay())
		w.after(w.links[l]-w.now, func() {
			if !to.crashed && !h.crashed {
				w.perform(to, to.m.Step(w.now, region.FrameReceived{From: h.node, Frame: o.Frame}))
			}
		})
	}
	for _, o := range out.Messages {
		if o.To != w.nodes[0].node {
			w.fail("%v sends to %v, which has no coordinator", h.node, o.To)
		}
		w.post(func() {
			if !h.crashed {
				w.stepCoordinator(coordinator.Received{From: h.node, Message: o.Message})
			}
		})
	}
	if out.Stopped {
		w.hit["stopped"]++
		if h.stopped = true; len(h.runs) > 0 {
			w.fail("%v stopped although shards run", h.node)
		}
	}
}

func (w *world) act(h *hostedShard, a region.Action) {
	if a.Kind != region.Start && (h.runs[a.Shard] != a.Generation || w.owner[a.Shard] != h) {
		w.fail("%v: %v of shard %d, which does not run", h.node, a.Kind, a.Shard)
	}
	switch a.Kind {
	case region.Start:
		if other := w.owner[a.Shard]; other != nil {
			w.fail("shard %d runs on %v, and starts on %v", a.Shard, other.node, h.node)
		}
		w.owner[a.Shard], h.runs[a.Shard] = h, a.Generation
	case region.Pass:
		if h.stops[a.Shard] {
			w.fail("message %d was passed after the hand-off of shard %d", a.Token, a.Shard)
		}
		from := fmt.Sprint(w.sender[a.Token].node, a.Shard)
		if a.Token <= w.last[from] || w.shard[a.Token] != a.Shard {
			w.fail("message %d of %s arrived after message %d", a.Token, from, w.last[from])
		}
		w.last[from] = a.Token
		w.results[a.Token]++
	case region.HandOff, region.Abort:
		w.hit[a.Kind.String()]++
		h.stops[a.Shard] = true
		w.after(w.delay(), func() { w.end(h, a.Shard, a.Generation) })
	}
}

func (w *world) end(h *hostedShard, s region.Shard, generation uint64) {
	if h.crashed || h.runs[s] != generation {
		return
	}
	delete(h.runs, s)
	delete(h.stops, s)
	delete(w.owner, s)
	w.perform(h, h.m.Step(w.now, region.ShardDone{Shard: s, Generation: generation}))
}

func (w *world) send(h *hostedShard) {
	if h.crashed || h.stopped {
		return
	}
	w.sent++
	s := region.Shard(w.rnd.IntN(shards))
	w.sender[w.sent], w.shard[w.sent], w.through[w.sent] = h, s, []*hostedShard{h}
	w.perform(h, h.m.Step(w.now, region.Send{Shard: s, Token: w.sent}))
}

func (w *world) setMembers() {
	members := w.members()
	w.stepCoordinator(coordinator.Members{Members: members})
	for _, h := range w.nodes {
		if !h.crashed {
			w.perform(h, h.m.Step(w.now, region.Members{Members: members}))
		}
	}
}

func (w *world) crash(h *hostedShard) {
	h.crashed = true
	w.after(3*time.Second, func() {
		for s := range h.runs { // the node is down
			delete(w.owner, s)
		}
		w.setMembers()
	})
}

func (w *world) tick() {
	w.coordinate(w.coord.Tick(w.now))
	for _, h := range w.nodes {
		if !h.crashed {
			w.perform(h, h.m.Tick(w.now))
		}
	}
	if w.now < sends {
		for range w.rnd.IntN(8) {
			w.send(w.nodes[w.rnd.IntN(len(w.nodes))])
		}
		if s := region.Shard(w.rnd.IntN(shards)); w.crashes && w.rnd.IntN(50) == 0 && w.owner[s] != nil {
			w.end(w.owner[s], s, w.owner[s].runs[s]) // the shard fails
		}
	}
	if w.now < sends+settle {
		w.after(50*time.Millisecond, w.tick)
	}
}

func simulate(t *testing.T, seed uint64, lossy, crashes bool, hit map[string]int) string {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 3))
	w := &world{
		t: t, rnd: rnd, seed: seed, lossy: lossy, crashes: crashes, links: map[link]time.Duration{}, owner: map[region.Shard]*hostedShard{}, sender: map[uint64]*hostedShard{},
		shard: map[uint64]region.Shard{}, through: map[uint64][]*hostedShard{}, results: map[uint64]int{}, last: map[string]uint64{}, hit: hit,
	}
	giveUp := time.Duration(0)
	if lossy {
		giveUp = 6 * time.Second
	}
	for i := range 3 + rnd.IntN(3) {
		h := &hostedShard{node: identity.Node{Name: fmt.Sprint("n", i), UID: 7}, proxy: i == 2, runs: map[region.Shard]uint64{}, stops: map[region.Shard]bool{}}
		m, err := region.New(region.Config{Self: h.node, Type: "account", Instance: 1, Proxy: h.proxy, Remember: seed%2 == 0, RestartBackoff: time.Second, GiveUpAfter: giveUp})
		if err != nil {
			t.Fatal(err)
		}
		h.m = m
		w.nodes = append(w.nodes, h)
	}
	coord, err := coordinator.New(coordinator.Config{
		Self: w.nodes[0].node, Type: "account", Shards: shards, HandOffTimeout: 8 * time.Second, RebalanceInterval: 3 * time.Second, StartTimeout: 4 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.coord = coord
	w.setMembers()
	w.tick()
	last := w.nodes[len(w.nodes)-1]
	w.after(time.Duration(rnd.IntN(int(sends))), func() {
		switch {
		case crashes && rnd.IntN(2) == 0:
			w.crash(last)
		case rnd.IntN(2) == 0:
			w.perform(last, last.m.Step(w.now, region.Leave{}))
		}
	})
	for w.due.Len() > 0 {
		next := heap.Pop(&w.due).(task) //nolint:errcheck // the agenda has only tasks
		w.now = next.at
		next.do()
	}
	for token := uint64(1); token <= w.sent; token++ {
		crashed := slices.ContainsFunc(w.through[token], func(h *hostedShard) bool { return h.crashed })
		if w.results[token] != 1 && (w.results[token] != 0 || !crashed) {
			w.fail("message %d of %v for shard %d has %d results, want 1", token, w.sender[token].node, w.shard[token], w.results[token])
		}
	}
	return fmt.Sprint(w.sent, w.seq, len(w.last))
}

var (
	firstSeed = flag.Uint64("region.seed", 0, "first seed of TestSimulation")
	manySeeds = flag.Uint64("region.seeds", 0, "number of seeds of TestSimulation; 0 is the usual number")
)

func seeds() (first, n uint64) {
	return *firstSeed, cmp.Or(*manySeeds, effort.Count[uint64](20, 60, 2000))
}

// Planned moves lose, repeat and reorder no message. If messages of the coordinator are lost, some
// messages are refused because they reached two regions that are not the home. If nodes and shards
// fail, only messages on a crashed node are lost without a refusal.
func TestSimulation(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]struct{ lossy, crashes bool }{"planned": {}, "lossy": {lossy: true}, "crashes": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hit := map[string]int{}
			from, n := seeds()
			for seed := from; seed < from+n; seed++ {
				first := simulate(t, seed, mode.lossy, mode.crashes, hit)
				if seed%10 == 0 {
					if again := simulate(t, seed, mode.lossy, mode.crashes, map[string]int{}); again != first {
						t.Fatalf("seed %d: two runs differ: %s and %s", seed, first, again)
					}
				}
			}
			for _, subject := range []string{"forward", "not home", "flush", "flushed", "hand off", "stopped"} {
				if hit[subject] == 0 {
					t.Errorf("no run had the event %q", subject)
				}
			}
			t.Log(hit)
		})
	}
}
