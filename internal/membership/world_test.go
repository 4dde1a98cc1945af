// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
)

// world is a single-threaded simulation of machines and a network with a broker. One seed
// determines a run.
type world struct {
	tb    testing.TB
	rand  *rand.Rand
	now   time.Duration
	queue simEvents
	seq   int
	hosts []*host
	uids  uint64

	settings membership.Settings
	loss     float64
	double   float64
	delay    time.Duration // the maximum
	cut      func(from, to string) bool
	broker   bool // the broker is unavailable
	checked  bool // invariants are checked
	packets  int
	bytes    int
	shared   map[string]string // the content of the gossip for each clock
	notes    []string
	resolver func(*host) *splitbrain.Resolver // nil if an operator downs nodes
}

// host is a process that runs a machine.
type host struct {
	w           *world
	node        identity.Node
	m           *membership.Machine
	since       time.Duration
	dead        bool
	paused      bool
	undelivered []simEvent // packets that arrive while the host is paused
	offline     bool       // the link of the host to the broker is cut
	events      []membership.Event
	lives       []membership.Life
	lines       []membership.Line
	removed     map[identity.Node]bool
	status      map[identity.Node]identity.Status
	tick        time.Duration // the next planned tick

	resolver *splitbrain.Resolver
	mute     bool                            // the host must not decide
	downed   map[identity.Node]time.Duration // the times of their removal
}

// simEvent is the arrival of a packet or the tick of a host.
type simEvent struct {
	at   time.Duration
	seq  int
	host *host // ticks
	from *host
	to   identity.Node
	kind membership.Kind
	data []byte
}

type simEvents []simEvent

func (h simEvents) Len() int { return len(h) }
func (h simEvents) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h simEvents) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *simEvents) Push(x any)   { *h = append(*h, x.(simEvent)) } //nolint:errcheck // nothing else is pushed
func (h *simEvents) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func newWorld(tb testing.TB, seed uint64) *world {
	tb.Helper()
	return &world{
		tb: tb, rand: rand.New(rand.NewPCG(seed, 7)), delay: 3 * time.Millisecond, checked: true,
		cut: func(string, string) bool { return false }, shared: map[string]string{},
	}
}

// start starts a process.
func (w *world) start(name string, change ...func(*membership.Config)) *host {
	w.tb.Helper()
	w.uids++
	h := &host{
		w: w, node: identity.Node{Name: name, UID: w.uids<<32 | w.rand.Uint64()>>32}, since: w.now, tick: membership.Never,
		removed: map[identity.Node]bool{}, status: map[identity.Node]identity.Status{}, downed: map[identity.Node]time.Duration{},
	}
	cfg := membership.Config{Self: h.node, Settings: w.settings, Started: time.Unix(1_700_000_000, 0).Add(w.now), Rand: rand.New(rand.NewPCG(w.rand.Uint64(), 1))}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if h.m, err = membership.New(cfg); err != nil {
		w.tb.Fatal(err)
	}
	w.hosts = append(w.hosts, h)
	if w.resolver != nil {
		h.resolver = w.resolver(h)
		w.push(simEvent{at: w.now + time.Second, host: h, kind: resolves})
	}
	return h
}

// The causes of steps of a host, except ticks of its machine.
const (
	handedOver = membership.Kinds + iota
	resolves   // the resolver of the host ticks
)

func (w *world) note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

// join starts processes that join with the first process as the first seed.
func (w *world) join(names ...string) []*host {
	w.tb.Helper()
	var started []*host
	for _, name := range names {
		h := w.start(name)
		h.do(membership.JoinSeeds{Seeds: names[:min(3, len(names))]})
		started = append(started, h)
	}
	return started
}

func (w *world) push(h simEvent) {
	w.seq++
	h.seq = w.seq
	heap.Push(&w.queue, h)
}

// do passes an input to the machine of a host.
func (h *host) do(in membership.Input) {
	if !h.dead {
		h.apply(h.m.Step(h.w.now-h.since, in))
	}
}

// apply carries out effects.
func (h *host) apply(e membership.Effects) {
	for _, s := range e.Send {
		h.w.send(h, s)
	}
	if h.w.checked { // without checks there may be too many lines
		h.lines = append(h.lines, e.Log...)
		h.events = append(h.events, e.Events...)
	}
	h.lives = append(h.lives, e.Life...)
	for _, l := range e.Life {
		if l.Kind == membership.Exits { // there is nothing to hand over
			h.w.push(simEvent{at: h.w.now + 10*time.Millisecond, host: h, kind: handedOver})
		}
		h.dead = h.dead || l.Kind == membership.Stopped
	}
	if h.w.checked {
		h.check(e)
	}
	h.resolve(e)
	if next := h.m.Next(); next != membership.Never && next+h.since != h.tick {
		h.tick = next + h.since
		h.w.push(simEvent{at: h.tick, host: h})
	}
}

func (w *world) send(h *host, s membership.Send) {
	w.packets++
	w.bytes += len(s.Data)
	if w.loss > 0 && w.rand.Float64() < w.loss {
		return
	}
	copies := 1
	if w.double > 0 && w.rand.Float64() < w.double {
		copies = 2
	}
	for range copies {
		w.push(simEvent{at: w.now + 1 + time.Duration(w.rand.Int64N(int64(w.delay))), from: h, to: s.To, kind: s.Kind, data: s.Data})
	}
}

// run advances the time.
func (w *world) run(d time.Duration) {
	w.tb.Helper()
	w.until(d, func() bool { return false })
}

// until advances the time until a condition holds, and reports whether it holds.
func (w *world) until(most time.Duration, holds func() bool) bool {
	w.tb.Helper()
	end := w.now + most
	late := func() bool { return len(w.queue) == 0 || w.queue[0].at > end }
	for next := w.now; !late() || !holds() && !late(); { // the condition may have added events
		if w.queue[0].at >= next { // the condition is checked several times a second
			if holds() {
				return true
			}
			next = w.queue[0].at + 100*time.Millisecond
		}
		h, _ := heap.Pop(&w.queue).(simEvent)
		w.now = max(w.now, h.at)
		w.happen(h)
	}
	w.now = max(w.now, end)
	return holds()
}

func (w *world) happen(h simEvent) {
	if h.host != nil {
		switch {
		case h.host.dead:
		case h.host.paused:
			h.host.undelivered = append(h.host.undelivered, h)
		case h.kind == handedOver:
			h.host.do(membership.ExitingDone{})
		case h.kind == resolves:
			w.push(simEvent{at: w.now + time.Second, host: h.host, kind: resolves})
			h.host.decide(h.host.resolver.Tick(w.now - h.host.since))
		case h.host.tick == h.at:
			h.host.tick = membership.Never
			h.host.apply(h.host.m.Tick(w.now - h.host.since))
		}
		return
	}
	if w.broker || h.from.offline || w.cut(h.from.node.Name, h.to.Name) {
		return
	}
	for _, to := range w.addressees(h.to) {
		switch {
		case to.dead || to.offline:
		case to.paused:
			to.undelivered = append(to.undelivered, h)
		default:
			to.receive(h)
		}
	}
}

func (w *world) addressees(n identity.Node) []*host {
	if n.UID != 0 && n.UID>>32 <= uint64(len(w.hosts)) {
		return w.hosts[n.UID>>32-1 : n.UID>>32]
	}
	var all []*host
	for _, h := range w.hosts {
		if h.node.Name == n.Name {
			all = append(all, h)
		}
	}
	return all
}

func (h *host) receive(p simEvent) {
	h.apply(h.m.Step(h.w.now-h.since, membership.Received{From: p.from.node, To: p.to, Arrived: h.w.now - h.since, Data: p.data}))
}

// pause stops a process for a while, as SIGSTOP does. Messages that arrive in this time are handled
// afterwards.
func (h *host) pause() { h.paused = true }

func (h *host) unpause() {
	h.paused = false
	late := h.undelivered
	h.undelivered = nil
	for _, p := range late {
		switch {
		case h.dead:
		case p.host != nil:
			if p.kind == 0 {
				h.tick = p.at
			}
			h.w.happen(p)
		default:
			h.receive(p)
		}
	}
}

func (h *host) kill() { h.dead = true }

// agree reports whether all live hosts have exactly these members, all Up and reachable.
func (w *world) agree(hosts ...*host) bool {
	for _, h := range hosts {
		g := h.m.Gossip()
		if h.dead || len(g.Members()) != len(hosts) || len(g.Unreachable(h.node)) > 0 {
			return false
		}
		for _, o := range hosts {
			if m := g.Member(o.node); m == nil || m.Status != up {
				return false
			}
		}
	}
	return true
}

// up waits until exactly these hosts are Up.
func (w *world) up(most time.Duration, hosts ...*host) {
	w.tb.Helper()
	from := w.now
	if !w.until(most, func() bool { return w.agree(hosts...) }) {
		w.tb.Fatalf("not all hosts are Up after %v:\n%s", most, w.describe())
	}
	w.note("%d up after %v", len(hosts), w.now-from)
}

func (w *world) describe() string {
	var s strings.Builder
	for _, h := range w.hosts {
		if h.dead {
			continue
		}
		fmt.Fprintf(&s, "%v leader %v seen %v: %s\n", h.node, h.m.View().Leader, len(h.m.Gossip().SeenBy()), describe(h.m.Gossip()))
	}
	return s.String()
}

// stopped reports whether a host has ended for a reason.
func (h *host) stopped(r membership.Reason) bool {
	return slices.Contains(h.lives, membership.Life{Kind: membership.Stopped, Reason: r})
}

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("node-%03d", i))
	}
	return all
}
