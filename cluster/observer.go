// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
	"github.com/refold-io/refold/transport"
)

// Observer is told what happens to a node: a struct of functions, each of which may be nil and then costs nothing. They are
// called one after the other on a goroutine of their own. If they don't keep up, some calls are left out, which the log says.
type Observer struct {
	// State: something is different, as seen by this node.
	State func(*State)
	// Stats: the figures, each Config.StatsInterval.
	Stats func(Stats)
	// Dropped: something reached nobody.
	Dropped func(Drop)
	// Instance: an instance of a singleton was started, was asked to stop, or has ended.
	Instance func(InstanceInfo)
	// Phase: a phase of the shutdown is over.
	Phase func(PhaseInfo)
}

// Drop is something that reached nobody.
type Drop struct {
	Reason DropReason
	// Node is who sent it, or to whom it was sent.
	Node identity.Node
	// Singleton is for which one it was, if it was for one.
	Singleton string
}

// DropReason is why something reached nobody.
type DropReason uint8

// The reasons.
const (
	// DroppedInput: too many messages of the control lane waited for this node.
	DroppedInput DropReason = iota
	// DroppedSend: a message of a protocol could not be sent.
	DroppedSend
	// DroppedBuffer: a proxy had no more room, or the node ended first.
	DroppedBuffer
	// DroppedForward: a proxy's message could not be sent.
	DroppedForward
	// DroppedNotHosted: no instance is where a message came to.
	DroppedNotHosted
	// DroppedBusy: too many messages waited for an instance.
	DroppedBusy
	// DroppedMalformed: a message for a singleton can't be read.
	DroppedMalformed

	dropReasons
)

func (r DropReason) String() string {
	return [...]string{"input", "send", "buffer", "forward", "not-hosted", "busy", "malformed", "?"}[min(r, dropReasons)]
}

// InstanceInfo describes what an instance of a singleton does.
type InstanceInfo struct {
	Singleton string
	// Nr counts the instances of the singleton on this node.
	Nr uint64
	// Ended says that it has ended, Stopping that it was asked to; neither that it was started.
	Stopping, Ended bool
	// Ran is for how long.
	Ran time.Duration
	// Err is what it ended with.
	Err error
}

// PhaseInfo describes a phase of the shutdown that is over.
type PhaseInfo struct {
	Phase Phase
	// Took is how long it took, TimedOut that not all of it was done.
	Took     time.Duration
	TimedOut bool
}

// Stats are figures of a node since it was started.
type Stats struct {
	// Membership counts messages and time-outs of the membership protocol.
	Membership MembershipStats
	Transport  transport.Stats
	// Dropped counts what reached nobody. The index is a DropReason.
	Dropped [dropReasons]uint64
	// Lagged is how often a reader of events was so slow that it got a snapshot.
	Lagged uint64
	// Decisions counts what the downing strategy did about unreachable members.
	Decisions uint64
	// Malformed counts messages about singletons that can't be read, Refused those for none here or from a node that is
	// gone, Ignored those from nodes that have no say in it, Stuck how often a hand-over was begun anew.
	Malformed, Refused, Ignored, Stuck uint64
	// LeasesHeld, LeasesNotHeld and LeasesLost count answers about leases.
	LeasesHeld, LeasesNotHeld, LeasesLost uint64
}

// MembershipStats are counters of the membership protocol since the node was started.
type MembershipStats struct {
	// Sent and Received count messages by kind, such as "heartbeat".
	Sent, Received map[string]uint64
	// Dropped counts messages that were not handled, by reason, such as "expired".
	Dropped map[string]uint64
	// TimedOut counts time-outs by operation, such as "heartbeat".
	TimedOut map[string]uint64
	// Gossip counts received gossip by its order to the state of this node, such as "concurrent".
	Gossip map[string]uint64
	// Became counts changes of members' statuses by the new status.
	Became map[string]uint64
	// ClockSize is the number of entries of the vector clock. SeenBy is the number of members that have seen the state of this node.
	ClockSize, SeenBy int
}

func membershipStats(c *membership.Counters) MembershipStats {
	return MembershipStats{
		Sent: byName[membership.Kind](c.Sent[:]), Received: byName[membership.Kind](c.Received[:]), Dropped: byName[membership.Drop](c.Dropped[:]),
		TimedOut: byName[membership.Timeout](c.TimedOut[:]), Gossip: byName[membership.Order](c.Gossip[:]), Became: byName[Status](c.Became[:]),
		ClockSize: c.ClockSize, SeenBy: c.SeenBy,
	}
}

// byName returns the counters above 0 by the names of their indices.
func byName[K interface {
	~uint8
	String() string
}](counters []uint64) map[string]uint64 {
	named := map[string]uint64{}
	for i, n := range counters {
		if n > 0 {
			named[K(i).String()] = n //nolint:gosec // the counters have an index for each K
		}
	}
	return named
}

// dropped counts something that reached nobody.
func (n *Node) dropped(why DropReason, who identity.Node, singleton string) {
	n.hosts.drops[why].Add(1)
	if f := n.cfg.Observer.Dropped; f != nil {
		n.outlet.add(func() { f(Drop{why, who, singleton}) })
	}
}

// Stats returns the figures. The error is that of ctx, or says why the node has ended.
func (n *Node) Stats(ctx context.Context) (s Stats, err error) {
	err = n.call(ctx, func() { s = n.stats() })
	return s, err
}

// stats returns the figures. It is called by the loop.
func (n *Node) stats() Stats {
	c := n.machine.Counters()
	s := Stats{
		Membership: membershipStats(&c.Membership), Transport: n.transport.Stats(), Lagged: n.hub.lags(),
		Malformed: c.Malformed, Refused: c.Refused, Ignored: c.Ignored, Stuck: c.Stuck,
		LeasesHeld: c.LeasesHeld, LeasesNotHeld: c.LeasesNotHeld, LeasesLost: c.LeasesLost,
	}
	for kind, count := range c.Downing {
		if splitbrain.NoteKind(kind) != splitbrain.LeftToOwner {
			s.Decisions += count
		}
	}
	for i := range s.Dropped {
		s.Dropped[i] = n.hosts.drops[i].Load()
	}
	return s
}

func (n *Node) tellStats() {
	if f := n.cfg.Observer.Stats; f != nil {
		s := n.stats()
		n.outlet.add(func() { f(s) })
	}
}

// statsTicker returns what ticks when figures are to be told.
func (n *Node) statsTicker() *time.Ticker {
	if n.cfg.StatsInterval > 0 {
		return time.NewTicker(n.cfg.StatsInterval)
	}
	t := time.NewTicker(time.Hour)
	t.Stop()
	return t
}
