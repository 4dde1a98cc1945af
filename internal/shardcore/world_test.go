// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore_test

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/sharding/allocation"
	"github.com/refold-io/refold/sharding/passivation"
)

const (
	numShards = 12
	perShard  = 3
	sends     = 30 * time.Second // messages are sent and faults are injected until this time
	settle    = 120 * time.Second
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

// mode selects the faults. In all modes nodes join and leave gracefully, and shards move between
// nodes.
type mode struct {
	lossy   bool // messages to and from coordinators may be lost
	atOnce  bool // planned moves do not wait for acknowledgements
	crashes bool // nodes, entities and stores fail, nodes are stopped by force, and two coordinators may run at once
}

// sentMessage is a test message and its outcome.
type sentMessage struct {
	from    *host
	entity  string
	shard   shardcore.Shard
	results int
	lost    bool    // the message was in the mailbox of a failed entity, or on a link of a failed node
	at      []*host // all nodes that have received it
}

type link struct{ from, to identity.Node }

// world simulates nodes that run the sharding machine of one entity type. It also simulates the
// network, the entities, the stores, and the choice of the node that runs the coordinator.
type world struct {
	t    *testing.T
	rnd  *rand.Rand
	seed uint64
	mode

	remember     bool
	now          time.Duration
	due          agenda
	seq          int
	hosts        []*host // nodes, the oldest first
	names        int
	sentMessages []*sentMessage // messages by number, from 1
	last         map[string]uint64
	live         map[string]*entity
	links        map[link]time.Duration
	store        store
	hit          map[string]int
}

type host struct {
	w              *world
	node           identity.Node
	m              *shardcore.Machine
	proxy          bool
	status         identity.Status
	up             int32
	hasCoordinator bool
	gone           bool // crashed, or ended
	crashed        bool
	stopped        bool // the region has stopped
	forced         bool
	leaving        bool
	seen           time.Duration
	entities       map[place]*entity
	runs           map[shardcore.ShardRun]bool
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

// odds returns true with probability 1/n, in modes with crashes and as long as faults are injected.
func (w *world) odds(n int) bool { return w.crashes && w.now < sends && w.rnd.IntN(n) == 0 }

func (w *world) find(n identity.Node) *host {
	return w.hosts[slices.IndexFunc(w.hosts, func(h *host) bool { return h.node == n })]
}

func (w *world) join(proxy bool) {
	w.names++
	h := &host{
		w: w, node: identity.Node{Name: fmt.Sprintf("n%d", (w.names*7)%10), UID: uint64(w.names)}, proxy: proxy, status: identity.Joining,
		entities: map[place]*entity{}, runs: map[shardcore.ShardRun]bool{},
	}
	giveUp := time.Duration(0) // 0: without faults each message eventually finds a home, so a region waits without a limit
	if w.lossy {
		giveUp = 6 * time.Second
	}
	m, err := shardcore.New(shardcore.Config{
		Region: region.Config{Self: h.node, Type: "account", Role: "bank", Instance: 1, Proxy: proxy, Remember: w.remember, RestartBackoff: time.Second, GiveUpAfter: giveUp},
		Shard: shard.Config{
			Passivation: passivation.Settings{IdleTimeout: 4 * time.Second, Limit: 20}, Starts: 20, RestartBackoff: time.Second, StopTimeout: 40 * time.Second, UpdateTimeout: 4 * time.Second,
		},
		Coordinator: coordinator.Config{
			Shards: numShards, MinRegions: 2, HandOffAtOnce: w.atOnce, HandOffTimeout: 8 * time.Second, RebalanceInterval: 3 * time.Second, StartTimeout: 4 * time.Second, SaveTimeout: 2 * time.Second,
		},
		CoordinatorBackoff: time.Second,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	h.m = m
	w.hosts = append(w.hosts, h)
	w.publish()
	w.welcome(h)
}

// welcome schedules the change of a node to Up. The change follows after all members have received
// the membership with the node.
func (w *world) welcome(h *host) {
	seen := w.now
	for _, other := range w.hosts {
		if other.status != identity.Removed && !other.gone {
			seen = max(seen, other.seen)
		}
	}
	w.after(seen-w.now, func() {
		h.status, h.up = identity.Up, int32(h.node.UID)
		w.publish()
	})
}

// publish sends the membership to all nodes, each after its own delay.
func (w *world) publish() {
	var in shardcore.Members
	for _, h := range w.hosts {
		if h.status != identity.Removed {
			at := identity.Member{Node: h.node, Status: h.status, UpNumber: h.up}
			if !h.proxy {
				at.Roles = []string{"bank"}
			}
			in.Members.Members = append(in.Members.Members, at)
		}
	}
	slices.SortFunc(in.Members.Members, func(a, b identity.Member) int { return a.Node.Compare(b.Node) })
	for _, h := range w.hosts {
		if h.status == identity.Removed {
			continue
		}
		h.seen = max(h.seen, w.now+w.delay())
		w.after(h.seen-w.now, func() { h.step(in) })
	}
}

func (h *host) step(in shardcore.Input) {
	if !h.gone {
		h.perform(h.m.Step(h.w.now, in))
	}
}

func (h *host) tick() {
	if h.gone || h.w.now < h.m.Next() {
		return
	}
	h.perform(h.m.Tick(h.w.now))
	if next := h.m.Next(); next <= h.w.now {
		h.w.fail("%v: Next() = %v is not after the current time", h.node, next)
	}
}

func (h *host) perform(out shardcore.Effects) {
	w := h.w
	for _, n := range out.Notes {
		w.hit[n.Kind.String()]++
	}
	for _, m := range out.Malformed {
		w.fail("%v received a malformed frame: %v", h.node, m.Err)
	}
	for _, r := range out.Refused {
		w.refused(h, r)
	}
	for _, r := range out.Remember {
		w.store.remember(h, r)
	}
	for _, a := range out.Actions {
		h.act(a)
	}
	for _, r := range out.Ended {
		h.ended(r)
	}
	h.ask(out)
	for _, o := range out.Send {
		h.send(o)
	}
	if out.CoordinatorStopped {
		w.hit["coordinator stopped"]++
		h.hasCoordinator = false
	}
	if out.Stopped {
		w.hit["region has stopped"]++
		if h.stopped = true; len(h.entities) > 0 || len(h.runs) > 0 {
			w.fail("%v: the region stopped although entities run", h.node)
		}
	}
}

// ask executes the calls of the store and the strategy.
func (h *host) ask(out shardcore.Effects) {
	w := h.w
	if out.Load != 0 {
		w.store.load(h, out.Load)
	}
	if out.AddShards != nil {
		w.store.add(h, *out.AddShards)
	}
	if out.Save != nil {
		w.store.do(h, *out.Save)
	}
	if out.Ask != nil {
		in := coordinator.HomesChosen{ID: out.Ask.ID, Homes: allocation.All(out.Ask.View, out.Ask.Requests, allocation.LeastShards{}.Allocate)}
		w.after(w.delay(), func() { h.step(shardcore.CoordinatorReply{Input: in}) })
	}
	if out.Rebalance != nil {
		in := coordinator.Rebalanced{ID: out.Rebalance.ID, Shards: allocation.LeastShards{}.Rebalance(out.Rebalance.View)}
		for s := range shardcore.Shard(numShards) {
			if w.now < sends && w.rnd.IntN(4) == 0 {
				in.Shards = append(in.Shards, s)
			}
		}
		w.after(w.delay(), func() { h.step(shardcore.CoordinatorReply{Input: in}) })
	}
}

// send delivers a frame. Frames between regions keep their order; others may be reordered, repeated
// or lost.
func (h *host) send(o shardcore.Outgoing) {
	w := h.w
	if o.To == h.node {
		w.fail("%v sends a frame to itself", h.node)
	}
	var body []byte
	if nr, ok := o.Message.Local.(uint64); ok {
		body = binary.AppendUvarint(nil, nr)
	}
	data := o.Encoded(body)
	to := w.find(o.To)
	deliver := func() {
		if h.gone && o.Message.Entity != "" || to.gone {
			w.lost(o.Message)
			return
		}
		if o.Message.Entity != "" {
			w.sentMessage(o.Message).at = append(w.sentMessage(o.Message).at, to)
		}
		to.step(shardcore.Received{From: h.node, Kind: o.Kind, Data: data})
	}
	if o.Kind == shardcore.KindRegion {
		l := link{h.node, o.To}
		w.links[l] = max(w.links[l], w.now+w.delay())
		w.after(w.links[l]-w.now, deliver)
		return
	}
	h.check(data)
	for range 1 + w.rnd.IntN(10)/9 {
		if !w.lossy || w.rnd.IntN(10) > 0 {
			w.after(w.delay(), deliver)
		}
	}
}

// check verifies that a message of a coordinator agrees with the stored state.
func (h *host) check(data []byte) {
	w := h.w
	m, err := coordinator.DecodeMessage(data)
	if err != nil {
		w.fail("%v sends a malformed message: %v", h.node, err)
	}
	w.hit[m.Kind.String()]++
	c := h.m.LocalCoordinator()
	if m.Kind.ToCoordinator() || c == nil { // no message of a running coordinator
		return
	}
	state, rev := c.State()
	stored, err := coordinator.State{}.Apply(w.store.events[:min(rev, uint64(len(w.store.events)))]...)
	if err != nil || state.Term() != m.Term || rev > uint64(len(w.store.events)) || !stored.Equal(state) {
		w.fail("%v sends %v in term %d, but its state %d is not stored: %v", h.node, m.Kind, m.Term, rev, err)
	}
}

// number returns the number of a message.
func (w *world) number(m shardcore.Message) uint64 {
	if nr, ok := m.Local.(uint64); ok {
		return nr
	}
	nr, n := binary.Uvarint(m.Body)
	if n != len(m.Body) || nr == 0 || nr > uint64(len(w.sentMessages)) || w.sentMessages[nr-1].entity != m.Entity {
		w.fail("invalid message %+v", m)
	}
	return nr
}

func (w *world) sentMessage(m shardcore.Message) *sentMessage { return w.sentMessages[w.number(m)-1] }

func (w *world) lost(m shardcore.Message) {
	if m.Entity != "" {
		w.sentMessage(m).lost = true
	}
}

func (w *world) refused(h *host, r shardcore.Refusal) {
	w.hit["refused: "+r.Reason.String()]++
	w.sentMessage(r.Message).results++
	if !w.crashes && (!w.lossy && !w.atOnce || r.Reason != shardcore.NotHome && r.Reason != shardcore.Stopped) {
		w.fail("%v refused message %d for %s: %v", h.node, w.number(r.Message), r.Message.Entity, r.Reason)
	}
}

func (w *world) write(h *host) {
	if h.gone || h.stopped || h.forced {
		return
	}
	s := shardcore.Shard(w.rnd.IntN(numShards))
	l := &sentMessage{from: h, at: []*host{h}, shard: s, entity: fmt.Sprintf("%d/%d", s, w.rnd.IntN(perShard))}
	w.sentMessages = append(w.sentMessages, l)
	h.step(shardcore.Send{Shard: s, Message: shardcore.Message{Entity: l.entity, Local: uint64(len(w.sentMessages))}})
}
