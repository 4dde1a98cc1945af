// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package downing has the settings of the split brain resolver, which decides which members of a
// cluster are dead while some are unreachable.
//
// An unreachable node may have crashed, or the network between two parts of the cluster is
// interrupted and the other part finds this one unreachable. If both parts continued, each would
// run its own singletons and shards. Therefore the resolver waits until the view of the cluster is
// stable. Then a strategy chooses the side that survives. Each side decides from its own view. The
// other side shuts down.
//
// # Strategies
//
//   - [KeepMajority], the default, for clusters whose size changes. It survives the loss of less than
//     half of the members.
//   - [StaticQuorum] for clusters with a fixed number of nodes.
//   - [KeepOldest] if the oldest node matters because it hosts the singletons. The cluster does not
//     survive the loss of the oldest node, unless that node was alone on its side.
//   - [LeaseMajority] if all nodes can reach a lease store. It is the safest strategy, and it
//     survives the loss of more than half.
//   - [DownAll] if a restart of all nodes is better than any risk.
//   - [Off] leaves the decision to an operator. Until then nothing that the unreachable nodes hosted
//     starts elsewhere.
//   - [Auto] downs unreachable nodes without asking other members. It splits clusters. Do not use it
//     in production.
//
// All nodes must have the same settings. A node that is downed ends; a supervisor such as systemd
// or Kubernetes should restart it.
//
// # How long to wait
//
// The larger a cluster, the longer it takes until all nodes have the same view:
//
//	nodes         5    10    20    50   100  1000
//	StableAfter   7s   10s   13s   17s   20s   30s
//
// With the defaults, the singletons and shards of a crashed node start elsewhere after about 45
// seconds: 5 seconds until the node is unreachable, 20 seconds until it is downed, and 20 seconds
// of removal margin.
//
// # Which members count
//
// The strategies do not count all members. Joining and WeaklyUp members do not count, because the
// other side may not have received them. Down and Exiting members do not count, because they leave
// anyway. If the count favours this side, KeepMajority and KeepOldest count again with the view
// that the other side has if it missed the latest changes. If the second count disagrees, all
// members are downed.
//
// An unreachable node that has not seen the current view counts for the other side. Its own
// observations of this side are ignored, because it cannot reach this side anyway. There is one
// exception: if it has found all of this side unreachable, its observations count, because it may
// have received the view by which this side decides.
//
// With LeaseMajority the leader decides, or the node that holds the lease from an earlier decision.
// If the lease is refused to the leader because a member of its own side holds it, the leader waits
// for a while for the decision of that member.
//
// Nodes of this side that cannot reach each other are indirectly connected. All of these are
// downed, and the strategy decides about the two sides as if each could communicate within itself.
// The survivors are always a part of one surviving side.
package downing
