// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package downing has the settings of the split brain resolver, which decides which members of a
// cluster are dead while some are unreachable.
//
// An unreachable node may have crashed. But it is also possible that the network between two parts
// of the cluster is interrupted, and each part finds the other one unreachable. If both parts
// continued, each would run its own singletons and shards. Therefore the resolver waits until the
// view of the cluster is stable. Then a strategy chooses the side that survives. Each side decides
// from its own view. The other side shuts down.
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
//   - [Off] leaves the decision to an operator. Until the operator decides, the singletons and shards
//     of the unreachable nodes do not start elsewhere.
//   - [Auto] downs unreachable nodes regardless of other members. It splits clusters. Do not use it
//     in production.
//
// All nodes must have the same settings. A node that is downed ends; a supervisor such as systemd
// or Kubernetes should restart it.
//
// # How long to wait
//
// The larger a cluster, the longer it takes until all nodes have the same view. The default of
// StableAfter follows the number of members:
//
//	members       3    5    10    20    50   100 and more
//	StableAfter   5s   7s   10s   13s   17s   20s
//
// With the defaults, the singletons and shards of a crashed node of three start elsewhere within 20
// seconds: 5 seconds until the node is unreachable, 5 seconds until it is downed, 5 seconds of
// removal margin, and the changes in between. With a hundred nodes they start after about 45
// seconds. A node that does not respond for longer than the detection and StableAfter is downed.
//
// # Which members count
//
// The strategies do not count all members. Joining and WeaklyUp members do not count, because the
// other side may not have received them. Down and Exiting members do not count, because they leave
// anyway. The other side may have a different view, because the latest changes did not reach both
// sides. So if the count favours this side, KeepMajority and KeepOldest count a second time with
// the statuses that members may have in the view of the other side. If the second count does not
// favour this side, all members are downed.
//
// An unreachable node that has not seen the current view counts for the other side. Its own
// observations of this side are ignored, because it cannot reach this side anyway. There is one
// exception: the observations count if the node finds every member of this side unreachable. Such a
// node may have received the view of this side and decide from the same view.
//
// With LeaseMajority the leader decides. But if a node holds the lease from an earlier decision,
// that node decides. If the lease is refused to the leader because a member of its own side holds
// it, the leader waits for a while for the decision of that member.
//
// Nodes of this side that cannot reach each other are indirectly connected. All of these are
// downed. In addition, the strategy decides between the two sides as if all nodes of the same side
// could reach each other. All survivors are on the side that the strategy keeps.
package downing
