// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package embedded runs a NATS server inside the process, for tests, examples and
// clusters on a single machine:
//
//	server, err := embedded.Start(embedded.Config{})
//	defer server.Close()
//	carrier, err := nats.Connect(nats.Config{Access: server.Access(), Cluster: "bank", Self: self})
//
// It listens on 127.0.0.1 only, and asks everybody for a random token, which is in a
// file that only the same user can read. JetStream is on, for leases.
package embedded
