// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/membership"
)

// Events yields a Snapshot and then each later change of the state, in order and without gaps or
// duplicates, until ctx or the node ends. If kinds are given, it yields snapshots and events of
// these kinds only.
//
// The node never waits for a subscriber. If more than Config.MaxEvents events wait for a
// subscriber, they are replaced by a new Snapshot.
func (n *Node) Events(ctx context.Context, kinds ...EventKind) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		r := n.events.subscribe(kinds)
		defer n.events.unsubscribe(r)
		for {
			events, last := n.events.take(r)
			for _, e := range events {
				if ctx.Err() != nil || !yield(e) {
					return
				}
			}
			switch {
			case len(events) > 0:
				continue
			case last:
				return
			}
			select {
			case <-r.ready:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Changes is like Events without snapshots: it yields the events that lead from an empty cluster to
// the current state, and then each change. If the consumer is too slow, intermediate changes are
// skipped.
func (n *Node) Changes(ctx context.Context, kinds ...EventKind) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		var known knownState
		wanted := func(e Event) bool { return len(kinds) == 0 || slices.Contains(kinds, e.Kind) }
		for e := range n.Events(ctx) {
			events := []Event{e}
			if e.Kind == Snapshot {
				events = known.catchUp(e.State)
			}
			for _, e := range events {
				known.apply(e)
				if wanted(e) && !yield(e) {
					return
				}
			}
		}
	}
}

// knownState is the state of the cluster according to the events that a consumer has received.
type knownState struct {
	members     map[identity.Node]Member
	unreachable map[identity.Node]bool
	leader      identity.Node
	roleLeaders map[string]identity.Node
	cut, idle   bool // disconnected, suspended
}

func (t *knownState) apply(e Event) {
	if t.members == nil {
		t.members, t.unreachable, t.roleLeaders = map[identity.Node]Member{}, map[identity.Node]bool{}, map[string]identity.Node{}
	}
	switch e.Kind {
	case MemberRemoved:
		delete(t.members, e.Member.Node)
		delete(t.unreachable, e.Member.Node)
	case MemberJoined, MemberWeaklyUp, MemberUp, MemberPreparing, MemberReady, MemberLeft, MemberExited, MemberDowned:
		t.members[e.Member.Node] = e.Member
	case MemberUnreachable:
		t.unreachable[e.Member.Node] = true
	case MemberReachable:
		delete(t.unreachable, e.Member.Node)
	case LeaderChanged:
		t.leader = e.Leader
	case RoleLeaderChanged:
		t.roleLeaders[e.Role] = e.Leader
	case Disconnected, Connected:
		t.cut = e.Kind == Disconnected
	case Suspended, Resumed:
		t.idle = e.Kind == Suspended
	case Snapshot, TombstonesChanged, ShuttingDown, SeenChanged, ReachabilityChanged:
	}
}

// catchUp returns the events that lead from the known state to s.
func (t *knownState) catchUp(s *State) (events []Event) {
	if s.Stopped && len(t.members) > 0 {
		events = append(events, Event{Kind: ShuttingDown})
	}
	var removed []Event
	for n, m := range t.members {
		if _, still := s.Member(n); !still {
			gone := m
			gone.Status = Removed
			removed = append(removed, Event{Kind: MemberRemoved, Member: gone, Previous: m.Status})
		}
	}
	slices.SortFunc(removed, func(a, b Event) int { return a.Member.Node.Compare(b.Member.Node) })
	events = append(events, removed...)
	for _, m := range s.Members {
		if old, known := t.members[m.Node]; !known || old.Status != m.Status || old.UpNumber != m.UpNumber {
			events = append(events, Event{Kind: kindOf(membership.Became(m.Status)), Member: m})
		}
	}
	events = append(events, t.reachabilityEvents(s)...)
	if t.leader != s.Leader {
		events = append(events, Event{Kind: LeaderChanged, Leader: s.Leader})
	}
	events = append(events, t.roleLeaderEvents(s)...)
	// Until its first connection event a node counts as connected.
	if s.Joined && t.members != nil && t.cut == s.Connected {
		events = append(events, Event{Kind: choose(s.Connected, Connected, Disconnected)})
	}
	if t.idle != s.Suspended {
		events = append(events, Event{Kind: choose(s.Suspended, Suspended, Resumed)})
	}
	return events
}

func (t *knownState) reachabilityEvents(s *State) (events []Event) {
	for _, n := range s.Unreachable {
		if m, ok := s.Member(n); ok && !t.unreachable[n] {
			events = append(events, Event{Kind: MemberUnreachable, Member: m})
		}
	}
	for _, m := range s.Members {
		if t.unreachable[m.Node] && s.Reachable(m.Node) {
			events = append(events, Event{Kind: MemberReachable, Member: m})
		}
	}
	return events
}

func (t *knownState) roleLeaderEvents(s *State) (events []Event) {
	now := map[string]identity.Node{}
	for _, r := range s.RoleLeaders {
		if now[r.Role] = r.Node; t.roleLeaders[r.Role] != r.Node {
			events = append(events, Event{Kind: RoleLeaderChanged, Role: r.Role, Leader: r.Node})
		}
	}
	for role, n := range t.roleLeaders {
		if now[role].IsZero() && !n.IsZero() {
			events = append(events, Event{Kind: RoleLeaderChanged, Role: role})
		}
	}
	slices.SortFunc(events, func(a, b Event) int { return cmp.Compare(a.Role, b.Role) })
	return events
}

func choose[T any](is bool, yes, no T) T {
	if is {
		return yes
	}
	return no
}

// Event is a change of the cluster as one node sees it.
type Event struct {
	Kind EventKind
	// State is the whole state, in Snapshot only.
	State *State
	// Member is the member, in events about members.
	Member Member
	// Previous is the previous status, in MemberRemoved.
	Previous Status
	// Leader is the new leader, in LeaderChanged and RoleLeaderChanged. It is the zero node if
	// there is none.
	Leader identity.Node
	// Role is the role, in RoleLeaderChanged.
	Role string
}

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events, in the order in which the events of one change are yielded.
const (
	// Snapshot has the whole state. It is the first event, and replaces events that were dropped
	// for a slow consumer.
	Snapshot EventKind = 1 + iota
	// TombstonesChanged: the set of remembered removed nodes has changed. This event is for
	// consumers that keep state for each removed node.
	TombstonesChanged
	// ShuttingDown: this node is no longer a member. A MemberRemoved for each member follows.
	ShuttingDown
	MemberRemoved
	MemberJoined
	MemberWeaklyUp
	MemberUp
	MemberPreparing
	MemberReady
	MemberLeft
	MemberExited
	MemberDowned
	// MemberUnreachable and MemberReachable are never about the node itself.
	MemberUnreachable
	MemberReachable
	LeaderChanged
	RoleLeaderChanged
	// SeenChanged and ReachabilityChanged: State.Seen or State.Observations has changed.
	SeenChanged
	ReachabilityChanged
	// Disconnected: this node does not receive its own heartbeats through the network, has lost its
	// connection to the message broker, or was paused. It suspects no other node.
	Disconnected
	// Suspended: this node must stop its singletons and shards at once, because other nodes may
	// start them.
	Suspended
	// Connected: this node receives its own heartbeats again.
	Connected
	// Resumed: this node may host singletons and shards again.
	Resumed
)

// The kinds that the machine reports are consecutive and in the order of the machine's kinds.
const (
	firstOfMachine = TombstonesChanged
	lastOfMachine  = ReachabilityChanged
)

func (k EventKind) String() string {
	if firstOfMachine <= k && k <= lastOfMachine {
		return membership.EventKind(k - firstOfMachine + EventKind(membership.TombstonesChanged)).String()
	}
	names := [...]string{Snapshot: "snapshot", Disconnected: "disconnected", Suspended: "suspended", Connected: "connected", Resumed: "resumed"}
	return enum.Name(k, "event", names[:]...)
}

// String returns the kind and the member, as in "up a:1#9f2c".
func (e Event) String() string {
	switch {
	case e.Kind == LeaderChanged:
		return fmt.Sprintf("leader %v", e.Leader)
	case e.Kind == RoleLeaderChanged:
		return fmt.Sprintf("role-leader %s %v", e.Role, e.Leader)
	case !e.Member.Node.IsZero():
		return fmt.Sprintf("%v %v", e.Kind, e.Member.Node)
	case e.Kind == Snapshot && e.State != nil:
		return fmt.Sprintf("snapshot of %d members", len(e.State.Members))
	}
	return e.Kind.String()
}

func kindOf(k membership.EventKind) EventKind {
	return EventKind(k) - EventKind(membership.TombstonesChanged) + firstOfMachine
}

func eventOf(e membership.Event) Event {
	out := Event{
		Kind:     kindOf(e.Kind),
		Previous: e.Previous, Leader: e.Node, Role: e.Role,
	}
	if e.Member != nil {
		out.Member = *e.Member
	}
	return out
}

func eventsOf(life []membership.Life) (events []Event) {
	kinds := map[membership.LifeKind]EventKind{
		membership.Disconnected: Disconnected, membership.Suspended: Suspended, membership.Connected: Connected, membership.Resumed: Resumed,
	}
	for _, l := range life {
		if kind := kinds[l.Kind]; kind != 0 {
			events = append(events, Event{Kind: kind})
		}
	}
	return events
}

// broadcaster holds the current state and distributes events to subscribers. It never waits for a
// subscriber.
type broadcaster struct {
	limit int

	state atomic.Pointer[State]

	mu          sync.Mutex
	changed     chan struct{} // closed when the state changes
	subscribers map[*subscriber]struct{}
	closed      bool
	lagged      uint64
}

type subscriber struct {
	kinds map[EventKind]bool // nil means all kinds
	ready loop.Signal
	queue []Event
	stale bool // the next event is a snapshot
}

func (b *broadcaster) current() *State { return b.state.Load() }

// next returns the state and a channel that is closed at the next change.
func (b *broadcaster) next() (*State, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.Load(), b.changed
}

func (b *broadcaster) publish(state *State, events []Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Store(state)
	close(b.changed)
	b.changed = make(chan struct{})
	for r := range b.subscribers { // each has its own queue
		b.enqueue(r, events)
		r.ready.Set()
	}
}

func (b *broadcaster) enqueue(r *subscriber, events []Event) {
	if r.stale {
		return // the snapshot will contain the change
	}
	before := len(r.queue)
	for _, e := range events {
		if r.kinds == nil || r.kinds[e.Kind] {
			r.queue = append(r.queue, e)
		}
	}
	if len(r.queue) > b.limit && before > 0 {
		r.queue, r.stale = nil, true
		b.lagged++
	}
}

func (b *broadcaster) subscribe(kinds []EventKind) *subscriber {
	r := &subscriber{ready: loop.NewSignal(), stale: true}
	if len(kinds) > 0 {
		r.kinds = map[EventKind]bool{}
		for _, k := range kinds {
			r.kinds[k] = true
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribers[r] = struct{}{}
	return r
}

func (b *broadcaster) unsubscribe(r *subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subscribers, r)
}

// take returns the waiting events of a subscriber, and whether they are the last.
func (b *broadcaster) take(r *subscriber) ([]Event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := r.queue
	r.queue = nil
	if r.stale {
		r.stale = false
		events = []Event{{Kind: Snapshot, State: b.state.Load()}}
	}
	return events, b.closed
}

// close ends all subscribers after they have received the waiting events.
func (b *broadcaster) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for r := range b.subscribers {
		r.ready.Set()
	}
}

func (b *broadcaster) lagCount() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lagged
}
