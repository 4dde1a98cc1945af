// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster makes a process a node of a cluster: it joins, knows the other members and hears of changes, runs singletons, and leaves in
// good order.
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
//   - Members agree on who is a member. A process that comes back under its name is another member.
//   - A live holder of a name keeps it: a second one gets [ErrNameInUse].
//   - Nobody is removed because it is silent, but by the strategy in [Config.Downing], or by [Node.Down]. The
//     zero value keeps the majority. There is no strategy that is both automatic and safe whatever happens: see package downing.
//   - Of a [Singleton] one instance runs at a time, as long as the members of both sides of a partition follow the same strategy and no process
//     stands still for longer than the removal margin: one that does notices as soon as it runs again. With a lease the members need not agree; their clocks have
//     to run equally fast.
//   - A reader of [Node.Events] gets a snapshot and each change of it, in order; one that is too slow gets another snapshot.
//     Nothing that a user's code does holds up the node.
//   - A message through a [Proxy] is handled at most once.
//
// # When something fails
//
// A node that does not hear its own heartbeats through the network is disconnected: it judges nobody, and its membership is kept. If
// that takes as long as others need to take over, it is suspended: its singletons are stopped, [Proxy.Ask] fails with [ErrDisconnected]. It goes on when the others have
// confirmed that it still is a member. So a broker that is away for a minute changes no membership. If nobody is there who could know that, it ends after
// a while: those who are missing may have gone on without it. It is suspended as well when members can't be
// reached and nobody has decided in time who goes on: the others may have.
//
// A node that was downed, found its name in use, or could not join, ends: [Node.Done] is closed, [Node.Err] says why, and the process
// should end, to be started again as a new node. [Node.Live] and [Node.Ready] are for probes.
//
// # Shutdown
//
//	before-unbind, unbind, requests-done, stop-services, before-cluster-shutdown, stop-regions
//	  |  leave            the node is Leaving
//	  |  exiting          all know it: singletons are handed over
//	  |  exiting-done     the node has left
//	  |  cluster-stop     it ends its membership if it could not leave
//	  v  before-terminate, terminate
//
// A phase that takes longer than [Config.PhaseTimeout] is passed over. [Node.OnShutdown] adds to a phase. Hooks and singletons that don't return are
// left behind.
//
// # Caveats
//
// Hooks, observers and loggers are called on goroutines of the node; a singleton's Run has one of its own. A State and what it holds is
// shared and must not be modified. An instance has to answer each question that it takes: until then the question takes up room of its inbox.
package cluster
