// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package replication is the protocol that replicates CRDTs between the nodes of a cluster, as a
// pure state machine: no clock, goroutine, socket or log.
//
// A Machine is the state of one node. It holds a value of package crdt for each key. It receives
// inputs with the current time and returns effects; the same inputs give the same effects:
//
//	m, err := replication.New(replication.Config{Name: "carts", Self: self, Rand: random})
//	update := replication.Update{Request: replication.Request{ID: 1, Key: "visits", Level: level}, Modify: f}
//	effects := m.Step(now, replication.Batch{Members: members, Packets: packets, Inputs: []replication.Input{update}})
//	effects = m.Tick(now) // at m.Next(), which every step may change
//
// Package ddata and the simulator drive a Machine: they send its packets, write its records with a
// Backlog, and publish its values, replies and events.
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
// Deltas of causal types are numbered; a node that misses a delta requests the whole value. The
// comparison of digests finds all other lost changes. If the data is equal, a comparison costs one
// short message.
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
//   - The node that takes over the history of an ORSet or a map adds its elements again. If another
//     node that has not observed the takeover removes an element, the addition and the removal are
//     concurrent. An element whose removal was acknowledged may therefore return.
//   - If a node with durable keys returns after other nodes were pruned, or while they are pruned,
//     changes of the pruned nodes that are stored only on its own disk are lost. Config.DurablePruneAfter must
//     exceed the downtime of nodes.
//   - If two partitioned clusters both prune the same node, the counts of that node are counted
//     twice once the disks of both clusters are combined.
//   - Pruning depends on wall clocks. If they differ by more than Config.MarkerTTL, some nodes
//     forget a marker while others still have the history.
//
// Expiry also depends on wall clocks: the clock of this node and the clock of the node that last
// used a key. If two clocks differ by more than Config.Expire, a node does not recognize uses on
// the other node in time. A node whose clock is ahead by more than Config.Expire, even for seconds,
// removes its expiring keys. If all clocks are set ahead at the same time, the keys are lost. The
// time of use is stored on disk, so that expired keys do not return after a restart. A record
// without a time of use counts as used when it is loaded.
//
// A node that rejects a write does not report the reason to the sender: a different type, no room
// for more keys, or an unknown type. The log of the rejecting node contains the reason. While a
// disk does not respond, up to twice Config.MaxRequests writes of other nodes wait for it, in
// addition to the requests of the node itself.
//
// A key that was loaded stays durable even if it no longer matches Config.Durable. Without durable
// keys nothing is loaded; the records remain on disk and are loaded again when durable keys are
// configured.
//
// If concurrent changes make a value larger than a message, the value is sent in parts. A value
// above MaxMessage is not sent until it is smaller; a note reports this.
package replication
