// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package testproxy stands between a client and a server in a test and breaks
// the connection where the test says, to the byte.
//
//	proxy := testproxy.Start(t, server.Addr())
//	client := dial(proxy.Addr())
//	fault := proxy.Arm(testproxy.Fault{Direction: testproxy.ToServer, After: 100, Action: testproxy.Stall})
//	client.Append(ctx, ...)  // 100 bytes of it arrive, then nothing
//	<-fault.Struck()
//	fault.Release()          // and now the rest, though the client may be gone
//
// What a client has sent is held by the proxy, so a client that gives up and
// closes its connection takes nothing back: after a stall the server gets
// everything, then the end of the stream. That is how a commit lands late.
package tcpproxy
