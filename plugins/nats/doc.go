// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package nats connects the nodes of a cluster over NATS, and keeps leases in
// JetStream.
//
//	carrier, err := nats.Connect(nats.Config{
//		Access:  nats.Access{URLs: []string{"tls://nats.example.com"}, CredentialsFile: "node.creds"},
//		Cluster: "bank",
//		Self:    self,
//	})
//	t, err := transport.Open(carrier, transport.Config{})
//
// # Subjects
//
//	refold.<cluster>.<lane>.<to>.<uid of to>.<from>
//	refold.<cluster>.join.<to>.<from>                 to a bare name, on the lane control
//	refold.<cluster>.admin.<to>.<operator>            from an operator; <to> is @any for any node
//	refold.<cluster>.inbox.operator.<operator>.>      answers to an operator
//	refold.<cluster>.inbox.lease.<name>.>             answers of JetStream to a node
//
// Each "." of a name is a "~" in a subject. Who a message is from is in its subject,
// and the permissions of the NATS user say which subjects a node may publish
// to: see [NodePermissions], [LeasePermissions] and [OperatorPermissions]. Without permissions every client of the same account
// can speak for every node.
//
// # Connections
//
// A [Carrier] has two: one for the lane control, one for the others. Both reconnect
// for ever, and keep nothing for later while they can't send. A connection that
// does not answer pings for 3 s is given up. As long as one of them is down the
// carrier says that it is disconnected.
//
// Nothing goes beyond this machine in plain text, unless Access.AllowPlaintext is
// set. Secrets come from files, which are read again for each connection, and are
// never logged; a URL with a password in it is refused.
//
// # Limits
//
// A frame holds at most Config.MaxFrame bytes, by default 1 MiB, as many as a NATS
// server takes by default. To one that takes less a carrier does not connect, and
// says so.
package nats
