// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
	"github.com/refold-io/refold/transport"
)

// Observer receives events of a node. It is a struct of functions, each of which may be nil. The
// functions are called one after another on a separate goroutine. If they are too slow, calls are
// dropped, and the number of dropped calls is logged.
type Observer struct {
	// State is called when the state of the cluster has changed, as this node sees it.
	State func(*State)
	// Stats is called with counters every Config.StatsInterval.
	Stats func(Stats)
	// Dropped is called when a message is dropped.
	Dropped func(Drop)
	// Instance is called when an instance of a singleton starts, is asked to stop, or has ended.
	Instance func(InstanceInfo)
	// Phase is called when a phase of the shutdown has ended.
	Phase func(PhaseInfo)
}

// Drop is a dropped message.
type Drop struct {
	Reason DropReason
	// Node is the sender or the destination.
	Node identity.Node
	// Singleton is the name of the singleton, if the message was for one.
	Singleton string
}

// DropReason is the reason why a message was dropped.
type DropReason uint8

// The reasons for dropping a message.
const (
	// DroppedInput: the mailbox of the node was full.
	DroppedInput DropReason = iota
	// DroppedSend: the transport did not accept a message of a protocol.
	DroppedSend
	// DroppedBuffer: the buffer of a proxy was full, or the node ended.
	DroppedBuffer
	// DroppedForward: the transport did not accept a message of a proxy.
	DroppedForward
	// DroppedNotHosted: the destination does not run the instance.
	DroppedNotHosted
	// DroppedBusy: the inbox of the instance was full.
	DroppedBusy
	// DroppedMalformed: a message for a singleton could not be decoded, or a message of a protocol
	// used another lane than Control.
	DroppedMalformed

	dropReasons
)

func (r DropReason) String() string {
	return [...]string{"input", "send", "buffer", "forward", "not-hosted", "busy", "malformed", "?"}[min(r, dropReasons)]
}

// InstanceInfo describes a change of a singleton's instance.
type InstanceInfo struct {
	Singleton string
	// Nr numbers the instances of the singleton on this node.
	Nr uint64
	// Stopping is set when the instance was asked to stop, Ended when it has ended. Neither is set
	// when it has started.
	Stopping, Ended bool
	// Ran is how long the instance has run.
	Ran time.Duration
	// Err is the error of the ended instance.
	Err error
}

// PhaseInfo describes an ended phase of the shutdown.
type PhaseInfo struct {
	Phase Phase
	// Took is the duration. TimedOut reports that not all functions of the phase have returned.
	Took     time.Duration
	TimedOut bool
}

// Stats are counters of a node since its start.
type Stats struct {
	// Membership counts messages and time-outs of the membership protocol.
	Membership MembershipStats
	Transport  transport.Stats
	// Dropped counts dropped messages. The index is a DropReason.
	Dropped [dropReasons]uint64
	// Lagged counts how often events were replaced by a snapshot for a slow subscriber.
	Lagged uint64
	// Decisions counts decisions of the downing strategy.
	Decisions uint64
	// Malformed counts singleton messages that could not be decoded. Refused counts messages for a
	// singleton that this node does not have, and messages from nodes that are not members. Ignored
	// counts messages from members that are not part of the hand-over. Stuck counts how often a
	// hand-over was restarted.
	Malformed, Refused, Ignored, Stuck uint64
	// LeasesHeld, LeasesNotHeld and LeasesLost count results of lease operations.
	LeasesHeld, LeasesNotHeld, LeasesLost uint64
	// AdminDenied counts the requests of operators that the node refused: the request did not use
	// the right that its command requires, or Config.Authorize did not permit it.
	AdminDenied uint64
}

// MembershipStats are counters of the membership protocol since the node was started.
type MembershipStats struct {
	// Sent and Received count messages by kind, such as "heartbeat".
	Sent, Received map[string]uint64
	// Dropped counts messages that were not handled, by reason, such as "expired".
	Dropped map[string]uint64
	// TimedOut counts time-outs by operation, such as "heartbeat".
	TimedOut map[string]uint64
	// Gossip counts received gossip by its causal order relative to the state of this node, such as
	// "concurrent".
	Gossip map[string]uint64
	// Became counts changes of members' statuses by the new status.
	Became map[string]uint64
	// ClockSize is the number of entries of the vector clock. SeenBy is the number of members that
	// have seen the state of this node.
	ClockSize, SeenBy int
}

func membershipStats(c *membership.Counters) MembershipStats {
	return MembershipStats{
		Sent: enum.Counts[membership.Kind](c.Sent[:]), Received: enum.Counts[membership.Kind](c.Received[:]), Dropped: enum.Counts[membership.Drop](c.Dropped[:]),
		TimedOut: enum.Counts[membership.Timeout](c.TimedOut[:]), Gossip: enum.Counts[membership.Order](c.Gossip[:]), Became: enum.Counts[Status](c.Became[:]),
		ClockSize: c.ClockSize, SeenBy: c.SeenBy,
	}
}

func (n *Node) dropped(reason DropReason, peer identity.Node, singleton string) {
	n.instances.drops[reason].Add(1)
	if f := n.cfg.Observer.Dropped; f != nil {
		n.out.Do(func() { f(Drop{reason, peer, singleton}) })
	}
}

// Stats returns the counters. The error is that of ctx, or the reason why the node has ended.
func (n *Node) Stats(ctx context.Context) (s Stats, err error) {
	err = n.call(ctx, func() { s = n.stats() })
	return s, err
}

func (n *Node) stats() Stats {
	c := n.machine.Counters()
	s := Stats{
		Membership: membershipStats(&c.Membership), Transport: n.transport.Stats(), Lagged: n.events.lagCount(),
		Malformed: c.Malformed, Refused: c.Refused, Ignored: c.Ignored, Stuck: c.Stuck,
		LeasesHeld: c.LeasesHeld, LeasesNotHeld: c.LeasesNotHeld, LeasesLost: c.LeasesLost,
		AdminDenied: n.adminDenied.Load(),
	}
	for kind, count := range c.Downing {
		if splitbrain.NoteKind(kind) != splitbrain.LeftToOwner {
			s.Decisions += count
		}
	}
	for i := range s.Dropped {
		s.Dropped[i] = n.instances.drops[i].Load()
	}
	return s
}

func (n *Node) reportStats() {
	if f := n.cfg.Observer.Stats; f != nil {
		s := n.stats()
		n.out.Do(func() { f(s) })
	}
}
