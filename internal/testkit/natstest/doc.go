// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package testnats starts NATS servers in processes of their own and splits them from
// each other, for tests of what holds when the network does not.
//
//	func TestMain(m *testing.M) {
//		testnats.RunIfServer() // this binary is the server, too
//		goleak.VerifyTestMain(m)
//	}
//
//	split := testnats.StartSplit(t, testnats.Config{Users: []testnats.User{{Name: "a"}, {Name: "b"}}})
//	left := connect(split.A.Access(t, "a"))
//	right := connect(split.B.Access(t, "b"))
//	split.Cut()                    // left and right are connected, and don't hear each other
//	split.Heal()                   // when it returns they do
//	split.Drop(testnats.AToB)      // right does not hear left any more
//
// # What can go wrong
//
//	between two servers       Split.Cut, Freeze, Drop and Stall, until Heal
//	between client and server a testproxy in front of Server.Addr, and Server.AccessVia
//	from one node to another  Server.Mute: by permissions, changed while the server runs
//	a server                  Server.Kill and Restart, with the same address
//
// Drop and Stall of a route are noticed by the servers only after hours, so that they
// last. A route that has lost bytes is made anew by Heal.
//
// An [Access] is made of strings only, so that a test can hand it to processes of its own.
// Servers end with the test, and when the test's process ends, however it does.
//
// [Access]: github.com/refold-io/refold/plugins/nats.Access
package natstest
