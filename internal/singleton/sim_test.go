// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/testkit/effort"
)

const (
	step   = 100 * time.Millisecond
	margin = 6 * time.Second
	// Faults occur until faultsEnd. The cluster recovers until end.
	faultsEnd = 90 * time.Second
	end       = 240 * time.Second
)

// world simulates a cluster. There is one history of member lists, of which each node receives
// versions at its own pace. The network loses, delays and duplicates messages.
type world struct {
	t        *testing.T
	rnd      *rand.Rand
	seed     uint64
	lease    bool
	now      time.Duration
	history  []singleton.Members
	nodes    []*host
	inFlight []envelope
	ups      int32
	holder   identity.Node
	freeAt   time.Duration // when the lease of a crashed holder expires
	counts   map[string]int
	starts   int
}

// host is a node of the simulated cluster.
type host struct {
	self    identity.Node
	m       *singleton.Manager
	version int // index in history of the last received list of members
	alive   bool
	cut     bool // sends and receives no messages
	downAt  time.Duration
	exiting bool
	exitAt  time.Duration
	done    bool // the manager lets the node exit
	running uint64
	endsAt  time.Duration // of the running instance, 0 is never
}

// envelope is an input that was sent and is not delivered yet.
type envelope struct {
	at   time.Duration
	from identity.Node // zero: from the node itself
	to   *host
	in   singleton.Input
}

func (w *world) members() singleton.Members { return w.history[len(w.history)-1] }

func (w *world) publish(m singleton.Members) { w.history = append(w.history, m) }

func (w *world) set(n identity.Node, status identity.Status) {
	m := slices.Clone(w.members())
	i := slices.IndexFunc(m, func(o identity.Member) bool { return o.Node == n })
	if status == identity.Up {
		w.ups++
		m[i].UpNumber = w.ups
	}
	m[i].Status = status
	w.counts[status.String()]++
	w.publish(m)
}

func (w *world) remove(n identity.Node) {
	w.counts["removed"]++
	w.publish(slices.DeleteFunc(slices.Clone(w.members()), func(o identity.Member) bool { return o.Node == n }))
}

func (w *world) join() {
	// The order of names is not the order of ages.
	h := &host{self: identity.Node{Name: fmt.Sprintf("n%02d", w.rnd.IntN(100)), UID: uint64(len(w.nodes) + 1)}, alive: true}
	m, err := singleton.New(singleton.Config{Self: h.self, RemovalMargin: func(int) time.Duration { return margin }, UseLease: w.lease, LeaseRetryInterval: 2 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	h.m = m
	w.nodes = append(w.nodes, h)
	members := append(slices.Clone(w.members()), identity.Member{Node: h.self, Status: identity.Joining, UpNumber: math.MaxInt32})
	slices.SortFunc(members, func(a, b identity.Member) int { return a.Node.Compare(b.Node) })
	w.publish(members)
	h.version = len(w.history) - 1
	w.apply(h, h.m.Step(w.now, members))
}

func (w *world) host(n identity.Node) *host {
	i := slices.IndexFunc(w.nodes, func(h *host) bool { return h.self == n })
	return w.nodes[i]
}

// converged reports whether all live members have received the newest list of members.
func (w *world) converged() bool {
	for _, m := range w.members() {
		if h := w.host(m.Node); h.alive && !h.cut && h.version < len(w.history)-1 && m.Status != identity.Exiting && m.Status != identity.Down {
			return false
		}
	}
	return true
}

// actAsLeader makes the changes of the leader, if the members have converged.
func (w *world) actAsLeader() {
	if !w.converged() {
		return
	}
	for _, m := range w.members() {
		h := w.host(m.Node)
		gone := !h.alive || h.cut
		switch {
		case gone && m.Status != identity.Down && m.Status != identity.Exiting: // a crashed member blocks the leader until it is down
			return
		}
	}
	for _, m := range w.members() {
		h := w.host(m.Node)
		gone := !h.alive || h.cut
		switch {
		case m.Status == identity.Joining:
			w.set(m.Node, identity.Up)
		case m.Status == identity.Leaving:
			w.set(m.Node, identity.Exiting)
		case (m.Status == identity.Down || m.Status == identity.Exiting) && gone, m.Status == identity.Exiting && h.done:
			if h.cut && h.downAt == 0 {
				// The node notices its removal before the margin has passed.
				h.downAt = w.now + time.Duration(w.rnd.IntN(int(margin/2)))
			}
			w.remove(m.Node)
		}
	}
}

// downUnreachable marks unreachable members as down at random times.
func (w *world) downUnreachable() {
	for _, m := range w.members() {
		h := w.host(m.Node)
		if (!h.alive || h.cut) && m.Status != identity.Down && m.Status != identity.Exiting && w.rnd.IntN(50) == 0 {
			w.set(m.Node, identity.Down)
			h.downAt = w.now + time.Duration(w.rnd.IntN(int(margin/2)))
		}
	}
}

// injectFault injects random faults.
func (w *world) injectFault() {
	up := slices.DeleteFunc(slices.Clone(w.members()), func(m identity.Member) bool {
		h := w.host(m.Node)
		return m.Status != identity.Up || !h.alive || h.cut
	})
	switch w.rnd.IntN(60) {
	case 0, 1:
		if len(w.members()) < 6 {
			w.join()
		}
	case 2, 3:
		if len(up) > 1 {
			w.set(up[w.rnd.IntN(len(up))].Node, identity.Leaving)
		}
	case 4:
		if len(up) > 1 {
			w.counts["crash"]++
			w.crash(w.host(w.members()[w.rnd.IntN(len(w.members()))].Node))
		}
	case 5:
		if h := w.host(w.members()[w.rnd.IntN(len(w.members()))].Node); len(up) > 1 && h.alive {
			w.counts["cut"]++
			h.cut = true
		}
	case 6:
		if w.lease && !w.holder.IsZero() {
			w.counts["lease lost"]++
			h := w.host(w.holder)
			w.holder = identity.Node{}
			w.inFlight = append(w.inFlight, envelope{at: w.now, to: h, in: singleton.LeaseLost{}})
		}
	case 7:
		if h := w.nodes[w.rnd.IntN(len(w.nodes))]; h.alive && h.running != 0 && w.rnd.IntN(4) == 0 {
			w.counts["suspend"]++
			w.apply(h, h.m.Step(w.now, singleton.Suspend{}))
			w.inFlight = append(w.inFlight, envelope{at: w.now + w.delay(), to: h, in: singleton.Resume{}})
		}
	}
}

func (w *world) crash(h *host) {
	if h.alive {
		h.alive, h.running = false, 0
		w.freeAt = w.now + 5*time.Second
	}
}

func (w *world) delay() time.Duration {
	if w.rnd.IntN(10) == 0 {
		return time.Duration(w.rnd.IntN(int(4 * time.Second)))
	}
	return time.Duration(w.rnd.IntN(int(200 * time.Millisecond)))
}

func (w *world) apply(h *host, e singleton.Effects) {
	for _, n := range e.Notes {
		w.counts[fmt.Sprint(n.Kind, " ", n.State)]++
	}
	if e.Stop != 0 {
		if e.Stop != h.running {
			w.t.Fatalf("seed %d, %v: %v stops instance %d, but runs instance %d", w.seed, w.now, h.self, e.Stop, h.running)
		}
		h.endsAt = w.now + step + time.Duration(w.rnd.IntN(int(margin/3)))
	}
	if e.ReleaseLease {
		w.counts["release"]++
		if w.holder == h.self {
			w.holder = identity.Node{}
		}
		w.inFlight = append(w.inFlight, envelope{at: w.now + w.delay(), to: h, in: singleton.LeaseReleased{}})
	}
	if e.AskLease {
		if w.holder.IsZero() || !w.host(w.holder).alive && w.now >= w.freeAt {
			w.holder = h.self
		}
		w.inFlight = append(w.inFlight, envelope{at: w.now + w.delay(), to: h, in: singleton.LeaseAnswer{Held: w.holder == h.self}})
	}
	if e.Start != 0 {
		w.starts++
		for _, other := range w.nodes {
			if other.running != 0 {
				w.t.Fatalf("seed %d, %v: %v starts an instance while an instance runs on %v", w.seed, w.now, h.self, other.self)
			}
		}
		if w.lease && w.holder != h.self && w.counts["lease lost"] == 0 {
			w.t.Fatalf("seed %d, %v: %v starts an instance without the lease", w.seed, w.now, h.self)
		}
		h.running, h.endsAt = e.Start, 0
	}
	for _, o := range e.Send {
		w.counts[o.Message.Kind.String()]++
		if h.cut || w.rnd.IntN(5) == 0 {
			continue
		}
		b := singleton.AppendMessage(nil, o.Message)
		msg, err := singleton.DecodeMessage(b)
		if err != nil {
			w.t.Fatal(err)
		}
		for range 1 + w.rnd.IntN(10)/8 {
			w.inFlight = append(w.inFlight, envelope{at: w.now + w.delay(), from: h.self, to: w.host(o.To), in: singleton.Received{From: h.self, Message: msg}})
		}
	}
	h.done = h.done || e.ExitDone && h.exiting
	if e.Ended {
		if h.running != 0 {
			w.t.Fatalf("seed %d, %v: the manager of %v ends while its instance runs", w.seed, w.now, h.self)
		}
		h.alive = false
	}
}

func (w *world) step() {
	w.now += step
	if w.now < faultsEnd {
		w.injectFault()
	}
	w.actAsLeader()
	w.downUnreachable()
	due := slices.Clone(w.inFlight)
	w.inFlight = nil
	for _, l := range due {
		switch {
		case l.at > w.now:
			w.inFlight = append(w.inFlight, l)
		case l.to.alive && (l.from.IsZero() || !l.to.cut):
			w.apply(l.to, l.to.m.Step(w.now, l.in))
		}
	}
	for _, h := range w.nodes {
		if h.alive {
			w.run(h)
		}
	}
}

func (w *world) run(h *host) {
	if h.running != 0 && h.endsAt != 0 && w.now >= h.endsAt {
		ended := h.running
		h.running = 0
		w.apply(h, h.m.Step(w.now, singleton.InstanceEnded{Instance: ended}))
	}
	if h.cut {
		if h.downAt != 0 && w.now >= h.downAt {
			known := slices.Clone(w.history[h.version])
			for i := range known {
				if known[i].Node == h.self {
					known[i].Status = identity.Down
				}
			}
			w.apply(h, h.m.Step(w.now, known))
		}
	} else if last := len(w.history) - 1; h.version < last && w.rnd.IntN(4) == 0 {
		h.version += 1 + w.rnd.IntN(last-h.version)
		w.apply(h, h.m.Step(w.now, w.history[h.version]))
	}
	if i, found := slices.BinarySearchFunc(w.history[h.version], h.self, func(m identity.Member, n identity.Node) int { return m.Node.Compare(n) }); found &&
		w.history[h.version][i].Status == identity.Exiting && !h.exiting && h.alive {
		if h.exitAt == 0 {
			h.exitAt = w.now + w.delay()
		}
		if w.now >= h.exitAt {
			h.exiting = true
			w.apply(h, h.m.Step(w.now, singleton.SelfExiting{}))
		}
	}
	if w.now%(5*step) == 0 && h.alive {
		w.apply(h, h.m.Tick(w.now))
	}
}

// TestAtMostOneInstance simulates clusters with lost, duplicated and delayed messages, crashes and
// partitions. There are never two instances, and at the end there is one.
func TestAtMostOneInstance(t *testing.T) {
	t.Parallel()
	for _, lease := range []bool{false, true} {
		t.Run(fmt.Sprintf("lease %t", lease), func(t *testing.T) {
			t.Parallel()
			counts := map[string]int{}
			starts := 0
			for seed := range effort.Count[uint64](80, 250, 5000) {
				w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 2)), seed: seed, lease: lease, counts: counts, history: []singleton.Members{nil}}
				for range 3 {
					w.join()
				}
				for w.now < end {
					w.step()
				}
				starts += w.starts
				w.checkFinalState()
			}
			want := []string{
				"up", "leaving", "exiting", "down", "removed", "crash", "cut", "suspend", "ignored becoming oldest",
				"became younger", "became becoming oldest", "became oldest", "became was oldest", "became handing over", "became stopping", "became end",
				"hand over to me", "hand-over in progress", "hand-over done", "take over from me",
			}
			if lease {
				want = append(want, "became acquiring lease", "lease lost", "release")
			}
			for _, subject := range want {
				if counts[subject] == 0 {
					t.Errorf("%q never happened", subject)
				}
			}
			t.Logf("%d starts, %v", starts, counts)
		})
	}
}

// checkFinalState checks that one instance runs, on the oldest member.
func (w *world) checkFinalState() {
	var oldest *identity.Member
	for i, m := range w.members() {
		if m.Status != identity.Up {
			w.t.Errorf("seed %d: %v is %v at the end, want up", w.seed, m.Node, m.Status)
		}
		if oldest == nil || m.UpNumber < oldest.UpNumber {
			oldest = &w.members()[i]
		}
	}
	for _, h := range w.nodes {
		if (h.running != 0) != (oldest != nil && h.self == oldest.Node) {
			w.t.Errorf("seed %d: at the end %[3]v runs instance %[2]d in state %[4]v; the oldest member is %[5]v", w.seed, h.running, h.self, h.m.State(), oldest.Node)
		}
	}
}
