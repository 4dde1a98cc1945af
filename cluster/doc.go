// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster makes a process a node of a cluster: the node joins, observes the other members,
// runs singletons, and leaves in an orderly way.
//
//	carrier, err := nats.Connect(nats.Config{Access: access, Cluster: "bank", Self: self}) // plugins/nats; plugins/inmem for tests
//	node, err := cluster.Join(ctx, cluster.Config{Cluster: "bank", Carrier: carrier, Seeds: []string{"bank-0", "bank-1", "bank-2"}})
//	...
//	for e := range node.Events(ctx, cluster.MemberUp, cluster.MemberRemoved) { ... }
//	...
//	return node.ShutdownOnSignal(ctx) // SIGTERM: leave, hand over, end
//
// # Guarantees
//
//   - Members agree on the list of members. A process that restarts under its name is a different
//     member.
//   - A live node keeps its name. A second node with the name gets [ErrNameInUse].
//   - An unreachable node is removed only by the strategy in [Config.Downing] or by [Node.Down]. The
//     default strategy keeps the majority. No automatic strategy is safe in every failure: see
//     package downing.
//   - At most one instance of a [Singleton] runs at a time if both sides of a partition use the
//     same strategy and no process is paused for longer than the removal margin. A process detects
//     such a pause when it resumes. With a lease, the guarantee does not depend on agreement among
//     the members, but their clocks must run at the same rate.
//   - [Node.Events] yields a snapshot and then each change in order. A consumer that is too slow
//     receives a new snapshot instead of the changes. User code never blocks the node.
//   - A message that is sent through a [Proxy] is handled at most once.
//   - Only messages of members reach singletons and the handlers of the transport. Removing a node
//     does not revoke its credential: see docs/cluster.md.
//
// # Failures
//
// A node that does not receive its own heartbeats through the network is disconnected: it lost the
// connection to the broker, or its process was paused. It suspects no other node and keeps its
// membership. After [Settings.SuspendAfter] the node is suspended,
// because other nodes may take over: its singletons are stopped and [Proxy.Ask] fails with
// [ErrDisconnected]. The node resumes when other members have confirmed its membership. An outage
// of the message broker for a minute therefore changes no membership. If no member can confirm the
// membership of the node, the node ends after [Settings.GiveUpAfter], because the missing members
// may have continued without it. A node is also suspended if members are unreachable and no downing
// decision follows in time.
//
// A node that was downed, found its name in use or could not join ends: [Node.Done] is closed and
// [Node.Err] returns the reason. The process should then exit and be restarted as a new node.
// [Node.Live] and [Node.Ready] are for probes.
//
// # Shutdown
//
//	before-unbind, unbind, requests-done, stop-services, before-cluster-shutdown, stop-regions
//	  |  leave            the node is Leaving
//	  |  exiting          singletons are handed over
//	  |  exiting-done     the node has left
//	  |  cluster-stop     the node ends its membership if it could not leave
//	  v  before-terminate, terminate
//
// When a phase exceeds [Config.PhaseTimeout], the shutdown continues with the next phase. It does
// not wait for functions and singletons that do not return. [Node.OnShutdown] adds a function to a
// phase.
//
// # Concurrency
//
// Shutdown functions, observers and loggers are called on goroutines of the node. Each singleton's
// Run has its own goroutine. A State is shared and must not be modified. An instance must answer
// each request that it receives: an unanswered request counts towards [Singleton.MaxInbox].
package cluster
