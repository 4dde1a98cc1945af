// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package loop has the building blocks of event loops that drive a single-threaded state machine: a
// Mailbox for the input, a Dispatcher that runs log and observer calls outside the loop, a Throttle
// for repeated log lines, a counter of calls InFlight, and the wake-up Signal.
//
// Packages cluster, ddata, sharding and transport use it. All types are safe for concurrent use.
package loop
