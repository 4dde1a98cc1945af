// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package replication is the protocol by which nodes hold the same data, which any
// of them may change at any time, as values and pure functions: no clock, no
// goroutine, no socket, no log.
//
// A Machine is one node's part of it. It holds a value of package crdt for each key,
// is told what happens, and when, and answers what is to be done; the same inputs give
// the same answers:
//
//	m, err := replication.New(replication.Config{Self: self, Rand: random})
//	effects := m.Step(now, replication.Members{All: members})
//	effects = m.Step(now, replication.Update{Request: replication.Request{ID: 1, Key: "visits", Level: level}, Modify: f})
//	effects = m.Step(now, replication.Received{From: from, Data: data})
//	effects = m.Tick(now) // at m.Next(), which every step may change
//
// # How it spreads
//
//	Write, Delta --> Ack                          requests that wait for others
//	Read         --> ReadResult
//	Delta, Gossip  (--> Want --> Gossip)          what has changed, to all, soon
//	Root --> Groups --> Buckets --> Keys          comparison of all, now and then:
//	     --> Gossip, Want, Uses --> Gossip        a tree of digests, down to keys
//	Pull --> Chunk                                all of it, to a node that is new
//
// A change is sent as a delta to those that a request needs, and soon afterwards to all.
// Deltas of causal types have numbers; a node that misses one asks for the whole
// value. What is lost nevertheless is found by comparing digests, which costs one short message
// if all is equal.
//
// # What holds
//
//   - All nodes hold the same once they can talk to each other and nothing is changed any
//     more.
//   - A request is answered once. Done says that as many replicas as its level asks for have
//     taken part, and the node itself is one of them: durable keys are on its disk.
//   - A read sees what its node has changed before. A read from a majority sees all writes
//     that a majority has acknowledged before it began, as long as members don't change, and
//     while they do as long as written plus read replicas are more than there are nodes.
//   - What a node has changed that was removed is moved to another one, neither lost nor
//     counted twice, as long as whoever still has it comes back before Config.MarkerTTL.
//   - What is received has limits, and never makes the machine panic. A message says one thing of a key, and what is short does
//     not take long: a delta with many steps that go through all of a set is a gap.
//   - What could not be written to disk is written again, until it is: a deletion is not undone by the next start.
//
// # What does not
//
// A write that was not acknowledged may have taken place. A majority is a regular register: a
// write that has timed out may be read, then not, then again. With Get.RepairPeers a read makes
// sure that later ones see at least as much; a register that only one node writes is
// linearizable then.
//
// Where nodes that have left are pruned:
//   - Who takes over what a node has left in an ORSet or a map adds its elements anew. That is
//     concurrent with a removal by a node that has not heard of it yet: an element whose
//     removal was acknowledged may be back then.
//   - A node with durable keys that comes back after others were pruned, or while the owner
//     prunes them, loses what nobody but its disk had of those others. Config.DurablePruneAfter has to
//     be longer than nodes are away.
//   - Two clusters that know nothing of each other, and both prune the same node, count what it has
//     left twice once their disks come together.
//   - All of it is by clocks on the wall. If they differ by more than Config.MarkerTTL, some forget what
//     was pruned while others still have it.
//
// Keys expire by clocks on the wall, that of each node and that of who has used them last. Between two clocks, uses that are further
// apart than Config.Expire are not known in time. A clock that is ahead of all others by more than that, if only for some seconds, makes its
// node forget what expires, and all that is set ahead at the same time lose it. The time of use is on disk as well, so that what has
// expired meanwhile does not come back with a node; records of earlier versions say nothing of it and count as used when they are loaded.
//
// A node that can't take a write says only that it refuses it, whatever the reason: another type, no room for more keys, or a type that it
// does not know. Its own log has that. While a disk does not answer at all, up to twice Config.MaxRequests of what others
// write wait for it, beside the node's own requests.
//
// A key that was loaded stays durable, also if it is none of Config.Durable any more. Without any durable key nothing is loaded, and what is on
// disk comes back when there are some again.
//
// Several keys are never changed together. Deleted keys stay as tombstones. A value that
// has become larger than a message, because nodes have added to it at the same
// time, is sent in parts; beyond MaxMessage it is not sent until it is smaller, and a note
// says so.
package replication
