// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
	"github.com/refold-io/refold/transport"
)

// State is what a node knows of its cluster at one time. It never changes; its slices are sorted by node
// and must not be modified.
type State struct {
	// Self is the node.
	Self identity.Node
	// Joined says that it is a member, Connected that it hears itself through the network, Suspended that
	// it must not host anything, as others may do so soon.
	Joined, Connected, Suspended bool
	// Stopped says that it is no member any more and never will be, Err why.
	Stopped bool
	Err     error

	// Members are all members, this node included.
	Members []Member
	// Unreachable are the members that anybody finds unreachable, without this node.
	Unreachable []identity.Node
	// Seen are the members that are known to know just this.
	Seen []identity.Node
	// Leader is the member that acts for all, as this node finds. It is the zero node if there is none.
	Leader identity.Node
	// RoleLeaders are the first members with each role, sorted by role.
	RoleLeaders []RoleLeader

	tombstones   []membership.Tombstone
	reachability membership.Reachability
}

// Member returns a member.
func (s *State) Member(n identity.Node) (Member, bool) {
	i, found := slices.BinarySearchFunc(s.Members, n, func(m Member, n identity.Node) int { return m.Node.Compare(n) })
	if !found {
		return Member{}, false
	}
	return s.Members[i], true
}

// Named returns the member with a name. Of several incarnations, which are there for a short while only, it is the last one.
func (s *State) Named(name string) (Member, bool) {
	for i := range s.Members {
		if s.Members[i].Node.Name == name && (i+1 == len(s.Members) || s.Members[i+1].Node.Name != name) {
			return s.Members[i], true
		}
	}
	return Member{}, false
}

// Status returns that of a member, and Removed of a node that is none.
func (s *State) Status(n identity.Node) Status {
	if m, ok := s.Member(n); ok {
		return m.Status
	}
	return Removed
}

// Reachable reports whether nobody finds a node unreachable.
func (s *State) Reachable(n identity.Node) bool {
	_, found := slices.BinarySearchFunc(s.Unreachable, n, identity.Node.Compare)
	return !found
}

// Observation reports that a member finds another one unreachable.
type Observation struct {
	Observer, Subject identity.Node
	// Terminated reports that the subject is known to be dead, not only unreachable.
	Terminated bool
}

// Observations returns which members find which members unreachable, sorted by observer and subject.
func (s *State) Observations() []Observation {
	var all []Observation
	s.reachability.Bad(func(observer identity.Node, r membership.Record) {
		all = append(all, Observation{observer, r.Subject, r.Reach == membership.Terminated})
	})
	return all
}

// seenBy reports whether a member knows just this.
func (s *State) seenBy(n identity.Node) bool {
	_, found := slices.BinarySearchFunc(s.Seen, n, identity.Node.Compare)
	return found
}

// gone reports whether a node was a member and never will be again, or is known to be dead.
func (s *State) gone(n identity.Node) bool {
	if s.Stopped {
		return true
	}
	if _, ok := s.Member(n); ok {
		return s.reachability.Of(n, nil) == membership.Terminated
	}
	return slices.ContainsFunc(s.tombstones, func(t membership.Tombstone) bool { return t.Node == n })
}

// look returns the state as the machine has it.
func (n *Node) look() *State {
	m := n.machine
	v, shot := m.View(), m.Snapshot()
	return &State{
		Self: n.self, Joined: m.Member(), Connected: v.Connected, Suspended: m.Suspended(),
		Stopped: m.Stopped(), Err: n.left,
		Members: v.Members, Unreachable: v.Unreachable, reachability: v.Reachability, Seen: v.Seen,
		Leader: shot.Leader, RoleLeaders: convert(shot.RoleLeaders, func(r membership.RoleLeader) RoleLeader { return RoleLeader(r) }), tombstones: m.Gossip().Tombstones(),
	}
}

// State returns what the node knows now. It does not block.
func (n *Node) State() *State { return n.hub.current() }

// Members returns the members, sorted by node. The slice must not be modified.
func (n *Node) Members() []Member { return n.hub.current().Members }

// until waits for a state. The error is that of ctx.
func (n *Node) until(ctx context.Context, ok func(*State) bool) (*State, error) {
	for {
		s, changed := n.hub.next()
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
	// SeedNodeTimeout is how long the first seed waits for another seed before it
	// joins itself, and after which the others log that no seed lets them in. Seeds are asked
	// every second. Defaults to 5 s.
	SeedNodeTimeout time.Duration
	// RetryJoinAfter is when joining begins anew, with any seed, if the one that was asked
	// lets nobody in. Until then it is asked every second. Defaults to 10 s; negative means never.
	RetryJoinAfter time.Duration
	// StopJoiningAfter is when a node that was given seeds and is still no member stops.
	// 0 means never.
	StopJoiningAfter time.Duration
	// IgnoreIncompatible lets a node join although its settings differ from those of
	// the cluster.
	IgnoreIncompatible bool

	// MinMembers is how many members there must be before any becomes Up. Defaults to 1.
	MinMembers int
	// MinMembersOfRole is how many members with a role there must be before any
	// becomes Up. All members count, whatever their status.
	MinMembersOfRole map[string]int
	// WeaklyUpAfter is how long the leader can't act before Joining members become
	// WeaklyUp. Defaults to 7 s; negative means never.
	WeaklyUpAfter time.Duration

	// InitialDelay is when a new member begins to gossip, to send heartbeats and so on.
	// Defaults to 1 s.
	InitialDelay time.Duration
	// GossipInterval is the time between two rounds of gossip; there are three times
	// as many while less than half of the members have seen the last change.
	// Defaults to 1 s.
	GossipInterval time.Duration
	// GossipTimeToLive is how old a gossip may be, from its arrival at this node, when
	// it is handled. Defaults to 2 s.
	GossipTimeToLive time.Duration
	// DifferentView is the probability of gossiping to a member that has not seen the
	// last change, if there is one. Defaults to 0.8.
	DifferentView float64
	// ReduceDifferentView is the number of members above which DifferentView gets
	// smaller, down to a tenth with three times as many. Defaults to 400.
	ReduceDifferentView int
	// LeaderInterval is the time between two attempts of the leader to act. Defaults
	// to 1 s.
	LeaderInterval time.Duration
	// PruneTombstonesAfter is for how long a removed node is remembered. A
	// partition that lasts longer may bring it back. Defaults to 24 h.
	PruneTombstonesAfter time.Duration
	// QuarantineRemovedAfter is for how long a node that left may still talk.
	// Defaults to 5 s; negative means not at all.
	QuarantineRemovedAfter time.Duration

	// HeartbeatInterval is the time between two heartbeats to each monitored member,
	// and to the node itself. Defaults to 1 s.
	HeartbeatInterval time.Duration
	// AcceptablePause is a time without heartbeats that is no reason to suspect
	// anything. Defaults to 3 s.
	AcceptablePause time.Duration
	// Threshold is the phi at which a member is unreachable. Defaults to 8.
	Threshold float64
	// MaxSamples is how many gaps between heartbeats are remembered. Defaults to 1000.
	MaxSamples int
	// MinStdDeviation is the least standard deviation that is assumed of them.
	// Defaults to 100 ms.
	MinStdDeviation time.Duration
	// MonitoredBy is how many members monitor each member. Who finds as many unreachable
	// monitors all. Defaults to 9.
	MonitoredBy int
	// ExpectedResponseAfter is when a member that never answered begins to be
	// suspected. Defaults to 1 s.
	ExpectedResponseAfter time.Duration
	// ReaperInterval is the time between two looks at who is suspected. Defaults to 1 s.
	ReaperInterval time.Duration
	// SuspendAfter is for how long a node that doesn't hear its own heartbeats goes on
	// hosting. It has to be less than the time after which the others start elsewhere
	// what it hosts. Defaults to 20 s StableAfter of the downing settings.
	SuspendAfter time.Duration
	// UndecidedAfter is for how long a node goes on hosting while members that are neither
	// Down nor Exiting can't be reached, counted from when all agreed last that all can. It
	// has to be longer than a decision takes, and less than the time after which others start elsewhere what it
	// hosts. 0, the default, means forever; in package cluster it is StableAfter and half the RemovalMargin of the
	// downing settings.
	UndecidedAfter time.Duration
	// LeavingUndecidedAfter is the same for a node that leaves, which others remove without a decision as soon as they can't reach it. 0, the
	// default, means UndecidedAfter; in package cluster it is half the RemovalMargin.
	LeavingUndecidedAfter time.Duration
	// GiveUpAfter is for how long a node that was suspended since it did not hear itself, and does so again, waits for
	// others to vouch for it, or for a decision about those who are missing. Then it marks itself as down, and ends. It
	// has to be longer than a decision takes, or all end after an outage in which one has crashed. 0, the default,
	// means forever; in package cluster it is twice StableAfter of the downing settings and four times AcceptablePause.
	GiveUpAfter time.Duration
}

// settingsOf converts the settings of downing into those of the resolver.
func settingsOf(s downing.Settings) splitbrain.Settings {
	return splitbrain.Settings{
		Strategy: splitbrain.Strategy(s.Strategy), StableAfter: s.StableAfter, DownAllWhenUnstable: s.DownAllWhenUnstable,
		RemovalMargin: s.RemovalMargin, Role: s.Role, QuorumSize: s.QuorumSize, KeepLoneOldest: s.KeepLoneOldest,
		LeaseName: s.LeaseName, MinorityDelay: s.MinorityDelay, ReleaseAfter: s.ReleaseAfter,
	}
}

// convert converts a slice element by element.
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

// Message kinds of this package, in addition to those of its protocols. They never change.
const (
	// kindForwarded is a message or request that a proxy forwards to an instance. It has the number of node.KindForwarded.
	kindForwarded transport.Kind = 41
)
