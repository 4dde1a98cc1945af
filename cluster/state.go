// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/transport"
)

// State is the state of the cluster as one node sees it. It is immutable. Its slices are sorted by
// node and must not be modified.
type State struct {
	// Self is the node that sees this state.
	Self identity.Node
	// Joined reports that the node is a member. Connected reports that it receives its own
	// heartbeats through the network. Suspended reports that it must not host singletons and
	// shards, because other nodes may start them.
	Joined, Connected, Suspended bool
	// Stopped reports that the membership has ended permanently. Err is the reason.
	Stopped bool
	Err     error

	// Members are all members, including this node.
	Members []Member
	// Unreachable are the members, except this node, that at least one member finds unreachable.
	Unreachable []identity.Node
	// Seen are the members that are known to have this state.
	Seen []identity.Node
	// Leader is the member that acts for the cluster, in the view of this node. It is the zero node
	// if there is none.
	Leader identity.Node
	// RoleLeaders are the leaders of the members with each role, sorted by role.
	RoleLeaders []RoleLeader

	tombstones   []membership.Tombstone
	reachability membership.Reachability
}

// Member returns the given node as a member, and whether it is a member.
func (s *State) Member(n identity.Node) (Member, bool) {
	if m := membership.Lookup(s.Members, n); m != nil {
		return *m, true
	}
	return Member{}, false
}

// Named returns the member with the given name. For a short time, several incarnations of a name
// can be members. Named then returns the one with the highest UID.
func (s *State) Named(name string) (Member, bool) {
	for i := range s.Members {
		if s.Members[i].Node.Name == name && (i+1 == len(s.Members) || s.Members[i+1].Node.Name != name) {
			return s.Members[i], true
		}
	}
	return Member{}, false
}

// Status returns the status of a member. It returns Removed for other nodes.
func (s *State) Status(n identity.Node) Status {
	if m, ok := s.Member(n); ok {
		return m.Status
	}
	return Removed
}

// Reachable reports whether no member finds a node unreachable.
func (s *State) Reachable(n identity.Node) bool {
	return !contains(s.Unreachable, n)
}

// Observation reports that a member finds another one unreachable.
type Observation struct {
	Observer, Subject identity.Node
	// Terminated reports that the subject is known to be dead, not only unreachable.
	Terminated bool
}

// Observations returns which members find which members unreachable, sorted by observer and
// subject.
func (s *State) Observations() []Observation {
	var all []Observation
	s.reachability.EachUnreachable(func(observer identity.Node, r membership.Record) {
		all = append(all, Observation{observer, r.Subject, r.Reach == membership.Terminated})
	})
	return all
}

func contains(sorted []identity.Node, n identity.Node) bool {
	_, found := slices.BinarySearchFunc(sorted, n, identity.Node.Compare)
	return found
}

// gone reports whether a node was a member and cannot be one again, or is known to be dead.
func (s *State) gone(n identity.Node) bool {
	if s.Stopped {
		return true
	}
	if _, ok := s.Member(n); ok {
		return s.reachability.Of(n, nil) == membership.Terminated
	}
	return slices.ContainsFunc(s.tombstones, func(t membership.Tombstone) bool { return t.Node == n })
}

func (n *Node) currentState() *State {
	m := n.machine
	v := m.View()
	return &State{
		Self: n.self, Joined: m.Member(), Connected: v.Connected, Suspended: m.Suspended(),
		Stopped: m.Stopped(), Err: n.left,
		Members: v.Members, Unreachable: v.Unreachable, reachability: v.Reachability, Seen: v.Seen,
		Leader: v.LeaderNode, RoleLeaders: convert(v.RoleLeaders, func(r membership.RoleLeader) RoleLeader { return RoleLeader(r) }), tombstones: m.Gossip().Tombstones(),
	}
}

// State returns the current state of the cluster as this node sees it. It does not block.
func (n *Node) State() *State { return n.events.current() }

// Members returns the members, sorted by node. The slice must not be modified.
func (n *Node) Members() []Member { return n.events.current().Members }

func (n *Node) until(ctx context.Context, ok func(*State) bool) (*State, error) {
	for {
		s, changed := n.events.next()
		if ok(s) {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}

type (
	// Member describes a node of the cluster. It is immutable; its slices must not be modified.
	Member = identity.Member
	// Status is the state of a member in its life cycle. Reachability is not part of it.
	Status = identity.Status
)

// The statuses of a member: see identity.Status.
const (
	Joining              = identity.Joining
	WeaklyUp             = identity.WeaklyUp
	Up                   = identity.Up
	Leaving              = identity.Leaving
	Exiting              = identity.Exiting
	Down                 = identity.Down
	Removed              = identity.Removed
	PreparingForShutdown = identity.PreparingForShutdown
	ReadyForShutdown     = identity.ReadyForShutdown
)

// Setting is a setting that must be the same on all nodes of a cluster.
type Setting struct {
	Key, Value string
	// Optional settings are compared only if both nodes have them.
	Optional bool
}

// RoleLeader is the leader of the members with a role.
type RoleLeader struct {
	Role string
	Node identity.Node
}

// Settings tune the membership protocol. The zero value of each field is its default.
type Settings struct {
	// SeedNodeTimeout is how long the first seed waits for another seed before it founds a cluster.
	// The other nodes log a warning after this time. A joining node sends requests to the seeds
	// every second. Defaults to 5 s.
	SeedNodeTimeout time.Duration
	// RetryJoinAfter is how long a node tries to join through the seed that it has chosen. It tries
	// once per second. After this time it restarts joining with any seed. Defaults to 10 s;
	// negative means that it does not restart.
	RetryJoinAfter time.Duration
	// StopJoiningAfter is how long a node with seeds tries to join before it stops. 0 means without
	// limit.
	StopJoiningAfter time.Duration
	// IgnoreIncompatible lets a node join although its settings differ from those of the cluster.
	IgnoreIncompatible bool

	// MinMembers is the number of members that must have joined before any member becomes Up.
	// Defaults to 1.
	MinMembers int
	// MinMembersOfRole is the number of members with a role that must have joined before any member
	// becomes Up. Members of all statuses count.
	MinMembersOfRole map[string]int
	// WeaklyUpAfter is how long the leader waits until all members have seen the latest state. After
	// this time, Joining members become WeaklyUp. Defaults to 7 s; negative means never.
	WeaklyUpAfter time.Duration

	// InitialDelay is the time until a new member sends its first gossip and heartbeats. Defaults
	// to 1 s.
	InitialDelay time.Duration
	// GossipInterval is the time between two rounds of gossip. There are three times as many rounds
	// while less than half of the members have seen the last change. Defaults to 1 s.
	GossipInterval time.Duration
	// GossipTimeToLive is how long received gossip may wait to be handled. Gossip that waited
	// longer is dropped unread. Defaults to 2 s.
	GossipTimeToLive time.Duration
	// DifferentView is the probability with which a round of gossip chooses among the members that
	// have not seen the last change, if there are any. Defaults to 0.8.
	DifferentView float64
	// ReduceDifferentView is the number of members above which DifferentView is reduced. The
	// reduction is linear; with three times this number of members or more, the probability is a
	// tenth of DifferentView. Defaults to 400.
	ReduceDifferentView int
	// LeaderInterval is the time between two attempts of the leader to act. Defaults to 1 s.
	LeaderInterval time.Duration
	// PruneTombstonesAfter is how long removed nodes are remembered. After a longer partition, a
	// removed node may become a member again. Defaults to 24 h.
	PruneTombstonesAfter time.Duration
	// QuarantineRemovedAfter is how long messages of a node are accepted after it left. Defaults to
	// 5 s; negative means not at all.
	QuarantineRemovedAfter time.Duration

	// HeartbeatInterval is the time between two heartbeats to each monitored member, and to the
	// node itself. Defaults to 1 s.
	HeartbeatInterval time.Duration
	// AcceptablePause is how long heartbeats may be missing without any suspicion. Defaults to 3 s.
	AcceptablePause time.Duration
	// Threshold is the phi of the failure detector at which a member becomes unreachable. Defaults
	// to 8.
	Threshold float64
	// MaxSamples is how many intervals between heartbeats are kept. Defaults to 1000.
	MaxSamples int
	// MinStdDeviation is the lower limit of the standard deviation of these intervals. Defaults to
	// 100 ms.
	MinStdDeviation time.Duration
	// MonitoredBy is how many members monitor each member. A member that finds this many members
	// unreachable monitors all members. Defaults to 9.
	MonitoredBy int
	// ExpectedResponseAfter is when a member that has never replied to a heartbeat becomes suspect.
	// Defaults to 1 s.
	ExpectedResponseAfter time.Duration
	// ReaperInterval is the time between two checks of all suspects. Defaults to 1 s.
	ReaperInterval time.Duration
	// SuspendAfter is how long a node that does not receive its own heartbeats continues to host
	// singletons and shards. It must be less than the time after which other nodes start them.
	// Defaults to StableAfter of the downing settings. A value above 10 s requires a value of
	// StableAfter.
	SuspendAfter time.Duration
	// UndecidedAfter is how long a node continues to host while an unreachable member is neither
	// Down nor Exiting. The time starts at the last moment when all members agreed that every
	// member is reachable. It must be longer than a downing decision takes, and less than the time
	// after which other nodes start the node's singletons and shards. Defaults to StableAfter plus
	// half of RemovalMargin of the downing settings. A value requires a value of StableAfter.
	UndecidedAfter time.Duration
	// LeavingUndecidedAfter replaces UndecidedAfter on a leaving node. The other members remove
	// such a node without a decision as soon as they cannot reach it. Defaults to half of
	// RemovalMargin.
	LeavingUndecidedAfter time.Duration
	// GiveUpAfter limits the suspension of a node that receives its own heartbeats again: it waits
	// for other members to confirm its membership, or for a decision about the missing members.
	// After this time it marks itself as down and ends. GiveUpAfter must be longer than a downing
	// decision takes. With a shorter time, all nodes end if one node crashes during an outage of
	// the network. Defaults to twice StableAfter of the downing settings plus four times
	// AcceptablePause.
	GiveUpAfter time.Duration
}

func convert[A, B any](in []A, f func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}

// kindForwarded is a message or request that a proxy forwards to an instance.
const kindForwarded = transport.Kind(node.KindForwarded)
