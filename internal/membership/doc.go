// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package membership is the protocol by which the nodes of a cluster agree on
// who belongs to it, as values and pure functions: no clock, no goroutine, no
// socket, no log.
//
// What a node knows is a gossip state: the members with their status, who has
// seen that state, who thinks whom unreachable, and a vector clock that orders
// states. Two states that know nothing of each other are merged, so that all nodes end
// with the same.
//
//	Joining --> WeaklyUp --> Up --> Leaving --> Exiting --> Removed
//	   '------------------->  '----------------> Down -------^
//
// Whether a node is still there is told by a phi accrual failure detector (Detector) of
// each node that monitors it; what these say is collected in a table (Reachability), in
// which each node writes its own rows only.
//
// A Machine is one node's part of it. It is told what happens, and when, and answers
// what is to be sent, published and written to the log; the same inputs give the same
// answers:
//
//	m, err := membership.New(membership.Config{Self: self, Rand: random})
//	effects := m.Step(now, membership.JoinSeeds{Seeds: seeds})
//	effects = m.Step(now, membership.Received{From: from, To: to, Data: data})
//	effects = m.Tick(now) // at m.Next(), which every step may change
//
// # What holds
//
//   - Two states with the same clock are the same.
//   - Whoever was removed never comes back; a process that does is another node.
//   - Nobody becomes Up before all that are Up or Leaving have heard of it.
//   - A node that does not hear its own heartbeats judges nobody: that the others are
//     silent says nothing then. After a while it stops hosting, and goes on only when the
//     others have vouched that it is still a member: all that can be reached, and one of them
//     was not away itself, or else all. Until then it must not decide who goes on either, unless
//     all that it can reach lost their links together with it (Standing).
//   - Nobody is removed because it is silent. To decide that is up to package downing, or
//     to the operator.
//
// # What does not
//
// Who leads is not elected: while views differ there may be several leaders, which is
// why they act only when all agree. A partition that lasts longer than the tombstones
// can bring a removed node back. Of two processes with one name that each have founded a
// cluster and let others in, while they could not hear each other, none ends by itself.
package membership
