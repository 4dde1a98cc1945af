// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package nats connects the nodes of a cluster over NATS and keeps leases in JetStream.
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
//	refold.<cluster>.admin.<right>.<service>.<to>.<operator>
//	                                                  from an operator; <to> is @any for any node
//	refold.<cluster>.inbox.operator.<operator>.>      answers of nodes to an operator
//	refold.<cluster>.inbox.lease.<name>.>             answers of JetStream to a node
//
// Each "." of a name is a "~" in a subject. The subject contains the sender of a message, and the
// permissions of the NATS user limit the subjects to which a node may publish: see
// [NodePermissions], [LeasePermissions] and [OperatorPermissions]. Without permissions, every
// client of the account can impersonate every node. With allow_responses in addition, a node can do
// the same, because a server does not check reply subjects. A node answers an operator only in the
// operator's inbox. The bucket of the leases is created by an operator: see [CreateLeaseBucket].
//
// # Connections
//
// A [Carrier] has two connections: one for the control lane and one for the other lanes. Both
// reconnect without limit and buffer no messages while they are down. A connection that does not
// answer pings for 3 s is closed. The carrier reports that it is disconnected while one of them is
// down.
//
// Connections to other machines use TLS unless Access.AllowPlaintext is set. Secrets come from
// files. The files are read again for each connection, and secrets are never logged. A URL with a
// password is refused.
//
// # Limits
//
// A frame holds at most Config.MaxFrame bytes. The default is 1 MiB, as for NATS servers. A carrier
// refuses a server with a lower limit and reports the limit.
package nats
