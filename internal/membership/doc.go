// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package membership is the protocol by which the nodes of a cluster agree on its members. It
// consists of values and pure functions, without clock, goroutines, sockets or logger.
//
// The state of a node is a gossip: the members with their status, the members that have seen this
// state, the observed reachability, and a vector clock that orders states. Concurrent states are
// merged, so that all nodes converge to the same state.
//
//	Joining --> WeaklyUp --> Up --> Leaving --> Exiting --> Removed
//	   '------------------->  '----------------> Down -------^
//
// Each member is monitored by several others with a phi accrual failure detector (Detector). The
// observations are collected in a table (Reachability), in which each node writes only its own
// rows.
//
// A Machine runs the protocol for one node. It receives inputs with their time and returns effects:
// messages to send, events to publish and log lines. The same inputs give the same effects:
//
//	m, err := membership.New(membership.Config{Self: self, Rand: random})
//	effects := m.Step(now, membership.JoinSeeds{Seeds: seeds})
//	effects = m.Step(now, membership.Received{From: from, To: to, Data: data})
//	effects = m.Tick(now) // at m.Next(), which every step may change
//
// # Guarantees
//
//   - Two states with the same clock are equal.
//   - A removed node never becomes a member again. A restarted process is a different node.
//   - A node becomes Up only after all members that are Up or Leaving have seen that it joins.
//   - A node that does not receive its own heartbeats suspects no other node, because their silence
//     is not evidence then. After a while the node stops hosting. It resumes only when all
//     reachable members have confirmed its membership and one of them was not disconnected itself,
//     or when all members have confirmed it. Until then it takes no downing decision, unless all
//     reachable members lost their connections together with it (see Connectivity).
//   - A silent node is not removed by this package. The resolver in package splitbrain or an operator
//     decides about its removal.
//
// # Limits
//
// The leader is not elected. While views differ there may be several leaders. Therefore a leader
// acts only when the members agree. A partition that lasts longer than the tombstones are kept can
// add a removed node again. If two processes with one name each found a cluster and accept other
// nodes while they cannot communicate, neither of them ends.
package membership
