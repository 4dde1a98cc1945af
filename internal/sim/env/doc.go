// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package world simulates computers and the network between them, in one thread and
// from one seed: the same seed gives the same events at the same times.
//
//	Program   <-- Wake, Receive, Connection --   Process   -- frames -->   broker   --> Process
//	          --- Send, WakeAt, After, Call --> (a clock,              (faults)
//	                                             links)
//
// What a process runs is a Program, about which this package knows nothing. Its messages
// pass the real machines of package internal/link, in frames that a broker carries: each
// node has a link of its own to it, and each pair of nodes may have troubles of its own.
// A process has a clock that differs from that of the world, can be paused, and
// killed.
package env
