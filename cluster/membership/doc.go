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
package membership
