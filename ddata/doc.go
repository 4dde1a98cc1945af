// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package ddata replicates data to all nodes of a cluster. Any node can read and change it at any
// time, even while it cannot reach other nodes, and all nodes converge to the same data.
//
//	r, err := ddata.Start(ctx, node, ddata.Config{})
//	err = r.AwaitReplicas(ctx, 3)
//
//	visits := ddata.Key[crdt.PNCounter]("visits")
//	n, err := ddata.Update(ctx, r, visits, ddata.WriteMajority(), func(c crdt.PNCounter) (crdt.PNCounter, error) {
//		return c.Add(r.Self(), 1), nil
//	})
//	n, err = ddata.Get(ctx, r, visits, ddata.ReadLocal())
//	for change := range r.Subscribe(ctx, visits.Any()) {
//		n, err = visits.Value(change)
//	}
//
// The data types are those of package crdt and types that users define. The deadline of a context
// limits the duration of a request.
//
// # Levels
//
// A level is the number of nodes that take part before a call returns. The node itself is always
// one of them:
//
//	                            1 of 3 nodes        of 5        of 9
//	ReadLocal, WriteLocal       1                   1           1
//	ReadFrom(n), WriteTo(n)     n                   n           n
//	ReadMajority, WriteMajority 2                   3           5
//	... .AtLeast(4)             3                   4           5
//	... MajorityPlus(1)         3                   4           6
//	ReadAll, WriteAll           3                   5           9
//
// A read from a majority returns everything that was written to a majority. Other nodes receive a
// WriteLocal within a few tenths of a second. Nodes that are Joining or WeaklyUp do not count. All
// other nodes with Config.Roles count, even if they have not started a replicator of the same name;
// Error.Silent lists the nodes that have not answered. A majority is a majority of the members in
// this node's view. Directly after the start, the view may contain only the node itself, so
// programs call AwaitReplicas first. AtLeast never requires more nodes than the cluster has.
//
// # How it works
//
//	Get at ReadLocal --------------------------> values <--+
//	Get, Update, Delete --> inbox --> loop --> machine --> packets --> transport --> other nodes
//	members of the cluster ---^        ^          |                                      |
//	packets of other nodes ---^--------|----------|--------------------------------------+
//	                                   +-- disk <-+--> subscribers
//
// One goroutine owns the state. In one turn it processes all waiting input and combines all
// messages to a node into one packet. If the loop is idle, a caller runs its request itself. A
// change is sent to the nodes that the level requires, and to all others soon afterwards, as a
// delta if the type has deltas. Nodes periodically compare digests of all data, which finds lost
// changes. The documentation of package internal/replication describes the protocol.
//
// Requests, deltas and acknowledgements use the data lane of the transport; comparisons and the
// transfer to new nodes use the bulk lane. The transport compresses packets above 4 KiB if that
// makes them smaller.
//
// # Guarantees
//
//   - A call that returns nil has reached as many nodes as its level requires, and durable keys are
//     on the disks of these nodes. The error of a failed call reports how many nodes have taken part
//     and which nodes have not answered: see Error.
//   - A node reads its own writes, at any level.
//   - Reads at ReadLocal return an immutable value and never wait for the loop.
//   - A subscriber receives the last value of each key, even if it is slow.
//   - A read from a majority returns everything that a majority has acknowledged before, while the
//     members stay the same. When nodes join or leave, this holds as long as the number of written
//     nodes plus the number of read nodes exceeds the number of nodes: use MajorityPlus or AtLeast.
//
// # Limitations
//
// A write that failed with ErrQuorum or ErrStore is not undone and may become visible. A majority
// is not a transaction: in a register that is written and read at majorities, such a write may be
// visible to one read, invisible to the next, and visible again later. With ReadLevel.RepairPeers a
// value that one read has returned does not disappear in later reads. Changes of several keys are
// never atomic. All nodes hold all keys in memory, so the data should have at most some hundred
// thousand keys, each well below Config.MaxEntry. Deleted keys remain as tombstones. The clocks of
// nodes decide between concurrent writes of a register.
//
// # Failures
//
// In a partitioned cluster, updates continue in each part at the levels for which the part has
// enough nodes. The parts merge their updates when the partition heals. A node that was removed
// from the cluster must restart with a new replicator; changes that only this node had are lost
// unless they are durable. If a disk fails, requests that wait for it return ErrStore. If the
// function of an update panics, nothing has changed. Panics of data types, observers, stores and log
// handlers fail one operation. Only a defect of this package, or a function of an update that calls
// runtime.Goexit (as testing.T.FailNow does), ends a replicator on a node that continues: Done is closed,
// Err returns the reason, open requests fail with ErrStopped, and subscriptions end. A replicator that
// has ended cannot be started again on its node: the new replicator would number its changes from 1
// again, and other nodes would ignore these changes as known. Its state may be inconsistent, so it
// is not restarted in place either. A program that needs the data ends its node when Done is closed, and
// restarts it as a new incarnation.
//
// # Shutdown
//
// A replicator ends with its node. In cluster.PhaseLeave it sends all changes that other nodes do
// not have, and it serves requests until the node has left; in cluster.PhaseBeforeTerminate it
// writes pending records to disk.
package ddata
