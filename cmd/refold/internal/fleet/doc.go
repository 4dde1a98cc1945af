// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package fleet contains the tests of clusters of processes on one machine: partitions, killed and
// suspended nodes, lost brokers and forged messages.
//
//	parent                              child, one for each node
//	Fleet.Start  ── Node as JSON ─────▶ Serve(ctx, stdin, stdout)
//	Fleet.Send   ── JSON per line ────▶   Extension
//	Fleet.Next   ◀── Report per line ──   changes of the state
//	             ── end of input ─────▶   stops, because the parent has ended
//
// A child runs the test binary with an argument that selects Serve.
package fleet
