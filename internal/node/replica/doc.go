// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package replica is one replicator of a node, as values and pure functions: the
// protocol of package replication, with the way of its messages through the transport and
// of its records to the disk. The shell in package ddata and the simulator drive it and nothing else.
//
//	members, packets, requests                effects
//	             |                                ^
//	+------------v--------------------------------|-----------+
//	|  Machine                                                |
//	|      unpack --> replication.Machine --> pack by node    |
//	+---------------------------------------------------------+
//	                                   records --> Backlog --> disk
//
// All replicators of a node share one kind of messages. A packet names the replicator that it is
// for (see NameOf) and holds any number of messages of one sender: what a machine sends to a
// node in one step goes out together.
package replica
