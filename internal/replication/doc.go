// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package replication is the protocol that replicates CRDTs between the nodes of a cluster, as a
// pure state machine: no clock, goroutine, socket or log.
//
// A Machine is the part of one node. It holds a value of package crdt for each key. It receives
// inputs with the current time and returns effects; the same inputs give the same effects:
//
//	m, err := replication.New(replication.Config{Name: "carts", Self: self, Rand: random})
//	update := replication.Update{Request: replication.Request{ID: 1, Key: "visits", Level: level}, Modify: f}
//	effects := m.Step(now, replication.Batch{Members: members, Packets: packets, Inputs: []replication.Input{update}})
//	effects = m.Tick(now) // at m.Next(), which every step may change
//
// Package ddata and the simulator drive it: they send its packets, write its records with a Backlog,
// and publish its values, replies and events.
//
// # Messages
//
//	Write, Delta --> Ack                          requests that wait for other nodes
//	Read         --> ReadResult
//	Delta, Gossip  (--> Want --> Gossip)          recent changes, to all nodes
//	Root --> Groups --> Buckets --> Keys          periodic comparison of all data
//	     --> Gossip, Want, Uses --> Gossip        by a tree of digests
//	Pull --> Chunk                                all data, to a new node
//
// A change is sent as a delta to the nodes that a request needs, and soon afterwards to all others.
// Deltas of causal types are numbered; a node that misses one requests the whole value. Comparison
// of digests finds all other losses. It costs one short message if the data is equal.
//
// # Guarantees and limitations
//
// In addition to those of package ddata:
//
//   - Each request is answered exactly once.
//   - Changes of a removed node are moved to another node. They are neither lost nor counted twice,
//     as long as all nodes that hold them return before Config.MarkerTTL.
//   - Received data is bounded and never makes the machine panic. A message may contain a key only
//     once. A delta with many operations that visit all elements of a set is treated as a gap, so
//     short messages are cheap to process.
//   - Records that could not be written to disk are retried until they are written, so a restart
//     does not undo a deletion.
//
// Pruning of removed nodes has these limitations:
//
//   - The node that takes over the history of an ORSet or a map adds its elements again. This is
//     concurrent with a removal by a node that has not observed the takeover yet, so an element whose
//     removal was acknowledged may return.
//   - A node with durable keys that returns after other nodes were pruned, or while the owner
//     prunes them, loses changes of those nodes that only its disk had. Config.DurablePruneAfter must
//     exceed the downtime of nodes.
//   - If two partitioned clusters both prune the same node, its counts are counted twice once their
//     disks are combined.
//   - Pruning depends on wall clocks. If they differ by more than Config.MarkerTTL, some nodes
//     forget a marker while others still have the history.
//
// Expiry also depends on wall clocks, of the node and of the last user of a key. Between two clocks
// that differ by more than Config.Expire, uses are not recognized in time. A node whose clock is
// ahead by more than that, even for seconds, removes its expiring keys; if all clocks are set ahead
// at the same time, the keys are lost. The time of use is stored on disk, so that expired keys do
// not return with a restart; records without it count as used when they are loaded.
//
// A node that rejects a write reports no reason: another type, no room for more keys, or an unknown
// type. Its own log has the reason. While a disk does not respond, up to twice Config.MaxRequests
// writes of other nodes wait for it, in addition to the requests of the node itself.
//
// A key that was loaded stays durable even if it no longer matches Config.Durable. Without durable
// keys nothing is loaded; the records remain on disk and are loaded again when durable keys are
// configured.
//
// A value that has grown larger than a message by concurrent changes is sent in parts. Above
// MaxMessage it is not sent until it is smaller; a note reports this.
package replication
