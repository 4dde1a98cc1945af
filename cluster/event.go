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

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Events yields a Snapshot and then each change of it, without a gap and without a duplicate, until ctx or the node
// ends. With kinds it yields, besides snapshots, events of these kinds only.
//
// The node never waits for a reader. One that is Config.MaxEvents behind gets another
// Snapshot in place of all that it has missed.
func (n *Node) Events(ctx context.Context, kinds ...EventKind) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		r := n.hub.subscribe(kinds)
		defer n.hub.unsubscribe(r)
		for {
			events, last := n.hub.take(r)
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
			case <-r.news:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Changes does the same without snapshots: it yields the events that lead from a cluster without members to the
// present one, and then each change. A reader that is too slow gets those events that lead from what it knows to the
// present; what was in between is skipped.
func (n *Node) Changes(ctx context.Context, kinds ...EventKind) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		var known tally
		wanted := func(e Event) bool { return len(kinds) == 0 || slices.Contains(kinds, e.Kind) }
		for e := range n.Events(ctx) {
			events := []Event{e}
			if e.Kind == Snapshot {
				events = known.catchUp(e.State)
			}
			for _, e := range events {
				known.note(e)
				if wanted(e) && !yield(e) {
					return
				}
			}
		}
	}
}

// tally is what a reader knows from the events that it got.
type tally struct {
	members     map[identity.Node]Member
	unreachable map[identity.Node]bool
	leader      identity.Node
	roleLeaders map[string]identity.Node
	cut, idle   bool // disconnected, suspended
}

// note takes in an event.
func (t *tally) note(e Event) {
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

// catchUp returns the events that lead from what is known to a state.
func (t *tally) catchUp(s *State) (events []Event) {
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
	events = append(events, t.reach(s)...)
	if t.leader != s.Leader {
		events = append(events, Event{Kind: LeaderChanged, Leader: s.Leader})
	}
	events = append(events, t.leaders(s)...)
	// Before the first event of the network a node counts as connected.
	if s.Joined && t.members != nil && t.cut == s.Connected {
		events = append(events, Event{Kind: cond(s.Connected, Connected, Disconnected)})
	}
	if t.idle != s.Suspended {
		events = append(events, Event{Kind: cond(s.Suspended, Suspended, Resumed)})
	}
	return events
}

func (t *tally) reach(s *State) (events []Event) {
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

func (t *tally) leaders(s *State) (events []Event) {
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

func cond[T any](is bool, yes, no T) T {
	if is {
		return yes
	}
	return no
}

// Event is a change of what a node knows of its cluster.
type Event struct {
	Kind EventKind
	// State is all that is known, of Snapshot. It is nil in other events.
	State *State
	// Member is whom it is about, in events about members.
	Member Member
	// Previous is the status before, of MemberRemoved.
	Previous Status
	// Leader is the new one of LeaderChanged and RoleLeaderChanged, the zero node if there is none.
	Leader identity.Node
	// Role is that of RoleLeaderChanged.
	Role string
}

// EventKind says what an event is.
type EventKind uint8

// The events, in the order in which those of one change come.
const (
	// Snapshot is all that is known. It comes first, and again to a reader that was too slow.
	Snapshot EventKind = 1 + iota
	// TombstonesChanged is for those who keep something for each removed node.
	TombstonesChanged
	// ShuttingDown says that this node is no member any more. A MemberRemoved for each member follows.
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
	// SeenChanged and ReachabilityChanged say that Node.State has news about these.
	SeenChanged
	ReachabilityChanged
	// Disconnected says that this node does not hear itself through the network: it judges nobody.
	Disconnected
	// Suspended says that it must stop hosting at once, since others may begin to.
	Suspended
	// Connected says that it hears itself again.
	Connected
	// Resumed says that it may host again.
	Resumed
)

// The kinds of the machine's events stand together, in their order.
const (
	firstOfMachine = TombstonesChanged
	lastOfMachine  = ReachabilityChanged
)

func (k EventKind) String() string {
	switch k {
	case Snapshot:
		return "snapshot"
	case Disconnected:
		return "disconnected"
	case Suspended:
		return "suspended"
	case Connected:
		return "connected"
	case Resumed:
		return "resumed"
	default:
		if k < firstOfMachine || k > lastOfMachine {
			return fmt.Sprintf("event(%d)", uint8(k))
		}
		return membership.EventKind(k - firstOfMachine + EventKind(membership.TombstonesChanged)).String()
	}
}

// String returns the kind and whom it is about, as in "up a:1#9f2c".
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

// kindOf returns the kind of an event of the machine.
func kindOf(k membership.EventKind) EventKind {
	return EventKind(k) - EventKind(membership.TombstonesChanged) + firstOfMachine
}

// eventOf returns an event of the machine.
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

// eventsOf returns what became of the node itself.
func eventsOf(life []membership.Life) (events []Event) {
	for _, l := range life {
		switch l.Kind {
		case membership.Disconnected:
			events = append(events, Event{Kind: Disconnected})
		case membership.Suspended:
			events = append(events, Event{Kind: Suspended})
		case membership.Connected:
			events = append(events, Event{Kind: Connected})
		case membership.Resumed:
			events = append(events, Event{Kind: Resumed})
		case membership.Joined, membership.BecameUp, membership.Exits, membership.Downed, membership.Stopped:
		}
	}
	return events
}

// hub holds the present state and passes events on to those who read them. Nothing waits for a reader.
type hub struct {
	limit int

	mu      sync.Mutex
	state   *State
	changed chan struct{} // closed when there is another state
	readers map[*reader]struct{}
	closed  bool
	lagged  uint64
}

// reader is one who reads events.
type reader struct {
	kinds  map[EventKind]bool // nil is all
	news   chan struct{}
	queue  []Event
	behind bool // a snapshot stands for all that was missed
}

func newHub(limit int, state *State) *hub {
	return &hub{limit: limit, state: state, changed: make(chan struct{}), readers: map[*reader]struct{}{}}
}

func (h *hub) current() *State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// next returns the state, and what is closed when there is another one.
func (h *hub) next() (*State, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state, h.changed
}

// publish takes a new state, and the events that led to it.
func (h *hub) publish(state *State, events []Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = state
	close(h.changed)
	h.changed = make(chan struct{})
	for r := range h.readers { // each has a queue of its own
		h.pass(r, events)
		wake(r.news)
	}
}

func (h *hub) pass(r *reader, events []Event) {
	if r.behind {
		return // the snapshot will show it
	}
	before := len(r.queue)
	for _, e := range events {
		if r.kinds == nil || r.kinds[e.Kind] {
			r.queue = append(r.queue, e)
		}
	}
	if len(r.queue) > h.limit && before > 0 {
		r.queue, r.behind = nil, true
		h.lagged++
	}
}

// subscribe begins to read. The first event is a snapshot.
func (h *hub) subscribe(kinds []EventKind) *reader {
	r := &reader{news: make(chan struct{}, 1), behind: true}
	if len(kinds) > 0 {
		r.kinds = map[EventKind]bool{}
		for _, k := range kinds {
			r.kinds[k] = true
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers[r] = struct{}{}
	return r
}

func (h *hub) unsubscribe(r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers, r)
}

// take returns what a reader has not read yet, and whether nothing follows.
func (h *hub) take(r *reader) ([]Event, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := r.queue
	r.queue = nil
	if r.behind {
		r.behind = false
		events = []Event{{Kind: Snapshot, State: h.state}}
	}
	return events, h.closed
}

// close ends all readers once they have read what there is.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for r := range h.readers {
		wake(r.news)
	}
}

func (h *hub) lags() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lagged
}
