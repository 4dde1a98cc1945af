// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package replica is the state machine of one replicator of a node: the protocol of package
// replication, the encoding of its messages in packets, and the queue of its records. Package ddata
// and the simulator drive it.
//
//	members, packets, requests                effects
//	             |                                ^
//	+------------v--------------------------------|-----------+
//	|  Machine                                                |
//	|      unpack --> replication.Machine --> pack by node    |
//	+---------------------------------------------------------+
//	                                   records --> Backlog --> disk
//
// All replicators of a node share one message kind. A packet contains the name of its replicator
// (see NameOf) and any number of messages of one sender: all messages to a node of one step are
// sent together.
package replica
