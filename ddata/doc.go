// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package ddata holds data on all nodes of a cluster that any of them may read and change at any time, also while it can't reach the
// others, and that becomes the same everywhere.
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
// The data types are those of package crdt, and one's own. The deadline of a context is how long a request may take.
//
// # Levels
//
// A level says how many nodes take part before a call returns, this one always being one of them:
//
//	                            1 of 3 nodes        of 5        of 9
//	ReadLocal, WriteLocal       1                   1           1
//	ReadFrom(n), WriteTo(n)     n                   n           n
//	ReadMajority, WriteMajority 2                   3           5
//	... .AtLeast(4)             3                   4           5
//	... MajorityPlus(1)         3                   4           6
//	ReadAll, WriteAll           3                   5           9
//
// Who writes to a majority and reads from one reads what was written. WriteLocal is heard of by others within a few tenths of a second. Nodes
// that are about to join, and those that are WeaklyUp, do not count. All others with Config.Roles do, whether they have a replicator of that name
// or not; Error.Silent tells which have not answered. A majority is one of the nodes that this node knows: right after the start that may be
// itself alone, so a program calls AwaitReplicas first. AtLeast never asks for more nodes than there are.
//
// # How it works
//
//	Get at ReadLocal --------------------------> values <--+
//	Get, Update, Delete --> inbox --> loop --> replica.Machine --> packets --> transport --> other nodes
//	members of the cluster ---^        ^                 |                                      |
//	packets of other nodes ---^--------|-----------------|--------------------------------------+
//	                                   +-- disk <--------+--> subscribers
//
// One goroutine has the state; all that has come while it was busy is handled together, and what goes to the same node
// goes in one packet. A caller who finds it idle takes its place for its own request. A change is sent to those that the level asks for, and to all others soon after, as a delta if the type has
// those. Nodes compare digests of all that they have now and then, so that nothing stays lost. The protocol is that of package
// replication: see there for what holds and what does not.
//
// Requests, deltas and acknowledgements take the transport's lane for data, comparisons and the data that a new node gets the lane for bulk. The
// transport compresses packets above 4 KiB, if that makes them smaller.
//
// # Guarantees
//
//   - A call that returns nil has had as many nodes as its level asks for; a durable key is on their disks. Else the error
//     says how many of how many have taken part, and who has not answered: see Error.
//   - A node reads what it has written, at any level.
//   - Reads at ReadLocal take an immutable value and never wait for the loop.
//   - A subscriber gets the last value of each key, however slow it is.
//   - Nothing that was acknowledged by a majority is missed by a later read from a majority, while the members stay the
//     same. When nodes come and go, that holds as long as written plus read nodes are more than there are then: use
//     MajorityPlus or AtLeast.
//
// # What it is not
//
// A write that has failed with ErrQuorum or ErrStore is not undone, and may be seen: a majority is no transaction, and a register that is written and read
// at majorities may show such a write, then not, then again. ReadLevel.RepairPeers shows no value again that a later read has not. Keys
// are never changed together. All keys are in memory on all nodes: up to some hundred thousand, each well below Config.MaxEntry. Deleted keys stay
// as tombstones. The clocks of nodes decide between writes of a register.
//
// # When something fails
//
// Updates go on in each part of a cluster that is cut, at levels that have enough nodes there, and are merged when it is whole again. A node that was removed from
// the cluster has to start anew, with another replicator; what it alone had and had not told anybody is lost unless it is durable. A disk
// that fails is ErrStore to whoever waits for it. A function of the user that panics changes nothing. A replicator that has ended is not started
// again on its node: that would number its changes anew, and the others would take them for those that they know.
//
// # Shutdown
//
// A replicator ends with its node. It tells the others all that they don't have in cluster.PhaseLeave, and serves until the node has left;
// in cluster.PhaseBeforeTerminate it writes what waits for the disk.
package ddata
