// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package downing decides which members of a cluster are dead when some can't
// be reached, as values and pure functions.
//
// That a node doesn't answer may mean that it crashed, or that the network
// between two halves of the cluster is cut and the other half thinks the same of this
// one. Were both to go on alone, there would be two of each singleton and of each shard.
// So a Resolver waits until nothing changes any more, and then a strategy names the
// side that survives, from what each side knows by itself:
//
//	r, err := downing.New(self, downing.Settings{Strategy: downing.KeepMajority})
//	...
//	effects := r.Step(now, downing.View{...}) // when the members or their reachability changed
//	effects = r.Tick(now)                     // each second
//	for _, n := range effects.Down { ... }    // the others first, the node itself last
//
// # Which strategy
//
//   - [KeepMajority], the default, for clusters whose size changes. Survives the loss of less than half.
//   - [StaticQuorum] where the number of nodes is fixed and known.
//   - [KeepOldest] where the oldest node matters, because it hosts the singletons. The cluster dies with it, unless it
//     was alone.
//   - [LeaseMajority] where a lease is to be had that all can reach: the surest, and it survives
//     the loss of more than half.
//   - [DownAll] where a restart of all is better than any doubt.
//   - [Off] leaves it to an operator. What the unreachable nodes hosted starts nowhere until then.
//   - [Auto] downs whom it can't see and asks nobody. It splits clusters; do not use it where anything is at stake.
//
// All nodes must have the same settings ([Settings.Values]), and what ends itself should be
// started again by whatever runs the process.
//
// # How long to wait
//
// The larger a cluster, the longer it takes until all its nodes see the same:
//
//	nodes         5    10    20    50   100  1000
//	StableAfter   7s   10s   13s   17s   20s   30s
//
// With the defaults the nodes of a crashed one are started elsewhere after about 5
// seconds until it is suspected, 20 until it is downed, and 20 of margin.
//
// # What is decided
//
// Counted are the members that are neither Joining nor WeaklyUp (the other side may not know them) nor Down nor
// Exiting (they go anyway). Where the count is in favour of this side, KeepMajority and
// KeepOldest count once more as the other side could if it has missed the latest
// changes; when that says otherwise, all go down.
//
// A node that can't be reached and has not seen the view in which that stands is on the other side. What it finds
// of this side may come through where the network is cut one way only, and doesn't count: of course
// it can't reach this one. Only if it has found all of this side unreachable does it count, since it may have heard
// then of the view by which that side decides.
//
// With a lease, the leader decides, or whoever has the lease from an earlier decision. A leader that
// is refused because a member of its own side has it waits a while for what that one decides.
//
// Nodes of this side of which one doesn't reach another are indirectly connected. All of these are downed, and
// it is decided about the two sides besides, as if each was of one mind. So whoever goes on is a part of
// a side that may, and no other can.
package downing
